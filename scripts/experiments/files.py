"""Files that are written whole."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[BinaryIO]:
    """Open a new file, which replaces the one at `path` when it is complete.

    The content is written to another file, flushed to the disk and renamed. After a
    crash there is either the old file or the new one.

    Args:
        path: The path of the file. Its folder is created if needed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with replacing(path) as file:
        ...     _ = file.write(b"1 2 3")
        >>> path.read_text()
        '1 2 3'
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if os.name == "posix":  # Flush the new name, too.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def damaged(path: Any, reason: Any) -> ValueError:
    """Make the error for a damaged file, or one that these scripts did not write."""
    return ValueError(
        f"The file {path} is damaged or was not written by this program: {reason}. "
        "Restore it from a copy, or remove it."
    )
