"""Make the gates decide on their experts while a model trains."""

import math
import warnings
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import all_layers, calls_by_layer, restart_slots
from dselectk_keras.callbacks._group import CallbackGroup
from dselectk_keras.gates.selected import SelectedGate
from dselectk_keras.gates.selector_gate import (
    SelectorGate,
    selector_gates,
    undecided_gates,
)
from dselectk_keras.utils import check_count, check_number


class DecideGates(keras.callbacks.Callback):
    r"""Lets the gates explore first, and then makes each selector choose one expert.

    In the first part of training, selectors are soft, and all experts learn. Then each
    gate decides:

    - A static gate keeps the `num_nonzeros` largest of its weights, one for each
      selector, by the construction in the proof of Proposition 1.
    - The selectors of a per-example gate narrow with each step: the width of the smooth
      step, or the temperature, falls to 1 %. Then each selector takes the expert that
      is nearest, for each example.

    From then on a gate uses at most `num_nonzeros` experts, exactly, for any learning
    rate, loss and optimizer. In the rest of the training, experts and shares adapt to
    the decision. Let the learning rate fall only after the decision. Entropy
    regularization is not needed. `DSelectKGate(k, gamma=3.0)` explores for longer than
    with the default width.

    The decision is in the weights of the gates. Saving, copying and resuming keep it,
    and so does a later `fit`. If training is stopped before, per-example gates that
    have begun to narrow go on in a later `fit`; all others forget the plan. The
    callback acts on `DSelectKGate` and `SoftmaxSelectorGate`, between epochs. In a
    training of one epoch, static gates narrow as well.

    Args:
        by: The part of the training after which all gates have decided, above 0 and at
            most 1. On small data, where models overfit early, 0.2 is often better.
        steps: The number of training steps. It is needed only if the data of `fit` have
            no length.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.ones((8, 2))
        >>> log = model.fit(x, y, epochs=4, verbose=0, callbacks=[DecideGates()])
        >>> model.get_layer("mmoe").gate.has_decided
        True

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Proposition 1 and Section 3.2.
    """

    def __init__(self, by: float = 0.5, steps: int | None = None):
        super().__init__()
        check_number("by", by, above=0, maximum=1)
        if steps is not None:
            check_count("steps", steps)
        self.by = by
        self.steps = steps
        self._plans_anew = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that there are gates that can decide."""
        self.check_model(self.model)
        self._plans_anew = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set up the gates, or let them decide, if it is time."""
        epochs, steps = self.params["epochs"], self.params["steps"]
        steps = self.steps / epochs if self.steps else steps
        if not steps:
            raise ValueError(
                "`DecideGates` needs the length of the training, and the data have no "
                "length. Pass `steps_per_epoch` to `fit`, or the number of training "
                "steps to `DecideGates(steps=...)`."
            )
        self.begin_epoch(self.model, epoch, epochs, steps)
        self._plans_anew = False

    def on_train_end(self, logs: Any = None) -> None:
        """Warn if the training has ended before the gates decided."""
        open_gates = [g for g in selector_gates(self.model) if not g.has_decided]
        names = [gate.name for gate in open_gates]
        idle = [
            gate.name
            for gate in open_gates
            if not (gate.built and int(ops.convert_to_numpy(gate.step)))
        ]
        if idle:
            warnings.warn(
                f"Gates counted no training step: {', '.join(idle)}. They decide and "
                "add penalties only when they are called with training=True. Give "
                "`call` of your models and layers an argument `training`.",
                stacklevel=2,
            )
        elif names:
            warnings.warn(
                f"Training ended before the gates decided: {', '.join(names)}. They "
                f"decide after a part by={self.by} of {self.params['epochs']} epochs. "
                "Stop later (see `OnceDecided`), or lower `by`.",
                stacklevel=2,
            )

    def begin_epoch(
        self, model: Any, epoch: int, epochs: int, steps_per_epoch: float
    ) -> None:
        """Do what is due at the beginning of an epoch.

        Args:
            model: A built model.
            epoch: The index of the epoch.
            epochs: The number of epochs of the training.
            steps_per_epoch: The number of training steps per epoch.
        """
        decision = self.decision_epoch(epochs)
        # A gate counts a step for each of its calls.
        calls = calls_by_layer(model)
        for gate in selector_gates(model):
            if gate.has_decided:
                continue
            if not gate.built:
                self._check_can_wait(gate, epoch, epochs)
            elif gate.per_example or decision is None:
                steps = steps_per_epoch * calls[id(gate)]
                self._plan(gate, epoch, epochs, steps)
            elif epoch >= decision:
                _decide_now(gate, model)
            elif self._plans_anew:
                gate.decide_between(0, 0)

    def _check_can_wait(self, gate, epoch, epochs):
        """Raise an error if a gate that is not built may have to begin to decide."""
        waits = epoch < self.first_narrow_epoch(epochs)
        # On TensorFlow, only the first step builds a subclassed model.
        if not waits or self.decision_epoch(epochs) is None:
            raise ValueError(
                f"The gate {gate.name!r} is not built, and may begin to decide in "
                f"this epoch. Received: epoch {epoch + 1} of {epochs}. Call the "
                "model on a batch before `fit`."
            )

    def _plan(self, gate, epoch, epochs, steps):
        """Set the steps between which a gate narrows, if it is time."""
        if not steps:
            raise ValueError(
                "`DecideGates` needs the number of calls of each gate in a step. "
                f"Received: the gate {gate.name!r} inside of `TimeDistributed`, "
                "which calls it once per time step, for an unknown number of time "
                "steps. Give `keras.Input` the length of the sequences, or call "
                "`MoE` on the sequences, without `TimeDistributed`: `MoE` routes "
                "each token."
            )
        step = int(ops.convert_to_numpy(gate.step))
        planned = int(ops.convert_to_numpy(gate.deciding)[1])
        left = max(1, math.floor((self.by * epochs - epoch) * steps))
        # A training that was stopped may have left a plan. One that is resumed has the
        # same plan, up to rounding.
        if planned and self._plans_anew and abs(step + left - planned) > 1:
            gate.decide_between(0, 0)
            planned = 0
        # Gates narrow from half of that time on. Before that epoch they have no plan:
        # a later training without this callback would follow it.
        if not planned and epoch >= self.first_narrow_epoch(epochs):
            wait = max(0, math.floor((self.by * epochs / 2 - epoch) * steps))
            gate.decide_between(step + wait, step + left)

    def check_model(self, model: Any) -> None:
        """Raise an error for a model without gates that can decide.

        Args:
            model: A built model.
        """
        gates = [
            layer
            for layer in all_layers(model)
            if isinstance(layer, (SelectorGate, SelectedGate))
        ]
        if not gates:
            raise ValueError(
                "The model has no gates with selectors, which could decide. Use "
                "`DSelectKGate` or `SoftmaxSelectorGate`, or remove `DecideGates`. A "
                "`TopKGate` is always sparse."
            )

    def decision_epoch(self, epochs: int) -> int | None:
        """The epoch before which static gates decide at once.

        `None` if there is none, as in a training of one epoch: then they narrow.

        Args:
            epochs: The number of epochs of the training.
        """
        epoch = math.floor(self.by * epochs)
        return epoch if 0 < epoch < epochs else None

    def first_narrow_epoch(self, epochs: int) -> int:
        """The epoch in which per-example gates begin to narrow.

        Args:
            epochs: The number of epochs of the training.
        """
        return math.floor(self.by * epochs / 2)

    def first_decided_epoch(self, epochs: int) -> int:
        """The first epoch at whose end all gates have decided.

        Args:
            epochs: The number of epochs of the training.
        """
        return min(math.floor(self.by * epochs), epochs - 1)


def _decide_now(gate, model):
    """Let a static gate keep its largest weights from now on."""
    gate.keep_largest()
    step = int(ops.convert_to_numpy(gate.step))
    # At step 0, no gate has decided.
    gate.decide_between(step, max(1, step))
    # Momentum and averages from before would undo the decision.
    restart_slots(model, gate.trainable_variables)


class OnceDecided(CallbackGroup):
    """Calls other callbacks only after epochs in which all gates have decided.

    `EarlyStopping` and `ModelCheckpoint` would otherwise restore or save an epoch in
    which gates still use many experts. At the end of a training, a line is printed if
    what they monitor was better in an epoch before the decision.

    Args:
        *callbacks: Callbacks that act at the end of an epoch.

    Example:
        >>> stopping = keras.callbacks.EarlyStopping(
        ...     "val_task_loss", patience=3, restore_best_weights=True
        ... )
        >>> callbacks = [DecideGates(), OnceDecided(stopping)]
    """

    def __init__(self, *callbacks: Any):
        super().__init__(callbacks)
        self.epochs: Any = 0
        self.monitored: list[dict] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Pass the beginning on."""
        self.epochs = 0
        self.monitored = []
        self.pass_on("on_train_begin", logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Pass the epoch on, if all gates have decided."""
        decided = not undecided_gates(self.model)
        names = {getattr(each, "monitor", None) for each in self.callbacks}
        values = {n: float(v) for n, v in (logs or {}).items() if n in names}
        self.monitored.append({"epoch": epoch, "decided": decided, "values": values})
        if not decided:
            return
        self.epochs += 1
        self.pass_on("on_epoch_end", epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Pass the end on. Warn if no epoch was passed on, or say which was better."""
        self.pass_on("on_train_end", logs)
        if not self.epochs:
            names = ", ".join(type(each).__name__ for each in self.callbacks)
            warnings.warn(
                f"No epoch was passed on to {names}, because the gates never decided: "
                f"{'; '.join(undecided_gates(self.model))}. Add `DecideGates()` to the "
                "callbacks, or, if it is there, let it decide earlier (`by`) or stop "
                "later (`patience`).",
                stacklevel=2,
            )
        elif (self.params or {}).get("verbose"):
            for callback in self.callbacks:
                self._print_if_earlier_was_better(callback)

    def _print_if_earlier_was_better(self, callback):
        """Print a line if a callback did not see the best of what it monitors."""
        # A callback has it after the first epoch that was passed on.
        is_better = getattr(callback, "monitor_op", None)
        if is_better is None:
            return
        best: dict[bool, tuple[float, int]] = {}
        for each in self.monitored:
            value = each["values"].get(callback.monitor, math.nan)
            old, _ = best.get(each["decided"], (None, 0))
            if not math.isnan(value) and (old is None or is_better(value, old)):
                best[each["decided"]] = value, each["epoch"] + 1
        if len(best) == 2 and is_better(best[False][0], best[True][0]):
            (before, first), (after, second) = best[False], best[True]
            print(  # noqa: T201
                f"{type(callback).__name__} saw `{callback.monitor}` only after the "
                f"gates had decided: at best {after:.4g}, in epoch {second}. It was "
                f"{before:.4g} in epoch {first}, before they had decided. Try another "
                "`by` of `DecideGates`."
            )

    def get_state(self) -> dict:
        """Return the state of the callbacks, for `Checkpoints`."""
        return {
            "epochs": self.epochs,
            "monitored": self.monitored,
            "callbacks": super().get_state(),
        }

    def set_state(self, state: dict) -> None:
        """Go on with a state of `get_state`."""
        self.epochs = state["epochs"]
        self.monitored = state["monitored"]
        super().set_state(state["callbacks"])
