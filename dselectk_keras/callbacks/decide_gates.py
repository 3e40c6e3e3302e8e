"""Make the gates decide on their experts while a model trains."""

import math
import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers
from dselectk_keras.callbacks._clock import Clock
from dselectk_keras.callbacks._observe import note_event, warn_if_idle
from dselectk_keras.gates.chosen import ChosenGate
from dselectk_keras.gates.selector_gate import SelectorGate, selector_gates
from dselectk_keras.utils import check_number

# The losses that the printed line may compare, the most telling first.
LOSSES = "val_task_loss", "val_loss", "task_loss", "loss"
NO_LENGTH = (
    "`DecideGates` needs the length of the training, and the data have no length. Pass "
    "`steps_per_epoch` to `fit`."
)


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

    The logs of each epoch get `kept_mass`, the part of the weight that static gates
    have on their `num_nonzeros` largest experts: a decision now would keep this part.
    After the epoch of the decision a line is printed, unless `verbose=0`: the part that
    was kept, the experts, and the loss of the epochs before and after, of the
    validation data if there are any.

    The decision is in the weights of the gates: of a static gate it is `choices`, which
    no optimizer changes. Saving, copying and resuming keep it, and so does a later
    `fit`. If training is stopped before, per-example gates that have begun to narrow go
    on in a later `fit`; all others forget the plan. The callback acts on gates
    with selectors, such as `DSelectKGate`, between epochs, or where the first epoch is
    too long, between its batches. Frozen gates stay as they are, but for a per-example
    gate that has begun to narrow: its steps go on.

    A training loop of your own calls `begin_epoch` before each epoch.

    Args:
        by: The part of the training after which all gates have decided, above 0 and at
            most 1, the last step. On small data, where models overfit early, 0.2 is
            often better.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.eye(8, 2)
        >>> log = model.fit(x, y, epochs=4, verbose=0, callbacks=[DecideGates()])
        >>> model.get_layer("mmoe").gate.has_decided
        True
        >>> len(log.history["kept_mass"]), log.history["kept_mass"][-1]
        (4, 1.0)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Proposition 1 and Section 3.2.
    """

    # What no batch has done, the next epoch does (see `replicate`).
    catches_up = True

    def __init__(self, by: float = 0.5):
        super().__init__()
        self.by = check_number("by", by, above=0, maximum=1)
        self._clock = Clock()
        self._decided: Any = None
        # The losses of the last epoch, and a line to print.
        self._before, self._line = {}, ""
        # The part of its weight that each static gate has kept.
        self._kept = {}

    def begin_epoch(
        self,
        model: Any,
        epoch: int,
        epochs: int,
        steps_per_epoch: float | None,
        batch: int = 0,
    ) -> None:
        """Do what is due at the beginning of an epoch, or of one of its batches.

        Args:
            model: A built model.
            epoch: The index of the epoch; `epochs` is the end of the training, where
                static gates decide with `by=1`.
            epochs: The number of epochs of the training.
            steps_per_epoch: The number of training steps per epoch. Gates that begin to
                decide after one epoch or more do without it: 0 or `None`.
            batch: The index of the batch.
        """
        clock = self._clock
        clock.set(epoch, epochs, steps_per_epoch, batch, model)
        optimizer = getattr(model, "optimizer", None)
        middle, end = self.by * epochs / 2, self.by * epochs
        for gate in selector_gates(model):
            if gate.has_decided or not gate.trainable:
                continue
            if not gate.built:
                # On TensorFlow, only the first step builds a subclassed model.
                if clock.now >= math.floor(middle):
                    raise ValueError(
                        f"The gate {gate.name!r} is not built, and may begin to decide "
                        f"in this epoch. Received: epoch {epoch + 1} of {epochs}. Call "
                        "the model on a batch before `fit`."
                    )
            elif not gate.per_example:
                if clock.now >= self._due() - 1e-9:
                    self._kept[id(gate)] = kept = gate.decide(optimizer)
                    if gate.has_decided:
                        note_event(gate, f"decided, {100 * np.mean(kept):.0f} % kept")
            elif clock.now < math.floor(middle):
                # A training without this callback would follow an earlier plan.
                gate.decide_between(0, 0)
            elif clock.now < epochs:
                self._narrow(gate, middle - clock.now, end - clock.now)

    def _due(self):
        """Compute after how many epochs static gates decide."""
        epochs, steps = self._clock.epochs, self._clock.steps
        end = self.by * epochs
        if end < 1 and not steps:
            raise ValueError(NO_LENGTH)
        due = math.floor(end) if end >= 1 else end
        # Before the last step at the latest, so that one is trained after the decision.
        return min(due, epochs - 1 / steps) if steps else due

    def _narrow(self, gate, wait, left):
        """Make a gate narrow after some epochs, until none are left."""
        clock, steps = self._clock, self._clock.steps_of(gate)
        if not steps:
            raise ValueError(NO_LENGTH)
        step = int(ops.convert_to_numpy(gate.step))
        old_begin, old_end = map(int, ops.convert_to_numpy(gate.deciding))
        if clock.now == clock.start > 0 and old_begin <= step < old_end:
            return  # A training that is resumed goes on with its plan.
        begin = step + max(0, math.floor(wait * steps + 1e-6))
        begin = min(begin, old_begin) if old_end else begin
        gate.decide_between(begin, step + max(1, math.floor(left * steps + 1e-6)))

    def on_train_begin(self, logs: Any = None) -> None:
        if not all_layers(self.model, (SelectorGate, ChosenGate)):
            raise ValueError(
                "The model has no gates with selectors, which could decide. Use "
                "`DSelectKGate`, or remove `DecideGates`. A `TopKGate` is always "
                "sparse."
            )
        self._decided, self._before, self._line = None, {}, ""
        self._clock.restart()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._print()
        self._epoch, model = epoch, self.model
        if self._decided is None:  # Those of an earlier training.
            self._decided = [g for g in selector_gates(model) if g.has_decided]
        self._begin(model)
        waiting = [g for g in selector_gates(model) if g.built and not g.has_decided]
        self._batches = []
        if any(gate.per_example for gate in waiting) and self._clock.start == epoch:
            # After a step of this process, it is known how often it calls each gate.
            self._batches.append(1)
        if not all(gate.per_example for gate in waiting):
            self._batches += self._clock.batches_at(self._due())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch and any(each <= batch for each in self._batches):
            self._batches = [each for each in self._batches if each > batch]
            self._begin(self.model, batch)

    def _begin(self, model, batch=0):
        params = self.params
        self.begin_epoch(model, self._epoch, params["epochs"], params["steps"], batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = {} if logs is None else logs
        if epoch + 1 == self.params["epochs"]:
            # What no batch has reached, as between epochs only.
            self._epoch = epoch + 1
            self._begin(self.model)
        gates = selector_gates(self.model)
        static = [gate for gate in gates if gate.built and not gate.per_example]
        if static:
            masses = [
                np.ones(g.num_gates or 1) if g.has_decided else g.largest_mass()
                for g in static
            ]
            logs["kept_mass"] = float(np.concatenate(masses, axis=None).mean())
        # The first that both epochs have: `validation_freq` leaves epochs out.
        names = [name for name in LOSSES if name in logs]
        both = [name for name in names if name in self._before]
        name, *_ = *both, *names, "loss"
        before = f"{self._before[name]:.4g} in the epoch before, and " if both else ""
        self._before = {name: logs[name] for name in names}
        new = [g for g in gates if g.has_decided and g not in self._decided]
        self._decided += new
        if new:
            text = "; ".join(_describe(g, self._kept.get(id(g))) for g in new)
            self._line = (
                f"The gates decided in epoch {epoch + 1}: {text}. `{name}` was "
                f"{before}{logs.get(name, math.nan):.4g} in this one."
            )

    def on_train_end(self, logs: Any = None) -> None:
        self._print()
        gates = selector_gates(self.model)
        undecided = [gate for gate in gates if not gate.has_decided]
        if not warn_if_idle(gates) and undecided:
            names = ", ".join(gate.name for gate in undecided)
            warnings.warn(
                f"Training ended before the gates decided: {names}. They "
                f"decide after a part by={self.by} of {self.params['epochs']} epochs. "
                "Stop later (`start_from_epoch` of `EarlyStopping`), or lower `by`. "
                "Frozen gates do not decide.",
                stacklevel=2,
            )

    def _print(self):
        """Print a line between epochs, where Keras draws no progress bar."""
        if self._line and (self.params or {}).get("verbose"):
            print(self._line)  # noqa: T201
        self._line = ""


def _describe(gate, kept, most=4):
    """Say what a gate has decided, and what part of its weight it has kept."""
    if kept is None:
        return f"{gate.name!r} uses at most {gate.num_nonzeros} experts"
    text = f"{gate.name!r} keeps {100 * np.mean(kept):.0f} % of its weight"
    experts = gate.chosen_experts().choices.reshape(-1, gate.num_nonzeros)
    if len(experts) > most:
        used = np.unique(experts).size
        return f"{text}, on {used} of {gate.num_experts} experts"
    lists = " and ".join(str(sorted({*own})) for own in experts.tolist())
    return f"{text}, on experts {lists}"
