"""How much memory there is."""

import os
import pathlib

CGROUP = pathlib.Path("/sys/fs/cgroup")


def free_memory(device=None):
    """The bytes that can still be had.

    Args:
        device: A JAX device; `None` is the host.

    Returns:
        A number of bytes, or `None` where nothing tells.
    """
    stats = device.memory_stats() if device is not None else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES")
        free = [pages * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):  # Not on every system.
        return None
    try:
        # Pages that hold cached files can be had as well.
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        table = dict(line.split(":") for line in lines)
        free = [int(table["MemAvailable"].split()[0]) * 1024]
        limit, used = (
            (CGROUP / name).read_text(encoding="utf-8")
            for name in ("memory.max", "memory.current")
        )
        free.append(int(limit) - int(used))
    except (OSError, KeyError, ValueError):  # No such files, or no limit.
        pass
    return min(free)


def check_memory(needed, limit, what):
    """Refuse to begin what does not fit.

    Args:
        needed: A number of bytes.
        limit: How many there are; `None` is unknown.
        what: What needs them.
    """
    if limit is not None and needed > limit:
        raise MemoryError(
            f"{what} need about {in_words(needed)} of memory. Received: "
            f"{in_words(limit)} free, or allowed by `memory_limit`. Train fewer copies "
            "at a call, or a smaller model, batch or data set."
        )


def in_words(num_bytes):
    """A number of bytes as people say it.

    Args:
        num_bytes: The number.
    """
    return (
        f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
    )
