"""Condense a model while it trains."""

import contextlib

import keras

from dselectk_keras.models.condense import condense_in_place, undecided


class CondenseWhenBinary(keras.callbacks.Callback):
    r"""Drops the experts that no task uses, as soon as all selectors have decided.

    At the end of the epoch in which every selector of every static gate is binary the
    model is condensed where it stands (see `condense`), its optimizer included, and
    `fit` goes on with the experts that are left. Which experts a task uses is settled
    then. `GateRecorder` goes on too, with the experts in the places that they had.

    Args:
        tolerance: How far a bit, or a selector's largest weight, may be from 0 or 1.
        verbose: Whether to say what was dropped.

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

    def __init__(self, tolerance=0.0, verbose=1):
        super().__init__()
        self.tolerance = tolerance
        self.verbose = verbose
        self.epoch = None
        self.reports = []

    def on_epoch_end(self, epoch, logs=None):
        """Look whether all have decided; if so, condense."""
        model = self.model
        if self.epoch is not None or undecided(model, self.tolerance):
            return
        # Under `tf.distribute` new variables belong to the model's strategy.
        strategy = getattr(model, "distribute_strategy", None)
        with strategy.scope() if strategy else contextlib.nullcontext():
            self.reports = condense_in_place(model, self.tolerance)
        self.epoch = epoch
        # `fit` looks these up at every step.
        model.make_train_function(force=True)
        if self.verbose:
            for report in self.reports:
                num_experts = len(report.kept) + len(report.dropped)
                print(  # noqa: T201
                    f"\nEpoch {epoch + 1}: {report.layer} keeps {len(report.kept)} of "
                    f"{num_experts} experts."
                )
