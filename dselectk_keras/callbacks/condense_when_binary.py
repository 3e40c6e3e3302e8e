"""Condense a model while it trains."""

import contextlib
from typing import Any

import keras

from dselectk_keras.models.condense import (
    check_not_shared,
    check_not_split,
    condensable,
    condense_in_place,
    undecided,
)
from dselectk_keras.utils import check_choice, check_number


class CondenseWhenBinary(keras.callbacks.Callback):
    r"""Drops the experts that no task uses, as soon as all selectors are binary.

    The callback checks the static gates at the end of each epoch. When all their
    selectors are binary, it condenses the model and its optimizer (see `condense`), and
    `fit` continues with the remaining experts. From then on, the choice of experts is
    fixed. `GateRecorder` keeps recording, with the original indices of the experts.

    Experts that are split over devices (`expert_layout_map`) cannot be condensed while
    they train, and neither can experts or gates that layers share. To resume a
    training, use `Checkpoints`: `BackupAndRestore` cannot load condensed weights. The
    file of a condensed model can be loaded only if the model is functional: a subclass
    of `keras.Model` creates all experts again.

    Weights that `EarlyStopping(restore_best_weights=True)` keeps from before do not fit
    the condensed model. Put it after this callback, in `OnceDecided`.

    Args:
        tolerance: The largest distance of a bit, or of a selector's largest weight,
            from 0 or 1.
        verbose: Whether to print the number of experts that each layer keeps.

    Example:
        >>> model = build_multitask_model(3, ["a"], gate=TopKGate(2))
        >>> model.compile("sgd")
        >>> callback = CondenseWhenBinary(verbose=0)
        >>> history = model.fit(
        ...     np.ones((4, 3)), np.ones((4, 1)), verbose=0, callbacks=[callback]
        ... )
        >>> len(callback.reports[0].kept), callback.epoch
        (2, 0)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2 and Appendix C.3.
    """

    def __init__(self, tolerance: float = 0.0, verbose: int = 1):
        super().__init__()
        check_number("tolerance", tolerance, minimum=0)
        check_choice("verbose", verbose, (0, 1))
        self.tolerance = tolerance
        self.verbose = verbose
        self.epoch = None
        self.reports = []
        self._gates = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Raise an error if experts are shared, or may be split over devices."""
        check_not_split()
        check_not_shared(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Condense the model if all selectors are binary."""
        if self.epoch is not None or undecided(self.model, self.tolerance):
            return
        self._condense(epoch)
        if self.verbose:
            for report in self.reports:
                num_experts = len(report.kept) + len(report.dropped)
                print(  # noqa: T201
                    f"\nEpoch {epoch + 1}: {report.layer} keeps {len(report.kept)} of "
                    f"{num_experts} experts."
                )

    def get_state(self) -> dict:
        """Return the gates from before condensing, for `Checkpoints`."""
        return {"epoch": self.epoch, "gates": self._gates}

    def set_state(self, state: dict) -> None:
        """Condense a new model as it was condensed before."""
        if state["epoch"] is not None:
            layers = condensable(self.model)
            for layer, weights in zip(layers, state["gates"], strict=True):
                layer.gate.set_weights(weights)
            self._condense(state["epoch"])

    def _condense(self, epoch):
        model = self.model
        self._gates = [layer.gate.get_weights() for layer in condensable(model)]
        # `tf.distribute` needs new variables in the scope of the model's strategy.
        strategy = getattr(model, "distribute_strategy", None)
        with strategy.scope() if strategy else contextlib.nullcontext():
            self.reports = condense_in_place(model, self.tolerance)
        self.epoch = epoch
        # `fit` looks the train function up at every step.
        model.make_train_function(force=True)
