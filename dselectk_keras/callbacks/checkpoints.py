"""Save a training after each epoch, and resume it."""

import functools
import json
import os
import pathlib
import random
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import begin_at_epoch
from dselectk_keras.archive import read_arrays, write_arrays
from dselectk_keras.callbacks._group import CallbackGroup

KEPT = 2
ARRAY = "__array__"  # Stands for an array in JSON.
EVENTS = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]


class Checkpoints(CallbackGroup):
    """Saves a training after each epoch, so that it can be killed and resumed.

    If the folder has checkpoints, `fit` goes on after the last epoch that was saved.
    The result is that of a training without an interruption, bit for bit: the weights,
    the optimizer, step counters and schedules, the decisions of the gates, the random
    numbers of gates and dropout, and the state of the callbacks, such as the records of
    `GateRecorder` and the best weights of `EarlyStopping`.

    A checkpoint is written to a new file, flushed to the disk and renamed, and has a
    checksum. The last two are kept. If the last one is damaged, the one before is
    used.

    The order of the data is not saved. Data that are shuffled must begin with `epoch`,
    as `Batches(..., epoch=checkpoints.epoch)` does.

    Args:
        folder: The folder of the checkpoints. It is for one training only.
        callbacks: The other callbacks of the training, in their order. `Checkpoints`
            calls them and saves their state (see "Reliability" for callbacks of your
            own).

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> x, y = np.ones((8, 3)), np.ones((8, 2))
        >>> for epochs in (2, 5):  # The second training goes on after epoch 2.
        ...     model = build_multitask_model(3, 2, gate=DSelectKGate(2))
        ...     model.compile("adam")
        ...     recorder = GateRecorder(every=1, unit="epochs")
        ...     checkpoints = Checkpoints(folder, [recorder])
        ...     log = model.fit(
        ...         x, y, epochs=epochs, verbose=0, callbacks=[checkpoints]
        ...     )
        >>> recorder.history.steps.tolist(), len(checkpoints.history["loss"])
        ([0, 1, 2, 3, 4, 5], 5)
    """

    def __init__(self, folder: Any, callbacks: Iterable[Any] = ()):
        super().__init__(callbacks)
        if not isinstance(folder, (str, os.PathLike)):
            raise ValueError(f"`folder` must be a path. Received: folder={folder!r}.")
        self.folder = pathlib.Path(folder)
        self.history: dict[str, list[float]] = {}
        for event in EVENTS:
            # Keras is slower if there is a callback at the end of each step.
            if event not in vars(Checkpoints) and any(
                _listens(callback, event) for callback in self.callbacks
            ):
                setattr(self, event, functools.partial(self.pass_on, event))

    @property
    def epoch(self) -> int:
        """The number of epochs that are done, by the last checkpoint in the folder."""
        found = self._newest()
        return 0 if found is None else found[1]["epoch"]

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the last checkpoint, if there is one."""
        self.pass_on("on_train_begin", logs)
        self.history = {}
        found = self._newest()
        if found is None:
            return
        path, state, arrays = found
        self.set_state(state["callbacks"])
        self.history = state["history"]
        _assign(path, _variables(self.model), arrays)
        stopped = state["stopped"] and self.params["epochs"]
        begin_at_epoch(self.model, stopped or state["epoch"])
        _set_random_state(state["random"])
        if self.params.get("verbose"):
            print(  # noqa: T201
                f"Resumed from {path}: {state['epoch']} of {self.params['epochs']} "
                f"epochs are done{', and training was stopped' if stopped else ''}."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Pass the beginning of an epoch on."""
        # Another `fit` of this model begins with its first epoch.
        begin_at_epoch(self.model, None)
        self.pass_on("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save a checkpoint, after the other callbacks."""
        self.pass_on("on_epoch_end", epoch, logs)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        state = {
            "epoch": epoch + 1,
            "stopped": bool(self.model.stop_training),
            "history": self.history,
            "callbacks": self.get_state(),
            "random": _random_state(),
        }
        arrays = [_to_numpy(variable) for variable in _variables(self.model)]
        num_variables = len(arrays)
        text = json.dumps({**_pack(state, arrays), "num_variables": num_variables})
        write_arrays(
            self.folder / f"epoch_{epoch + 1:06d}.npz",
            {
                "state": np.frombuffer(text.encode(), "uint8"),
                **{f"array_{i}": array for i, array in enumerate(arrays)},
            },
        )
        for path in self._paths()[KEPT:]:
            path.unlink()

    def on_train_end(self, logs: Any = None) -> None:
        """Pass the end on."""
        begin_at_epoch(self.model, None)
        self.pass_on("on_train_end", logs)

    def _paths(self):
        """The checkpoints in the folder, the last one first."""
        return sorted(self.folder.glob("epoch_*.npz"), reverse=True)

    def _newest(self):
        """Read the last checkpoint that is not damaged, or `None` if there is none."""
        errors = []
        for path in self._paths():
            try:
                arrays = read_arrays(path)
                state = json.loads(arrays.pop("state").tobytes())
            except ValueError as error:
                errors.append(str(error))
                continue
            for error in errors:
                warnings.warn(f"{error} Using {path}.", stacklevel=3)
            values = [arrays[f"array_{i}"] for i in range(len(arrays))]
            return path, _unpack(state, values), values[: state["num_variables"]]
        if errors:
            raise ValueError(" ".join(errors))
        return None


def _listens(callback, event):
    """Whether a callback has a method of its own for an event."""
    own = getattr(getattr(callback, event), "__func__", None)
    return own is not getattr(keras.callbacks.Callback, event)


def _variables(model):
    """All that training changes, the state of random numbers included."""
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return [*model.variables, *optimizer.variables]


def _to_numpy(variable):
    array = ops.convert_to_numpy(variable)
    # NumPy writes no bfloat16, and float32 has all its values.
    return array.astype("float32") if array.dtype.kind == "V" else array


def _assign(path, variables, arrays):
    own = [tuple(variable.shape) for variable in variables]
    saved = [array.shape for array in arrays]
    if own != saved:
        raise ValueError(
            f"{path} is a checkpoint of another model or optimizer: it has "
            f"{len(saved)} variables of shapes {saved}. Received: a model with "
            f"{len(own)} of shapes {own}. Build the same model, or use another folder."
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _random_state():
    """The state of the generators that Keras and its backends share in a process."""
    # On torch, dropout without a seed draws from torch's own generator.
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
    }
    if keras.backend.backend() == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        state["torch"] = torch.get_rng_state().numpy()
        state["cuda"] = [each.numpy() for each in torch.cuda.get_rng_state_all()]
    return state


def _set_random_state(state):
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    if "torch" in state and keras.backend.backend() == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
        if len(state["cuda"]) == torch.cuda.device_count():
            generators = [torch.from_numpy(each.copy()) for each in state["cuda"]]
            torch.cuda.set_rng_state_all(generators)


def _pack(value: Any, arrays: list) -> Any:
    """Convert a state for JSON, with its arrays moved to the end of a list."""
    if isinstance(value, dict):
        return {key: _pack(each, arrays) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(each, arrays) for each in value]
    if isinstance(value, (np.generic, np.ndarray)):
        arrays.append(np.asarray(value))
        return {ARRAY: len(arrays) - 1}
    return value


def _unpack(value: Any, arrays: list) -> Any:
    """Put the arrays of a state back to where they were."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return arrays[value[ARRAY]]
        return {key: _unpack(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [_unpack(each, arrays) for each in value]
    return value
