"""Free memory, and checks against it."""

import os
import pathlib

CGROUP = pathlib.Path("/sys/fs/cgroup")


def free_memory(device=None):
    """The free bytes of a JAX device, or of the host for `None`; `None` if unknown."""
    stats = device.memory_stats() if device is not None else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES")
        free = [pages * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):  # Not on every system.
        return None
    try:
        # Pages that hold cached files are available too.
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
    """Raise an error if more bytes are needed than a limit, if that is known."""
    if limit is not None and needed > limit:
        raise MemoryError(
            f"{what} need about {format_bytes(needed)} of memory. Received: "
            f"{format_bytes(limit)} free, or allowed by `memory_limit`. Train fewer "
            "copies per call, or use a smaller model, batch or data set."
        )


def format_bytes(num_bytes):
    """A number of bytes in MB or GB."""
    return (
        f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
    )
