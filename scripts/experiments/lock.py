"""Files that one process at a time changes."""

import contextlib
import os
import pathlib


@contextlib.contextmanager
def locked(path):
    """Let only one process at a time change the file at `path`.

    A lock ends with its process, even with one that is killed. Windows has none of
    this kind: there, nothing is locked.

    Args:
        path: The path of the file. The lock is a file beside it.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with locked(path), locked(path):  # As by another process.
        ...     pass
        Traceback (most recent call last):
        RuntimeError: Another process writes ...
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
