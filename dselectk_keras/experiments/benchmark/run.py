"""One part of the benchmark, in a process of its own."""

import datetime as dt
import importlib.metadata
import os
import platform

import keras

from dselectk_keras.experiments.benchmark.forms import forms_of
from dselectk_keras.experiments.benchmark.measure import check_forms, measure
from dselectk_keras.experiments.benchmark.memory import peak_memory, program_memory
from dselectk_keras.experiments.benchmark.replicated import SHAPES, measure_replicate
from dselectk_keras.experiments.benchmark.workload import WORKLOADS

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


def run_part(kind, *names, progress=lambda _: None):
    """Run one part.

    Args:
        kind: `"check"`, `"workload"`, `"memory"` or `"replicate"`.
        *names: Of workloads to check; else of the workload, or of the shape; and of
            the form whose memory is measured.
        progress: Called with a text before each step.

    Returns:
        A dict.
    """
    if kind == "check":
        return {name: check_forms(WORKLOADS[name].small()) for name in names}
    if kind == "replicate":
        return measure_replicate(*names, progress=progress)
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
    replicate = {part[1]: v for part, v in found.items() if part[0] == "replicate"}
    return {
        "about": {**about(), "command": command},
        "workloads": workloads,
        "replicate": replicate,
    }


def about():
    """What it was run with, and on."""
    backend = keras.backend.backend()
    return {
        "backend": backend,
        "backend_version": importlib.metadata.version(backend),
        "keras": keras.__version__,
        "python": platform.python_version(),
        "device": device(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def device():
    """What computes: the name of an accelerator, or the number of cores."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax  # pyright: ignore[reportMissingImports]

        first = jax.devices()[0]
        if first.platform != "cpu":
            return first.device_kind
    if backend == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    if backend == "tensorflow":
        import tensorflow as tf

        for gpu in tf.config.list_physical_devices("GPU"):
            return tf.config.experimental.get_device_details(gpu)["device_name"]
    return f"{os.cpu_count()} CPU cores ({platform.machine()})"
