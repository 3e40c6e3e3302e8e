"""Record the gates of a model while it trains."""

import contextlib
import warnings
from typing import Any

import keras
import numpy as np

from dselectk_keras.callbacks._observe import (
    describe_collapse,
    events_of,
    find_gates,
    observe,
    warn_if_idle,
)
from dselectk_keras.callbacks.gate_history import GateHistory, check_path
from dselectk_keras.gates.selector_gate import SelectorGate, print_undecided
from dselectk_keras.utils import check_choice, check_count, check_flags, shown


class GateRecorder(keras.callbacks.Callback):
    """Records all gates of a model during training, in `history`.

    The callback records before training, if the model is built, every `every` steps or
    epochs, and at the end. Steps are those that the gates count. `GateHistory` lists
    the quantities, and the steps at which gates decided. A selector of DSelect-k may
    choose a binary code that belongs to no expert. It then has no gradient, and the
    callback warns.

    In the middle and at the end of the training it warns once of gates that collapsed:
    in all records of the last half, no task uses an expert. Static sparse gates may
    leave experts out.

    At the end of each epoch it adds two numbers to the logs, means over all gates:
    `experts`, the number of experts per example whose weight is not 0, and, if gates
    have selectors, `binary`, the share of selectors that are binary. The progress bar,
    the result of `fit` and the callbacks after this one, such as
    `keras.callbacks.TensorBoard`, have them.

    With a `path`, a training that `keras.callbacks.BackupAndRestore` resumes goes on
    with the records in the file. Put the recorder before it in the list of callbacks,
    so that the file has each epoch that is backed up.

    Args:
        every: The number of steps, or epochs, between records. A record waits for the
            device. It computes the gates operation by operation, as outside of a
            compiled step: 1 ms on torch, and 4 to 7 ms on JAX, for a static gate on two
            CPU cores, and with a probe a call of the model, tens of milliseconds. That
            is more than a short step: set 10 steps or more.
        unit: `"steps"` or `"epochs"`.
        probe: For per-example gates: a batch of the model's inputs, of a few hundred
            examples. For each record the model is evaluated on this batch.
        path: A file for the history, written after each epoch; `None` writes none. A
            training that begins with its first epoch replaces it.
        log_load: Whether to add to the logs also the load of each expert: the share of
            all choices, of examples and tasks, that it gets. Of expert 3 of the layer
            `mmoe` it is `mmoe/load_3`. Balanced loads are 1 over the number of experts.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.eye(8, 2)
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
        log_load: bool = False,
    ):
        super().__init__()
        check_flags(log_load=log_load)
        check_count("every", every)
        check_choice("unit", unit, ("steps", "epochs"))
        arrays = keras.tree.flatten(probe)
        if probe is not None and not (
            arrays and all(getattr(array, "shape", ()) for array in arrays)
        ):
            raise ValueError(
                "`probe` must be a batch of the model's inputs, as arrays. "
                f"Received: probe={shown(probe)}."
            )
        if path is not None:
            check_path(path)
        self.every = every
        self.unit = unit
        self.probe = probe
        self.path = path
        self.log_load = log_load
        self.history = GateHistory()
        self._gates = []
        self._begins = self._has_collapsed = False
        self._warned = set()
        # The steps before this epoch, and that of the next record.
        self._start = self._next = 0

    def on_train_begin(self, logs: Any = None) -> None:
        # Another training may have another model, such as a condensed one.
        self._gates = find_gates(self.model)
        if not self._gates:
            raise ValueError(
                "The model has no gates to record. Add a layer such as `MMoE`, `MoE` "
                "or `DSelectKGate`."
            )
        self._begins, self._has_collapsed = True, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """In the first epoch, record the initial state or go on with the file."""
        # By now, `BackupAndRestore` has restored the model.
        if self._begins:
            self._begin(resumes=epoch > 0)

    # Not `on_train_batch_end`: with it, Keras copies the logs of every step to the
    # host, and the device waits.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Record the result of the last step, if a record is due."""
        step = self._start + batch
        if self.unit == "steps" and step >= self._next:
            self._next = step + self.every
            self._record(*self._observed())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._start, records = self._observed()
        if self.unit == "epochs" and (epoch + 1) % self.every == 0:
            self._record(self._start, records)
        self._note_events()
        if epoch + 1 == (self.params or {}).get("epochs", 0) // 2:
            self._warn_of_collapse()
        if logs is not None:
            logs.update(_means(records), **_loads(records) if self.log_load else {})
        self._save()

    def on_train_end(self, logs: Any = None) -> None:
        if self._begins:  # There was no epoch left.
            self._begin(resumes=True)
        step, records = self._observed()
        # A callback may have restored the weights of an earlier step.
        if not step or step > max(self.history.steps, default=-1):
            self._record(step, records)
        self._save()
        self._warn_of_collapse()
        warn_if_idle(each.gate for each in self._gates)
        if (self.params or {}).get("verbose"):
            print_undecided(self.model)

    def _begin(self, resumes):
        """Begin at the step of the model."""
        self._begins = False
        self._start = self._count_steps()
        if resumes and self.path is not None and not len(self.history.steps):
            # No file if there was no epoch with this callback.
            with contextlib.suppress(FileNotFoundError):
                self.history = GateHistory.load(self.path)
        # The process may have ended after it wrote the file and before the backup.
        self.history.cut(self._start or -1)
        built = all(each.gate.built for each in self._gates)
        if built and not len(self.history.steps):
            self._record(*self._observed())
        self._next = self.every + max(self.history.steps, default=self._start)

    def _count_steps(self):
        """The number of training steps that the gates have counted."""
        built = [each for each in self._gates if each.gate.built]
        return max((each.training_step(each.gate.step) for each in built), default=0)

    def _observed(self):
        """The step, and for each gate a dict of arrays by quantity."""
        # On JAX, `self.model` first updates the variables of the model.
        model = self.model
        # The first step may have built more gates.
        self._gates = find_gates(model)
        self.history.tasks = {name: tasks for name, _, tasks, _ in self._gates}
        return self._count_steps(), observe(model, self._gates, self.probe)

    def _record(self, step, records):
        for name, _, tasks, _ in self._gates:
            self._warn(name, tasks, records[name])
        self.history.append(step, records)

    def _note_events(self):
        """Note in the history what has happened to gates, and at which steps."""
        for each in self._gates:
            name, gate, *_ = each
            events = events_of(gate)
            if isinstance(gate, SelectorGate) and gate.per_example and gate.has_decided:
                events.append((keras.ops.convert_to_numpy(gate.deciding)[1], "decided"))
            noted = self.history.events[name]
            for step, text in events:
                event = each.training_step(step), text
                if event not in noted:
                    noted.append(event)

    def _save(self):
        if self.path is not None:
            self.history.save(self.path)

    def _warn_of_collapse(self):
        """Warn of gates that have collapsed, once per training."""
        steps, found = self.history.steps, []
        for name, gate, *_ in self._gates if len(steps) else ():
            record = self.history[name]
            if not (record and gate.trainable_weights):  # The weights are given.
                continue
            weights = record["weights"]
            # A static sparse gate is meant to leave experts out.
            if gate.per_example or (record["active"][-1] == weights.shape[-1]).all():
                text = describe_collapse(steps, weights)
                found += [f"{name}: {text}"] if text else []
        if found and not self._has_collapsed:
            self._has_collapsed = True
            warnings.warn(
                f"Gates have collapsed: {'; '.join(found)}. It is so in all records of "
                "the last half of the training so far. Standardize what the gates see, "
                "tune the learning rate, or balance the load. See the page 'When "
                "experts collapse' of the documentation.",
                stacklevel=2,
            )

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


def _means(records):
    """Average over all gates what the progress bar shows."""
    means = {}
    for name, quantity in (("binary", "binary"), ("experts", "active")):
        values = [record[quantity] for record in records.values() if quantity in record]
        if values:
            means[name] = float(np.concatenate(values, axis=None).mean())
    return means


def _loads(records):
    """Compute the share of the choices of each expert, by its name in the logs."""
    loads = {}
    for name, record in records.items():
        counts = record["load"].mean(axis=0)
        shares = (counts / max(counts.sum(), 1e-9)).tolist()
        loads |= {f"{name}/load_{i}": share for i, share in enumerate(shares)}
    return loads
