"""One part of the benchmark, in a process of its own."""

import keras

from benchmarks.forms import forms_of
from benchmarks.measure import check_forms, measure
from benchmarks.memory import memory_growth, peak_memory, program_memory
from benchmarks.others import OTHERS, measure_other
from benchmarks.replicated import SHAPES, measure_replicate
from benchmarks.workload import WORKLOADS
from experiments import environment

ROUNDS = 5


def parts(backend, workloads, quick=False, memory=True):
    """What is run for a backend: one process each.

    Args:
        backend: Name of the backend.
        workloads: Names of workloads.
        quick: Whether only to see that all forms compute the same.
        memory: Whether to measure the peaks of memory.

    Returns:
        A list of tuples of strings.
    """
    if quick:
        return [("check", *workloads)]
    found = []
    for name in workloads:
        found.append(("workload", name))
        forms = forms_of(WORKLOADS[name]) if memory else []
        found += [("memory", name, form) for form in forms]
    if backend == "jax" and set(workloads) == set(WORKLOADS):
        found += [("replicate", name) for name in SHAPES]
    return found


def other_parts(backend, workloads, paths):
    """What is run to compare the package with other people's code.

    Args:
        backend: Name of the backend.
        workloads: Names of workloads.
        paths: Where the code lies, by name in `OTHERS`.

    Returns:
        A list of tuples of strings.
    """
    return [
        ("other", name, str(path), workload)
        for name, path in paths.items()
        for own_backend, possible in [OTHERS[name]]
        for workload in workloads
        if backend == own_backend and workload in possible
    ]


def run_part(kind, *names, progress=lambda _: None):
    """Run one part.

    Args:
        kind: `"check"`, `"workload"`, `"memory"`, `"growth"`, `"replicate"` or
            `"other"`.
        *names: Of workloads to check; else of the workload, or of the shape; and of
            the form whose memory is measured. For `"other"`: the name of the code, its
            path, and the workload.
        progress: Called with a text before each step.

    Returns:
        A dict.
    """
    if kind == "check":
        # Some workloads are the same when they are small.
        small = {WORKLOADS[name].small(): name for name in reversed(names)}
        return {name: check_forms(workload) for workload, name in small.items()}
    if kind == "growth":
        return {"bytes_per_1000_steps": memory_growth()}
    if kind == "replicate":
        return measure_replicate(*names, progress=progress)
    if kind == "other":
        name, path, workload = names
        return measure_other(name, path, workload, ROUNDS, progress)
    workload = WORKLOADS[names[0]]
    if kind == "memory":
        found: dict = {"peak_bytes": peak_memory(workload, names[1])}
        if keras.backend.backend() == "jax":
            found["program"] = program_memory(workload, names[1])
        return found
    progress("compare the forms")
    return {
        "title": workload.title,
        "differences": check_forms(workload),
        **measure(workload, ROUNDS, progress),
    }


def gather(found, command):
    """All that the parts of a backend gave, as it is kept.

    Args:
        found: A dict of what the parts gave, by their tuples.
        command: The command, to be kept as well.

    Returns:
        A dict.
    """
    workloads = {part[1]: dict(v) for part, v in found.items() if part[0] == "workload"}
    for (kind, name, *form), result in found.items():
        if kind != "memory":
            continue
        own = workloads[name]["forms"][form[0]]
        own.update(result)
        own["peak_mb"] = (result["peak_bytes"] or 0) / 1e6 or None
    for workload in workloads.values():
        for own in workload.get("forms", {}).values():
            own["first_seconds"] = sum(
                own[f"{name}_seconds"]
                for name in ("build", "first_predict", "first_fit")
            )
    around = {**environment(), "command": command}
    for workload in workloads.values():
        workload["about"] = around
    replicate = {
        ", ".join(part[1:]): result
        for part, result in found.items()
        if part[0] == "replicate"
    }
    others = {
        f"{part[3]}, {part[1]}": {"about": around, "forms": result}
        for part, result in found.items()
        if part[0] == "other"
    }
    return {
        "about": around,
        "workloads": workloads,
        "replicate": replicate,
        "others": others,
    }


def merge(kept, new):
    """What was kept, with what has been measured anew in its place.

    Args:
        kept: A dict that `gather` gave earlier.
        new: A dict that it gave now, maybe of fewer workloads or without memory.

    Returns:
        A dict.
    """
    merged = {**kept, **new}
    for name in ("replicate", "others"):
        merged[name] = kept.get(name, {}) | new.get(name, {})
    merged["workloads"] = dict(kept["workloads"])
    for name, workload in new["workloads"].items():
        earlier = kept["workloads"].get(name, {"forms": {}})
        forms = {
            form: earlier["forms"].get(form, {}) | numbers
            for form, numbers in workload["forms"].items()
        }
        merged["workloads"][name] = {**earlier, **workload, "forms": forms}
    return merged
