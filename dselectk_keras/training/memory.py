"""Free memory, and checks against it."""

import math
import pathlib

CGROUP = pathlib.Path("/sys/fs/cgroup")


def free_memory(device=None):
    """The free bytes of a JAX device, or of the host for `None`; inf if unknown."""
    stats = device.memory_stats() if device is not None else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        table = dict(line.split(":") for line in lines)
        free = int(table["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # Not on every system.
        return math.inf
    try:
        limit, used = (
            int((CGROUP / name).read_text(encoding="utf-8"))
            for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # No such files, or no limit.
        return free
    return min(free, limit - used)


def check_memory(needed, limit, what):
    """Raise an error if more bytes are needed than a limit."""
    if needed > limit:
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
