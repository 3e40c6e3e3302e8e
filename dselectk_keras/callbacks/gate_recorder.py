"""Record the gates of a model while it trains."""

import math
import os
import warnings
from typing import Any

import keras
import numpy as np

from dselectk_keras._keras import all_layers, calls_by_layer
from dselectk_keras.callbacks.gate_history import GateHistory, with_suffix
from dselectk_keras.gates import Gate
from dselectk_keras.gates.selector_gate import SelectorGate, print_undecided
from dselectk_keras.layers.gated_experts import GatedExperts
from dselectk_keras.utils import check_choice, check_count


class GateRecorder(keras.callbacks.Callback):
    """Records all gates of a model during training, in `history`.

    The callback records before training, if the model is built, every `every` steps or
    epochs, and at the end. `GateHistory` lists the quantities, and the steps at which
    gates decided. A selector of DSelect-k may choose a binary code that belongs to no
    expert. It then has no gradient, and the callback warns.

    At the end of each epoch it adds two numbers to the logs, means over all gates:
    `experts`, the number of experts per example whose weight is not 0, and, if gates
    have selectors, `binary`, the share of selectors that are binary. The progress bar,
    the result of `fit` and the callbacks after this one, such as
    `keras.callbacks.TensorBoard`, have them.

    With a `path`, a training that `keras.callbacks.BackupAndRestore` resumes goes on
    with the records in the file. Put the recorder before it in the list of callbacks,
    so that the file has each epoch that is backed up.

    Args:
        every: The number of steps, or epochs, between records.
        unit: `"steps"` or `"epochs"`.
        probe: For per-example gates: a batch of the model's inputs, of a few hundred
            examples. For each record the model is evaluated on this batch.
        path: A file for the history, written after each epoch; `None` writes none. A
            training that begins with its first epoch replaces it.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.ones((8, 2))
        >>> recorder = GateRecorder(every=1, unit="epochs")
        >>> log = model.fit(x, y, epochs=3, verbose=0, callbacks=[recorder])
        >>> recorder.history["mmoe"]["weights"].shape
        (4, 2, 8)
        >>> len(log.history["binary"]), len(log.history["experts"])
        (3, 3)
    """

    def __init__(
        self,
        every: int = 100,
        unit: str = "steps",
        probe: Any = None,
        path: Any = None,
    ):
        super().__init__()
        check_count("every", every)
        check_choice("unit", unit, ("steps", "epochs"))
        arrays = keras.tree.flatten(probe)
        if probe is not None and not (
            arrays and all(getattr(array, "shape", ()) for array in arrays)
        ):
            raise ValueError(
                "`probe` must be a batch of the model's inputs, as arrays. "
                f"Received: probe={probe!r}."
            )
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"`path` must be a path. Received: path={path!r}.")
        self.every = every
        self.unit = unit
        self.probe = probe
        self.path = path
        self.history = GateHistory()
        self._gates = None
        self._observe: Any = None
        self._warned = set()
        self._begins = False
        # Steps are counted from the first training with this callback on: the steps
        # that are done, those before this epoch, and the step of the next record.
        self._step = self._epoch_start = self._next = self._updated = 0
        self._last_batch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Find the gates."""
        # Another training may have another model, such as a condensed one.
        self._gates, self._observe = _gates(self.model), None
        if not self._gates:
            raise ValueError(
                "The model has no gates to record. Add a layer such as `MMoE`, `MoE` "
                "or `DSelectKGate`."
            )
        self._begins = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """In the first epoch, record the initial state or go on with the file."""
        # By now, `BackupAndRestore` has restored the model.
        if self._begins:
            self._begin(epoch)

    # Not `on_train_batch_end`: with it, Keras copies the logs of every step to the
    # host, and the device waits.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Record the result of the last step, if a record is due."""
        self._last_batch, self._step = batch, self._epoch_start + batch
        if self.unit == "steps" and self._step >= self._next:
            self._record(self._observed())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Record, if a record is due, and add `binary` and `experts` to the logs."""
        # A last execution may have fewer steps. If the data have no length, Keras has
        # begun another one, and found no batch.
        steps = (self.params or {}).get("steps") or self._updates() - self._updated
        last = self._step + getattr(self.model, "steps_per_execution", 1)
        if self._last_batch is None:
            last = math.inf  # `replicate` has run the epoch as one program.
        self._step = max(self._step, min(last, self._epoch_start + steps))
        self._last_batch = None
        self._updated = self._updates()
        self._epoch_start = self.history.epoch_ends[epoch] = self._step
        records = self._observed()
        if self.unit == "epochs" and (epoch + 1) % self.every == 0:
            self._record(records)
        self._note_decisions()
        if logs is not None:
            logs.update(_means(records))
        self._save()

    def on_train_end(self, logs: Any = None) -> None:
        """Record the final state, if the last step has no record yet."""
        if self._begins:  # There was no epoch left.
            self._begin(None)
        if self._step not in self.history.steps[-1:]:
            self._record(self._observed())
        self._save()
        if (self.params or {}).get("verbose"):
            print_undecided(self.model)

    def _begin(self, epoch):
        """Begin with an epoch; `None` if none is left."""
        self._begins = False
        if self.path is not None and epoch != 0 and not len(self.history.steps):
            self._read(with_suffix(self.path), epoch)
        elif epoch == 0:
            self.history.epoch_ends.clear()  # Those of another `fit`.
        self._epoch_start, self._updated = self._step, self._updates()
        self._next = self.every + (self.history.steps[-1:].sum() or self._step)
        built = all(gate.built for _, gate, _ in self._gates)
        if built and not len(self.history.steps):
            self._record(self._observed())

    def _read(self, path, epoch):
        """Go on with the records that a file has of the epochs before."""
        if not path.exists():
            return
        self.history = GateHistory.load(path)
        ends = self.history.epoch_ends
        done = max(ends, default=-1) + 1
        if epoch is not None and epoch > done:
            warnings.warn(
                f"Training goes on with epoch {epoch + 1}, and {path} has no records "
                f"after epoch {done}. Put `GateRecorder` before `BackupAndRestore` in "
                "the list of callbacks.",
                stacklevel=2,
            )
        # The process may have ended after it wrote the file and before the backup.
        done = done if epoch is None else min(done, epoch)
        self._step = ends.get(done - 1, 0)
        self.history.cut(self._step)

    def _updates(self):
        """The number of steps that the optimizer counts."""
        optimizer = self.model.optimizer
        # Under `tf.distribute`, `int` does not work on a variable.
        updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
        return updates * (optimizer.gradient_accumulation_steps or 1)

    def _save(self):
        if self.path is not None:
            self.history.save(self.path)

    def _observed(self):
        """Observe all gates: a dict of arrays by quantity, by layer name."""
        # On JAX, `self.model` first updates the variables of the model.
        model = self.model
        if self._observe is None:
            self._gates = _gates(model)
            self.history.tasks = {name: tasks for name, _, tasks in self._gates}
            for name, gate, _ in self._gates:
                if gate.per_example and self.probe is None:
                    raise ValueError(
                        f"The gates of {name!r} are per-example. Received: probe=None. "
                        "Set `probe` to a batch of inputs, on which they are recorded."
                    )
            self._observe = _compiled(model, self._gates, self.probe)
        reports = keras.tree.map_structure(keras.ops.convert_to_numpy, self._observe())
        return {name: _summarize(reports[name], gate) for name, gate, _ in self._gates}

    def _record(self, records):
        for name, _, tasks in self._gates:
            self._warn(name, tasks, records[name])
        self.history.append(self._step, records)
        self._next = self._step + self.every

    def _note_decisions(self):
        """Note in the history at which steps gates have decided."""
        calls = calls_by_layer(self.model)
        for name, gate, _ in self._gates:
            if not (isinstance(gate, SelectorGate) and gate.has_decided):
                continue
            # A gate counts a step for each of its calls.
            since = gate.steps_since_decision // max(1, calls[id(gate)])
            step, events = self._step - since, self.history.events[name]
            if step >= 0 and step not in [at for at, _ in events]:
                mass = gate.kept_mass
                kept = "" if mass is None else f", {100 * np.mean(mass):.0f} % kept"
                events.append((step, f"decided{kept}"))

    def _warn(self, layer, tasks, record):
        reachable = record.get("reachable")
        if reachable is None:
            return
        for task, selector in np.argwhere(reachable < 1e-3):
            if (layer, task, selector) not in self._warned:
                self._warned.add((layer, task, selector))
                warnings.warn(
                    f"Selector {selector} of task {tasks[task]!r} in {layer!r} has a "
                    "binary code that belongs to no expert. Its weight is lost, and it "
                    "has no gradient. Use unreachable='assign', or a number of experts "
                    "that is a power of two.",
                    stacklevel=2,
                )


def _gates(model):
    """List the gates of a model: name, gate, and the names of its tasks."""
    layers = all_layers(model)
    owners = {}
    for layer in layers:
        if isinstance(layer, GatedExperts):
            owners[id(layer.gate)] = layer.name, getattr(layer, "task_names", None)
            shared_gate = getattr(layer, "shared_gate", None)
            owners[id(shared_gate)] = f"{layer.name}_shared", ["shared"]
    found = []
    for gate in dict.fromkeys(layer for layer in layers if isinstance(layer, Gate)):
        name, tasks = owners.get(id(gate), (gate.name, None))
        if tasks is None:
            tasks = [f"gate_{i}" for i in range(gate.num_gates or 1)]
        elif gate.num_gates == 1:
            tasks = ["all tasks"]
        # Nested models may have layers of the same name.
        number = sum(each.split("#")[0] == name for each, _, _ in found)
        found.append((f"{name}#{number}" if number else name, gate, tasks))
    return found


def _reports(model, gates, probe):
    """Get the reports of each gate, one for each call in an evaluation of the model."""
    # A number of calls that is not known counts as one.
    calls = {key: max(1, number) for key, number in calls_by_layer(model).items()}
    if probe is None:
        return {name: [gate.report()] * calls[id(gate)] for name, gate, _ in gates}
    reports = {name: [] for name, _, _ in gates}
    for name, gate, _ in gates:
        gate.observer = reports[name].append
    try:
        model(probe, training=False)
    finally:
        for _, gate, _ in gates:
            gate.observer = None
    for name, gate, _ in gates:
        if not reports[name] and gate.per_example:
            raise ValueError(
                f"The gates of {name!r} are per-example, and the model does not call "
                "them on the `probe`. The probe must reach every gate."
            )
        reports[name] = reports[name] or [gate.report()] * calls[id(gate)]
    return reports


def _compiled(model, gates, probe):
    """Create a function that observes the gates; it is compiled, except on torch."""
    if probe is not None:
        probe = keras.tree.map_structure(keras.ops.convert_to_tensor, probe)

    def observe():
        # In a stateless scope, observing changes no variable.
        with keras.StatelessScope():
            return _reports(model, gates, probe)

    if keras.backend.backend() == "torch":
        return observe
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # A concrete function, because TensorFlow warns about functions created often.
        # As in Keras' own steps, there is no code for AutoGraph to convert.
        return tf.function(observe, autograph=False).get_concrete_function()
    import jax  # pyright: ignore[reportMissingImports]

    @jax.jit
    def compiled(values, probe):
        state = zip(model.variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(state)):
            return _reports(model, gates, probe)

    return lambda: compiled([v.value for v in model.variables], probe)


def _summarize(reports, gate):
    """Average a gate's calls, with a task axis and no batch axis; penalties add up."""

    def arrays(report):
        valid = report.get("valid", slice(None))

        def tidy(value):
            if gate.num_gates is None:
                value = np.expand_dims(value, int(gate.per_example))
            return value[valid].mean(axis=0) if gate.per_example else value

        weights = report["weights"]
        if getattr(gate, "num_before", None) is not None:
            # The experts of a condensed gate keep their original indices.
            places = np.zeros((*weights.shape[:-1], gate.num_before), weights.dtype)
            places[..., gate.kept] = weights
            weights = places
        return {
            "weights": tidy(weights),
            "active": tidy((weights > 0).sum(axis=-1).astype("float32")),
            **{name: tidy(value) for name, value in report["selectors"].items()},
            **{f"penalty_{name}": value for name, value in report["penalties"].items()},
        }

    calls = [arrays(report) for report in reports]
    return {
        name: (np.sum if name.startswith("penalty_") else np.mean)(
            [each[name] for each in calls], axis=0
        )
        for name in calls[0]
    }


def _means(records):
    """Average over all gates what the progress bar shows."""
    means = {}
    for name, quantity in (("binary", "binary"), ("experts", "active")):
        found = [each[quantity] for each in records.values() if quantity in each]
        if found:
            means[name] = float(np.concatenate(found, axis=None).mean())
    return means
