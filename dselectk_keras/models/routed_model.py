"""A Keras model whose loss has what its routers learn from."""

from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import all_layers, loss_weights
from dselectk_keras.gates import Gate
from dselectk_keras.gates.reinforce import ReinforceGate


@keras.saving.register_keras_serializable(package="dselectk_keras")
class RoutedModel(keras.Model):
    r"""A functional Keras model that trains routers which look at the task's loss.

    $$
    L = \ell(y, \hat y) + \text{penalties} + \sum_{\text{gates}} L_{\text{policy}}
    + c \, \tfrac12 \bigl(\mathrm{KL}(\hat y \,\|\, \hat y') +
    \mathrm{KL}(\hat y' \,\|\, \hat y)\bigr)
    $$

    Each `ReinforceGate` in the model gets minus each example's loss as its reward.
    With `consistency`, every step runs the model a second time, which draws its
    routes anew, and the two predictions are drawn together: that is how AdaMix
    trains, `SmearExperts(experts, RandomGate(), per_layer=True)`.

    For models with tasks there is `MultitaskModel`, which rewards each task's gate
    by its own loss.

    Args:
        *args: Inputs and outputs, as for `keras.Model`.
        consistency: $c$; at 0 there is no second run.
        outputs_are: What the outputs are: `"probabilities"` over the last axis,
            `"logits"`, or `"values"`, for which half the squared difference takes
            the place of the divergence.
        **kwargs: The other arguments of `keras.Model`.

    Example:
        >>> inputs = keras.Input((4,))
        >>> moe = MoE(DenseExperts(3, [8]), ReinforceGate(), per_example=True)
        >>> outputs = keras.layers.Dense(2, "softmax")(moe(inputs))
        >>> model = RoutedModel(inputs, outputs)
        >>> model.compile("adam", "sparse_categorical_crossentropy")
        >>> x, y = np.ones((6, 4)), np.zeros(6)
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['loss']

    Reference:
        Muqeeth et al., "Soft Merging of Experts with Adaptive Routing", Section 4;
        Wang et al., "AdaMix" (EMNLP 2022), Section 3.
    """

    def __init__(self, *args, consistency=0.0, outputs_are="probabilities", **kwargs):
        super().__init__(*args, **kwargs)
        if outputs_are not in {"probabilities", "logits", "values"}:
            raise ValueError(
                '`outputs_are` must be "probabilities", "logits" or "values". '
                f"Received: {outputs_are!r}."
            )
        if consistency < 0:
            raise ValueError(
                f"`consistency` must not be negative. Received: {consistency}."
            )
        self.consistency = consistency
        self.outputs_are = outputs_are

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The loss given to `compile`, and what the routers add to it."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        gates = reinforce_gates(self)
        if gates:
            each: Any = self._example_losses(y, y_pred)
            weight = ops.ones_like(each)
            if sample_weight is not None and not keras.tree.is_nested(sample_weight):
                weight = _mean_by_example(sample_weight)
            for gate in gates:
                pair = each, weight
                if gate.num_gates is not None:
                    pair = (ops.repeat(v[:, None], gate.num_gates, 1) for v in pair)
                loss = loss + gate.policy_loss(*pair)
        if training and self.consistency:
            # After the first run's penalties have been read. Both runs are one step.
            steps = [g.step for g in all_layers(self) if isinstance(g, Gate)]
            values = [ops.convert_to_tensor(step) + 0 for step in steps]
            for step, value in zip(steps, values, strict=True):
                step.assign(value - 1)
            again = self(x, training=True)
            for step, value in zip(steps, values, strict=True):
                step.assign(value)
            for gate in gates:
                gate.forget()
            pairs = zip(
                keras.tree.flatten(y_pred), keras.tree.flatten(again), strict=True
            )
            loss = loss + self.consistency * sum(
                symmetric_divergence(a, b, self.outputs_are) for a, b in pairs
            )
        return loss

    def get_config(self):
        """The functional model, and the two arguments."""
        return {
            **super().get_config(),
            "consistency": self.consistency,
            "outputs_are": self.outputs_are,
        }

    def _example_losses(self, y, y_pred):
        """The loss of each example, summed over the outputs."""
        if keras.tree.is_nested(self.loss):
            losses = keras.tree.flatten(self.loss)
        else:
            losses = [self.loss] * len(keras.tree.flatten(y_pred))
        labels, predictions = map(keras.tree.flatten, (y, y_pred))
        weights = loss_weights(self)
        if len(losses) != len(predictions) or weights is not None:
            raise ValueError(
                "The reward of a `ReinforceGate` is the sum of the losses of all "
                "outputs. Received: a model with `loss_weights`, or with outputs that "
                "have no loss. `MultitaskModel` knows both."
            )
        return sum(
            _losses_of_output(*each)
            for each in zip(losses, labels, predictions, strict=True)
        )


def _losses_of_output(identifier, labels, predictions):
    """The loss of each example, from one of the model's outputs."""
    function = keras.losses.get(identifier)
    if isinstance(function, keras.Loss):
        function = function.call
    labels, predictions = map(ops.convert_to_tensor, (labels, predictions))
    if len(labels.shape) == len(predictions.shape) - 1 and predictions.shape[-1] == 1:
        labels = ops.expand_dims(labels, -1)
    return _mean_by_example(function(labels, predictions))


def _mean_by_example(values):
    """The mean over all axes but the first, in float32."""
    values = ops.cast(values, "float32")
    return ops.mean(ops.reshape(values, (ops.shape(values)[0], -1)), axis=-1)


def reinforce_gates(model):
    """The gates of a model that learn from its loss.

    Args:
        model: A Keras model.

    Returns:
        A list of `ReinforceGate`.
    """
    return [layer for layer in all_layers(model) if isinstance(layer, ReinforceGate)]


def symmetric_divergence(a, b, kind):
    """The mean over the batch of half the sum of both divergences.

    Args:
        a: Predictions.
        b: Predictions of the same shape.
        kind: What they are: `"probabilities"`, `"logits"` or `"values"`.

    Returns:
        A float32 scalar.
    """
    a, b = ops.cast(a, "float32"), ops.cast(b, "float32")
    if kind == "values":
        each = 0.5 * ops.square(a - b)
    else:
        if kind == "logits":
            log_a, log_b = ops.log_softmax(a), ops.log_softmax(b)
        else:
            tiny = keras.config.epsilon()
            log_a, log_b = ops.log(ops.maximum(a, tiny)), ops.log(ops.maximum(b, tiny))
        # KL(a|b) + KL(b|a) = sum (a - b) (log a - log b)
        each = 0.5 * (ops.exp(log_a) - ops.exp(log_b)) * (log_a - log_b)
    return ops.sum(each) / ops.cast(ops.shape(each)[0], "float32")
