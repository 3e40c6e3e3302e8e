"""The software and the machine of a run."""

import datetime as dt
import importlib.metadata
import os
import platform
import re

import keras
import numpy as np

import dselectk_keras


def environment():
    """The versions, the machine and the day, which are saved with a result."""
    backend = keras.backend.backend()
    return {
        "dselectk_keras": dselectk_keras.__version__,
        "keras": keras.__version__,
        "backend": backend,
        "backend_version": importlib.metadata.version(backend),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": device(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def device():
    """The name of the accelerator, or the number of CPU cores."""
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
            details = tf.config.experimental.get_device_details(gpu)
            return details.get("device_name", gpu.name)
    cores = num_cores()
    noun = "core" if cores == 1 else "cores"
    return f"{cores} CPU {noun} ({platform.machine()})"


def file_name(kind, about):
    """The name of a file of results of a device and a backend, by `environment`."""
    name = "cpu" if "CPU" in about["device"] else about["device"].lower()
    name = re.sub(r"\W+", "-", name)
    return f"{kind}_{name}_{about['backend']}.json"


def num_cores():
    """The number of cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Not on every system.
    return len(allowed(0)) if allowed else os.cpu_count() or 1
