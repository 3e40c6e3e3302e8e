"""The results of the comparison: run what is missing, and keep it in a file."""

import json
import pathlib

from experiments.environment import environment
from gate_comparison.comparison import compare

NAME = "gatebench.json"


def run(problems, draws, data_dir, folder, command):
    """Run all problems on all draws, except those that the file has.

    Args:
        problems: A dict of `Problem`, by name.
        draws: The number of draws.
        data_dir: The folder of the real data.
        folder: The folder of the results.
        command: The command, which is written into the file.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, problem in problems.items():
        rows = read(folder)["rows"] if (folder / NAME).exists() else []
        done = {row["draw"] for row in rows if row["problem"] == name}
        left = [draw for draw in range(draws) if draw not in done]
        if not left:
            continue
        print(f"{name}: draws {', '.join(map(str, left))}", flush=True)
        found = compare(problem, left, data_dir)
        rows += [{"problem": name, **_rounded(row)} for row in found]
        header = {"command": command, "environment": environment()}
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = f'{json.dumps(header)[:-1]}, "rows": [\n{lines}\n]}}\n'
        (folder / NAME).write_text(text, encoding="utf-8")


def read(folder):
    """Read the file of results: a dict with `command`, `environment` and `rows`."""
    return json.loads((pathlib.Path(folder) / NAME).read_text(encoding="utf-8"))


def _rounded(row):
    return {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in row.items()
    }
