"""The folder of a run: new, finished, or unfinished, with which settings."""

import pathlib

from common.files import read_json

RESULT = "metrics.json"
# Of an unfinished run.
CHECKPOINTS, CONFIG = "checkpoints", "config.json"


def prepare_folder(out, config, overwrite=False, resume=False, result=RESULT):
    """Make the output folder, and check that it can be written to, before any work.

    The file `result`, which is written last, has the `"config"` and the metrics.

    Returns:
        The path, and the metrics of the finished run that `resume` has found, or None.
    """
    if overwrite and resume:
        raise ValueError(
            "A run is resumed or overwritten. Received: resume=True, overwrite=True."
        )
    out, finished = pathlib.Path(out), None
    states = {"finished": out / result, "unfinished": out / CHECKPOINTS / CONFIG}
    state = next((each for each, path in states.items() if path.exists()), None)
    if state and not overwrite:
        kept = read_json(states[state])
        if not resume:
            raise FileExistsError(
                f"{out} holds a run that is {state}. Choose another folder, resume it "
                "(--resume), or overwrite it (--overwrite)."
            )
        finished = kept if state == "finished" else None
        kept = kept.get("config", {}) if finished else kept
        if differs := differing(kept, config):
            raise ValueError(
                f"{out} holds a run with other settings: {', '.join(differs)} differ. "
                "Resume it with its own, or choose another folder."
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".writable").touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise OSError(
            f"The output folder {out} cannot be written to: {error}. Choose another."
        ) from error
    return out, finished


def differing(config, other):
    """The sorted names of the entries in which two configs differ."""
    names = config | other
    return sorted(name for name in names if config.get(name) != other.get(name))
