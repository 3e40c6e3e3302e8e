"""The results of the comparison: run what is missing, and keep it in a file."""

import math
import pathlib
from typing import Any

import keras

from experiments.environment import environment
from experiments.files import numbers, read_json, to_json, write_whole
from gate_comparison.arms import ARMS, KNOWN
from gate_comparison.comparison import compare, suits

NAME = "gatebench.json"
COMMITTED = pathlib.Path(__file__).parents[2] / "docs" / "gatebench"


def run(problems, draws, data_dir, folder, command, own=None):
    """Run all arms on all draws of problems, except those that the file has.

    A user's gates are run anew. Beside them, a new folder has the committed results of
    the other arms.

    Args:
        problems: A dict of `Problem`, by name.
        draws: The number of draws.
        data_dir: The folder of the real data.
        folder: The folder of the results.
        command: The command, which is written into the file.
        own: A dict of more arms, the user's gates.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    backend = keras.backend.backend()
    arms = {**(own or {}), **ARMS}
    kept: dict[str, Any] = {"epochs": {}, "rows": []}
    if (folder / NAME).exists():
        kept = read(folder)
    elif own:
        kept = _committed(problems, draws)
    epochs = kept["epochs"]
    rows = [row for row in kept["rows"] if row["arm"] not in (own or {})]
    for name, problem in problems.items():
        if epochs.setdefault(name, problem.epochs) != problem.epochs:
            raise SystemExit(
                f"{folder / NAME} has results of {name!r} after {epochs[name]} epochs. "
                f"Received: {problem.epochs} epochs. Pass another --out, or the same "
                "--epochs."
            )
        ran_on = kept.get("environment", {}).get("backend", backend)
        if ran_on != backend:
            raise SystemExit(
                f"{folder / NAME} has results of the backend {ran_on}. Received: "
                f"{backend}. Pass another --out, or the same --backend."
            )
        same = [row for row in rows if row["problem"] == name]
        lacking = _lacking(problem, same, draws, arms)
        if not lacking:
            continue
        for names, left in lacking.items():
            print(f"{name}: draws {', '.join(map(str, left))}", flush=True)
            found = compare(problem, left, data_dir, {arm: arms[arm] for arm in names})
            rows += [{"problem": name, **_rounded(row)} for row in found]
        header = {"command": command, "environment": environment(), "epochs": epochs}
        lines = ",\n".join(map(to_json, rows))
        text = f'{to_json(header)[:-1]}, "rows": [\n{lines}\n]}}\n'
        write_whole(folder / NAME, text)


def _committed(problems, draws):
    """The committed results of some draws of problems, if they have the same epochs."""
    found: Any = read(COMMITTED)
    same = {
        name: problem.epochs
        for name, problem in problems.items()
        if found["epochs"].get(name) == problem.epochs
    }
    rows = [
        row for row in found["rows"] if row["problem"] in same and row["draw"] < draws
    ]
    return {"epochs": same, "rows": rows}


def _lacking(problem, rows, draws, arms=ARMS):
    """The arms that draws of a problem lack: a dict from tuples of arms to draws."""
    done = {(row["arm"], row["draw"]) for row in rows}
    # A problem without groups has no rows of known groups.
    has_groups = not done or any(arm == KNOWN for arm, _ in done)
    suited = [arm for arm in arms if suits(arm, problem, has_groups)]
    found = {}
    for draw in range(min(draws, problem.draws)):
        if arms := tuple(arm for arm in suited if (arm, draw) not in done):
            found.setdefault(arms, []).append(draw)
    return found


def read(folder):
    """Read the file of results: a dict of the header and `rows`."""
    found = read_json(pathlib.Path(folder) / NAME)
    return found | {"rows": list(map(restored, found["rows"]))}


def restored(row):
    """A row of a file, with infinity for the errors that JSON does not have."""
    known = {"validation", "test", "untuned", "choices"} & row.keys()
    return row | {name: numbers(row[name], math.inf) for name in known}


def _rounded(row):
    return {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in row.items()
    }
