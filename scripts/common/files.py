"""Files that are written whole, by one process at a time."""

import contextlib
import json
import math
import os
import pathlib
from typing import Any


@contextlib.contextmanager
def whole(path: Any):
    """Give a path to write to; after a crash there is the old file or the new one."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keras looks at the ends of names.
    part = path.with_name(f"part_{path.name}")
    try:
        yield part
        flush(part)  # On the disk, before it has the name.
        part.replace(path)
        flush(path.parent)  # And its name, too.
    finally:
        part.unlink(missing_ok=True)


def flush(path):
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name != "posix" and path.is_dir():
        return  # Windows opens no folders.
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_whole(path: Any, text: str) -> None:
    """Write a text file, whole."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Any, content: Any) -> None:
    """Write JSON with one number a line, whole."""
    write_whole(path, to_json(content, indent=1) + "\n")


def read_json(path: Any) -> dict[str, Any]:
    """Read a file with a JSON object."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(content, dict):
        raise damaged(path, "not a JSON object")
    return content


def to_json(content: Any, **options: Any) -> str:
    """Convert to JSON, which has no NaN and no infinity: they become null."""

    def finite(value):
        if isinstance(value, dict):
            return {name: finite(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(each) for each in value]
        is_lost = isinstance(value, float) and not math.isfinite(value)
        return None if is_lost else value

    return json.dumps(finite(content), allow_nan=False, **options)


def numbers(content: Any, lost: float = math.nan) -> Any:
    """The content of a file of numbers, with `lost` for each null."""
    if isinstance(content, dict):
        return {name: numbers(each, lost) for name, each in content.items()}
    if isinstance(content, list):
        return [numbers(each, lost) for each in content]
    return lost if content is None else content


def damaged(path: Any, reason: Any) -> ValueError:
    """Make the error for a damaged file, or one that these scripts did not write."""
    return ValueError(
        f"The file {path} is damaged or was not written by this program: {reason}. "
        "Restore it from a copy, or remove it."
    )


@contextlib.contextmanager
def locked(path):
    """Lock the file at `path` for one process at a time, by a file beside it.

    A lock ends with its process, even with one that is killed. Windows has none of
    this kind: there, nothing is locked.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    lock = pathlib.Path(f"{path}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The other process may have removed the file that it had locked.
            taken = not os.fstat(file.fileno()).st_nlink
        except BlockingIOError:
            taken = True
        if taken:
            raise RuntimeError(
                f"Another process writes {path}. Wait until it has ended, or use "
                "another folder."
            )
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
