"""Times of calls, taken in turns, so that a slow phase of the machine affects all."""

import statistics
import time


def medians_in_turns(calls, turns):
    """The median seconds of each of some functions; a first turn compiles."""
    times = [[] for _ in calls]
    for _ in range(turns + 1):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken[1:]) for taken in times]
