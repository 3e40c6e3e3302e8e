"""Files that are written whole, by one process at a time."""

import contextlib
import json
import os
import pathlib
from typing import Any


def write_whole(path: Any, text: str) -> None:
    """Write a file; after a crash there is the old file or the new one."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # On the disk, before it has the name.
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Any, content: Any) -> None:
    """Write JSON with one number a line, whole."""
    write_whole(path, json.dumps(content, indent=1) + "\n")


def damaged(path: Any, reason: Any) -> ValueError:
    """Make the error for a damaged file, or one that these scripts did not write."""
    return ValueError(
        f"The file {path} is damaged or was not written by this program: {reason}. "
        "Restore it from a copy, or remove it."
    )


@contextlib.contextmanager
def locked(path):
    """Let only one process at a time change the file at `path`, by a file beside it.

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
