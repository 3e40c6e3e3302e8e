"""Choose the experts of static gates by fit while a model trains."""

import math
import types
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers
from dselectk_keras.callbacks._clock import Clock
from dselectk_keras.callbacks._observe import find_gates, note_event
from dselectk_keras.callbacks._sample import draw_sample
from dselectk_keras.gates import Gate
from dselectk_keras.gates.record import recording
from dselectk_keras.models.check_labels import check_labels
from dselectk_keras.models.columns import as_dense, as_inputs
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.ops import choose_by_fit
from dselectk_keras.utils import check_count, check_number

# Experts are projected to so many units, all together.
MAX_UNITS = 512
# Examples of the sample that are evaluated at once.
BATCH_SIZE = 1024


class ChooseExperts(keras.callbacks.Callback):
    r"""Chooses the experts of each task, again and again, that fit its labels best.

    At the beginning of the training, and then after each part `every` of it, all
    experts are evaluated on a sample of the training data. Each task gets the k experts
    whose outputs explain its labels best in a linear regression (see
    `ops.choose_by_fit`). In between, the experts and the shares train as always. So
    tasks that are alike come to share experts. The gates are sparse from the first step
    on: `condense` accepts the model after each epoch.

    A task keeps its experts if its labels in the sample are missing or all equal, or if
    no expert tells the examples apart. The sample weights and class weights of `fit`
    count.

    The callback acts on static gates with `choices`: `ChosenGate`, or a `DSelectKGate`.
    Frozen gates keep their experts.
    The shares of a task whose experts change begin anew, equal. In `CGC`, each task
    always uses its own experts, which `num_nonzeros` counts too.

    The logs of each epoch get `changed`, the part of the gates whose experts have
    changed in it. At the end of the training a line is printed, unless `verbose=0`.

    Args:
        x: Inputs of the model, of which a sample is drawn. `None` takes the data of
            `fit`, which a `MultitaskModel` knows, without those that `validation_split`
            holds out. Of a `PyDataset`, random batches are read. Of a `tf.data.Dataset`
            or another iterable, the first 10 times `sample` examples are read: shuffle
            sorted data.
        y: The labels, as for `fit`; for a model that is no `MultitaskModel`, an array
            with one column per gate. Missing labels are NaN.
        by: The part of the training after which the choice stays.
        every: The part of the training between choices. Where callbacks are called
            between epochs only, as by `replicate` on JAX, they are the next beginning
            of an epoch.
        ridge: The ridge of the regression (see `ops.choose_by_fit`).
        sample: The number of examples in the sample.
        seed: The seed of the sample.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=ChosenGate(2))
        >>> model.compile("adam")
        >>> x, y = np.random.default_rng(0).normal(size=(2, 64, 3))
        >>> callbacks = [ChooseExperts()]
        >>> log = model.fit(x, y[:, :2], epochs=4, verbose=0, callbacks=callbacks)
        >>> len(log.history["changed"]), log.history["changed"][-1]
        (4, 0.0)

    Reference:
        The method is our own.
    """

    # What no batch has done, the next epoch does (see `replicate`).
    catches_up = True

    def __init__(
        self,
        x: Any = None,
        y: Any = None,
        by: float = 0.5,
        every: float = 0.05,
        ridge: float = 0.1,
        sample: int = 4096,
        seed: int = 0,
    ):
        super().__init__()
        if (x is None) != (y is None):
            raise ValueError(
                "`x` and `y` belong together. Received: one of them. Pass both, or "
                "neither for the data of `fit`."
            )
        self.data = None if x is None else (x, y)
        self.by = check_number("by", by, minimum=0, maximum=1)
        self.every = check_number("every", every, above=0, maximum=1)
        self.ridge = check_number("ridge", ridge, minimum=0)
        self.sample = check_count("sample", sample)
        self.seed = check_count("seed", seed, minimum=0)
        self._sample: Any = None
        # Which gates have changed in this epoch.
        self._changed: Any = None
        # How many parts `every` had passed at the last choice.
        self._clock, self._number = Clock(), None
        self._count, self._last = 0, None

    def choose(self, model: Any) -> float:
        """Choose the experts of all gates now, and return the part that has changed."""
        gates = _gates_with_choices(model)
        if self._sample is None:
            data = vars(getattr(model, "training_data", types.SimpleNamespace()))
            if self.data is not None:
                x, y = self.data
                data = {"x": as_inputs(model, x), "y": y}
                if isinstance(model, MultitaskModel) and model.loss is None:
                    check_labels(model, **data)
            self._sample = draw_sample(model, self.sample, self.seed, **data)
        seen = _evaluate_experts(model, gates, self._sample.x)
        optimizer = getattr(model, "optimizer", None)
        places = _rows_of_tasks(model)
        changed = [
            self._choose(gate, seen[id(gate)], places.get(id(gate)), optimizer)
            for gate in gates
        ]
        changed = np.concatenate(changed)
        self._changed = changed if self._changed is None else self._changed | changed
        return float(changed.mean())

    def _choose(self, gate, outputs, places, optimizer):
        """Choose the experts of a gate; return in which of its rows they changed."""
        _, labels, weights, tasks, varies = self._sample
        (shared, own), choices = outputs, ops.convert_to_numpy(gate.choices)
        before = choices.reshape(-1, choices.shape[-1])
        rows, k = before.shape
        if rows == 1:
            tasks = np.zeros_like(tasks)
        elif rows != tasks.max() + 1:
            raise ValueError(
                f"The gate {gate.name!r} has {rows} gates, which must be one for each "
                f"task, or one for all. Received: labels of {tasks.max() + 1} tasks. "
                "Pass `x` and `y` with one column per task."
            )
        elif places is not None:
            tasks = places[tasks]
        per_task = 0 if own is None else own.shape[1] // rows
        if not per_task < k <= shared.shape[1] + per_task:
            total = shared.shape[1] + per_task
            own_too = f", its own {per_task} among them" * bool(per_task)
            raise ValueError(
                f"`ChooseExperts` chooses `num_nonzeros` different experts of {total} "
                f"for each task{own_too}. Received: the gate {gate.name!r} with "
                f"num_nonzeros={k}. Set num_nonzeros from {per_task + 1} to {total}."
            )
        known = np.bincount(tasks, varies) > 0
        if not (known.any() and _differ(outputs)):
            return np.zeros(rows, bool)
        settings = k, self.ridge
        if own is None:
            chosen = choose_by_fit(shared, labels, *settings, weights, tasks)
        else:
            # Each task has the shared experts, and then its own.
            chosen = []
            for row, part in enumerate(np.split(own, rows, axis=1)):
                some, bank = tasks == row, np.concatenate([shared, part], axis=1)
                given = labels[:, some], *settings, weights[:, some], 0 * tasks[some]
                chosen += [*choose_by_fit(bank, *given, always=per_task)]
        after = np.where(known[:, None], _in_place(chosen, before), before)
        changed = (after != before).any(axis=-1)
        gate.choose(after.reshape(choices.shape), optimizer=optimizer)
        if changed.any():
            note_event(gate, f"{changed.sum()} changed")
        return changed

    def on_train_begin(self, logs: Any = None) -> None:
        self._sample, self._number, self._count, self._last = None, None, 0, None
        self._clock.restart()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._changed, self._epoch = None, epoch
        self._choose_if_due()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch:
            self._choose_if_due(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            changed = self._changed
            logs["changed"] = 0.0 if changed is None else float(changed.mean())
        if self._changed is not None and self._changed.any():
            self._last = epoch + 1

    def on_train_end(self, logs: Any = None) -> None:
        if not (self._count and self.params.get("verbose")):
            return
        used = [
            f"{np.unique(ops.convert_to_numpy(gate.choices)).size} of "
            f"{gate.num_experts} experts in {gate.name!r}"
            for gate in _gates_with_choices(self.model)
        ]
        print(  # noqa: T201
            f"Experts were chosen {self._count} times. They changed last in epoch "
            f"{self._last}. The tasks use {', '.join(used)}."
        )

    def _choose_if_due(self, batch=0):
        clock = self._clock
        clock.set(self._epoch, self.params["epochs"], self.params["steps"], batch)
        if self._number is None:  # A training that goes on had its earlier choices.
            self._number = clock.count_before(self.every)
        last = math.floor(self.by / self.every + 1e-9)
        number = min(clock.count(self.every), last)
        if number > self._number:
            self._number = number
            self.choose(self.model)
            self._count += 1


def _gates_with_choices(model):
    """List the gates of a model whose experts can be chosen."""
    gates = all_layers(model, Gate)
    found = [gate for gate in gates if gate.choices is not None and gate.trainable]
    if found:
        return found
    if any(not gate.built for gate in gates):
        raise ValueError(
            "The gates of the model are not built yet. Call the model on a batch "
            "before `fit`."
        )
    names = ", ".join(repr(gate) for gate in gates)
    raise ValueError(
        "`ChooseExperts` needs a static gate with `choices` that is not frozen, such "
        "as `ChosenGate(2)`, which has the same experts for all examples. Received: "
        f"{names or 'no gates'}. A per-example gate chooses for each example: use "
        "`TopKGate`, or leave out per_example."
    )


def _rows_of_tasks(model):
    """The rows of gates that have the names of the tasks of a model, by the tasks."""
    names = [task.name for task in getattr(model, "tasks", None) or ()]
    return {
        id(each.gate): np.array([each.tasks.index(name) for name in names])
        for each in find_gates(model)
        if {*each.tasks} == {*names}
    }


def _evaluate_experts(model, gates, x):
    """Evaluate the experts of each gate on a sample: arrays `(samples, n, units)`.

    Each gate gets a pair of the experts that its tasks share, and of those that only
    one task has, or `None`.
    """
    notes = {id(gate): [] for gate in gates}

    def note(call):
        if call.experts is not None and id(call.gate) in notes:
            most = max(1, MAX_UNITS // call.experts.shape[1])
            banks = call.experts, call.own
            units = [None if bank is None else _units(bank, most) for bank in banks]
            notes[id(call.gate)].append(units)

    starts = range(0, keras.tree.flatten(x)[0].shape[0], BATCH_SIZE)
    for first in starts:
        rows = slice(first, first + BATCH_SIZE)
        some = keras.tree.map_structure(lambda array, rows=rows: array[rows], x)
        # In a stateless scope, observing changes no variable.
        with recording(note), keras.StatelessScope():
            model(as_dense(some), training=False)
    for gate in gates:
        if not notes[id(gate)]:
            raise ValueError(
                f"The model does not mix experts by the gate {gate.name!r}, so that "
                "they cannot be chosen by their outputs. Merged experts "
                "(`SmearExperts`) have none."
            )
    return {key: _joined(found, len(starts)) for key, found in notes.items()}


def _units(outputs, most):
    """Flatten the outputs of each expert, and project many of them to a few."""
    size = math.prod(outputs.shape[2:])
    flat = ops.reshape(ops.cast(outputs, "float32"), (-1, outputs.shape[1], size))
    if size > most:
        kernel = np.random.default_rng(0).normal(size=(size, most)) / math.sqrt(most)
        flat = ops.matmul(flat, kernel.astype("float32"))
    return ops.convert_to_numpy(flat)


def _joined(notes, parts):
    """Join the units of all parts of a sample, and of several calls of a gate."""
    calls = len(notes) // parts

    def join(arrays):
        if arrays[0] is None:
            return None
        whole = [np.concatenate(arrays[call::calls]) for call in range(calls)]
        return np.concatenate(whole, axis=-1)

    return [join(arrays) for arrays in zip(*notes, strict=True)]


def _differ(outputs):
    """Check whether experts tell examples apart; with NaN or infinity they do not."""
    units = [each for each in outputs if each is not None]
    is_finite = all(np.isfinite(each).all() for each in units)
    return is_finite and any((each != each[:1]).any() for each in units)


def _in_place(chosen, before):
    """Put new experts into free places; experts that stay keep theirs."""
    after = before.copy()
    for row, new in zip(after, chosen, strict=True):
        free = ~np.isin(row, new)
        # An expert in two places keeps the first.
        free |= np.arange(len(row)) != np.array([list(row).index(e) for e in row])
        row[free] = [expert for expert in new if expert not in row[~free]]
    return after
