"""Run many drawn cases on one backend, and count what each oracle says.

Run from the folder `tests`: `python -m differential.run 1000 [seed]`.
"""

import collections
import sys
import traceback
import warnings

from differential.cases import cases
from differential.oracles import Refused, as_lines, run_case
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.core import Phase
from hypothesis.database import InMemoryExampleDatabase


def judged(case):
    """What became of a case: `right`, `refused`, or an error's first line."""
    try:
        run_case(case)
    except Refused as refusal:
        return "refused", str(refusal)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {lines[0][:150]}", (
            f"{where.filename}:{where.lineno}; " + " | ".join(lines[:6])[:400]
        )
    return "right", ""


def draw_and_judge(number, start):
    """Draw cases, judge each, and count the results by oracle."""
    counts, failures = collections.Counter(), {}

    @seed(start)
    @settings(
        max_examples=number,
        deadline=None,
        database=InMemoryExampleDatabase(),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def run(case):
        result, details = judged(case)
        kind = result if result in ("right", "refused") else "wrong"
        counts[case.oracle, kind] += 1
        if kind == "wrong":
            failures.setdefault((case.oracle, result), []).append((case, details))
        if sum(counts.values()) % 50 == 0:
            print(f"{sum(counts.values())} of {number} cases", flush=True)

    run()
    return counts, failures


def main():
    """Print the counts, and the first case of each kind of failure."""
    warnings.simplefilter("ignore")
    number, start = int(sys.argv[1]), int((sys.argv[2:] or [1])[0])
    counts, failures = draw_and_judge(number, start)
    for (oracle, kind), count in sorted(counts.items()):
        print(f"{oracle:22} {kind:8} {count}")
    for (oracle, error), found in failures.items():
        print(f"\n{oracle}: {error} ({len(found)} cases)\n{found[0][1]}")
        print("\n".join(as_lines(case) for case, _ in found[:2]))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
