"""Files that are written whole, and read back unaltered or not at all."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

DIGEST = 64  # The length of a SHA-256 in hexadecimal digits.
CHUNK = 1 << 20


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


def write_arrays(path: Any, arrays: Mapping[str, np.ndarray], compress=False) -> None:
    """Write arrays by name to an `.npz` file that ends with a checksum.

    The checksum is the comment of the archive, so that NumPy reads the file as well.
    """
    with replacing(path) as file:
        save: Any = np.savez_compressed if compress else np.savez
        save(file, **arrays)
        # The last two bytes of an archive are the length of its comment.
        file.seek(-2, os.SEEK_END)
        file.write(DIGEST.to_bytes(2, "little"))
        file.write(_digest(file, file.tell()))


def read_arrays(path: Any) -> dict[str, np.ndarray]:
    """Read the arrays of a file of `write_arrays`, or raise an error that names it."""
    with pathlib.Path(path).open("rb") as file:
        size = max(file.seek(0, os.SEEK_END) - DIGEST, 0)
        digest = _digest(file, size)
        if file.read() != digest:
            raise damaged(path, "its checksum is missing or differs from its content")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # Damaged content raises errors of many kinds.
            raise damaged(path, error) from error


def damaged(path: Any, reason: Any) -> ValueError:
    """Make the error for a damaged file, or one that the package did not write."""
    return ValueError(
        f"The file {path} is damaged or was not written by this package: {reason}. "
        "Restore it from a copy, or remove it."
    )


def _digest(file, size):
    """Compute the SHA-256 of the first bytes of a file, and stop behind them."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(size, CHUNK))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest().encode()
