"""Run many drawn cases on one backend, and count what each oracle says.

Run from the folder `tests`: `python -m differential.run 1000 1`. TensorFlow keeps
25 MB of each case: draw 500 at a time.
"""

import argparse
import collections
import os
import sys
import traceback
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

from common.command_line import COMPILE_FAST

# A program runs a few times: XLA would optimize it for seconds, which is most of the
# time of a case.
os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)

from differential.cases import cases
from differential.oracles import Refused, as_lines, run_case
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.core import Phase
from hypothesis.database import InMemoryExampleDatabase


def judged(case):
    """The result of a case: `right`, `refused`, or an error's first line."""
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
            print(f"{case.oracle}: {result}", flush=True)
        if sum(counts.values()) % 50 == 0:
            print(f"{sum(counts.values())} of {number} cases", flush=True)

    run()
    return counts, failures


def main():
    """Print the counts, and the first cases of each kind of failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, failures = draw_and_judge(arguments.number, arguments.seed)
    for (oracle, kind), count in sorted(counts.items()):
        print(f"{oracle:22} {kind:8} {count}")
    print(f"{sum(counts.values())} cases")
    for (oracle, error), found in failures.items():
        print(f"\n{oracle}: {error} ({len(found)} cases)\n{found[0][1]}")
        print("\n".join(as_lines(case) for case, _ in found[:2]))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
