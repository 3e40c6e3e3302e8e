"""A Keras model for gates that learn from the loss of each example."""

import threading
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import all_layers, compile_arguments, mask_of
from dselectk_keras.distribution import num_replicas
from dselectk_keras.gates import Gate
from dselectk_keras.utils import (
    Tensor,
    check_choice,
    check_keywords,
    check_number,
    init_arguments,
)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class RoutedModel(keras.Model):
    r"""A functional Keras model for gates that learn from the loss of each example.

    $$
    L = \ell(y, \hat y) + \text{penalties} + \frac{1}{s} \sum_{\text{layers}}
    L_{\text{policy}}
    + c \, \tfrac12 \bigl(\mathrm{KL}(\hat y \,\|\, \hat y') +
    \mathrm{KL}(\hat y' \,\|\, \hat y)\bigr)
    $$

    Each gate that learns from the loss, such as `ReinforceGate`, gets the negative
    loss of each example as its reward. The policy losses of $s$ layers with such gates
    are averaged. With `consistency`, every training step runs the model a second time
    with new random routes, and penalizes the difference between the two predictions.
    AdaMix is trained in this way, with
    `SmearExperts(experts, RandomGate(), per_layer=True)`.

    With several outputs, the reward is minus the sum of their losses. To train a model
    of `build_multitask_model`, pass its `input` and `output`, and give a loss for each
    task to `compile`.

    `keras.models.clone_model` loses the arguments below, without an error.
    `copy.deepcopy` copies the model, and `RoutedModel.from_config(model.get_config())`
    does so with new weights.

    Args:
        *args: The inputs and the outputs, as for `keras.Model`.
        consistency: $c$, the weight of the consistency loss. 0 turns off the second
            run.
        outputs_are: The kind of the outputs: `"probabilities"` over the last axis,
            `"logits"`, or `"values"`. For values, half the squared difference
            replaces the divergence.
        **kwargs: `name`, and `trainable`, whether the layers are trainable.

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
        Muqeeth et al., "SMEAR" (2023), Section 2; Wang et al., "AdaMix" (EMNLP 2022),
        Section 3.
    """

    # Keras takes a class with these first arguments for a functional model.
    def __init__(
        self,
        *args: Any,
        consistency: float = 0.0,
        outputs_are: str = "probabilities",
        **kwargs: Any,
    ):
        check_keywords(type(self), kwargs)
        super().__init__(*args, **kwargs)
        check_choice("outputs_are", outputs_are, ("probabilities", "logits", "values"))
        self.consistency = check_number("consistency", consistency, minimum=0)
        self.outputs_are = outputs_are
        self._memory = _Memory()
        for gate in gates_taught_by_loss(self):
            gate.rewarded = True

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        gates = gates_taught_by_loss(self)
        added = []
        if gates:
            each, weight = self._example_losses(y, y_pred, sample_weight)
            policy: Any = sum(
                gate.policy_loss(*for_each_gate(gate, each, weight)) for gate in gates
            )
            added.append(policy / len(gates))
        if training and self.consistency:
            # Last, because the second run replaces the penalties of the first run.
            again = self._run_again(x)
            for gate in gates:
                gate.forget()
            outputs = keras.tree.flatten(y_pred), keras.tree.flatten(again)
            added += [
                self.consistency * symmetric_divergence(a, b, self.outputs_are)
                for a, b in zip(*outputs, strict=True)
            ]
        # Keras divides its own loss by the number of replicas; so do these terms.
        for term in added:
            loss = loss + ops.sum(term) / num_replicas()
        return loss

    def call(
        self, inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """Compute the outputs, and note the state that a second run begins with."""
        if training and self.consistency:
            self._memory.state = self._state()
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def _state(self):
        """Copy the weights that gradients do not train, such as counters."""
        # Without the sum, a torch tensor would change with its variable.
        return [ops.convert_to_tensor(w) + 0 for w in self.non_trainable_weights]

    def _run_again(self, x):
        """Run the model from the same state, which is that of one run in the end.

        Only seeds go on.
        """
        before, after = self._memory.state, self._state()
        self._assign(after if before is None else before)
        again = self(x, training=True)
        self._assign(after)
        self._memory.state = None
        return again

    def _assign(self, state):
        for weight, value in zip(self.non_trainable_weights, state, strict=True):
            weight.assign(value)

    def get_config(self) -> dict[str, Any]:
        own = init_arguments(self, ("consistency", "outputs_are"))
        return {**super().get_config(), **own}

    def _example_losses(self, y, y_pred, sample_weight):
        """Compute the loss of each example, summed over the outputs, and its weight."""
        predictions = keras.tree.flatten(y_pred)

        def by_output(values):
            if isinstance(values, dict) and not isinstance(y_pred, dict):
                values = [values.get(name) for name in self.output_names]
            one = not keras.tree.is_nested(values)
            return [values] * len(predictions) if one else keras.tree.flatten(values)

        losses, weights = by_output(self.loss), by_output(sample_weight)
        complete = len(losses) == len(predictions) and None not in losses
        if not complete or compile_arguments(self)["loss_weights"] is not None:
            raise ValueError(
                "The reward of a `ReinforceGate` is the sum of the losses of all "
                "outputs. Received: a model with `loss_weights`, or with outputs that "
                "have no loss. Give each output a loss, without `loss_weights`."
            )
        each = zip(losses, by_output(y), predictions, weights, strict=True)
        found: Any = [_losses_of_output(*one) for one in each]
        if len(found) == 1 or not keras.tree.is_nested(sample_weight):
            return sum(loss for loss, _ in found), found[0][1]
        total = sum(loss * weight for loss, weight in found)
        labeled = ops.any(ops.stack([weight for _, weight in found]) != 0, axis=0)
        return total, ops.cast(labeled, "float32")


class _Memory(threading.local):
    """The state before the last training call, of one replica of `tf.distribute`."""

    state: Any = None


def _losses_of_output(identifier, labels, predictions, sample_weight):
    """Compute the loss of each example for one output of the model, and its weight.

    They are means over the positions without padding, of the loss with their weights.
    """
    function = keras.losses.get(identifier)
    if isinstance(function, keras.Loss):
        function = function.call
    masks = [mask_of(predictions)]
    labels, predictions = map(ops.convert_to_tensor, (labels, predictions))
    if len(labels.shape) == len(predictions.shape) - 1 and predictions.shape[-1] == 1:
        labels = ops.expand_dims(labels, -1)
    values = function(labels, predictions)
    # It is false at labels that the loss ignores.
    masks.append(mask_of(values))
    rank = len(values.shape)
    counts = ops.ones(ops.shape(values), "float32")
    for mask in masks:
        if mask is not None and len(mask.shape) == rank:
            counts = counts * ops.cast(mask, "float32")
    weights = counts
    if sample_weight is not None:
        given = ops.cast(sample_weight, "float32")
        size = [*ops.shape(given), *[1] * rank][:rank]
        weights = counts * ops.reshape(given, size)

    def total(x):
        return ops.sum(x, axis=list(range(1, rank))) if rank > 1 else x

    # A weight of 0 is not enough: 0 * NaN is NaN.
    values = ops.where(weights != 0, ops.cast(values, "float32"), 0.0)
    amount = total(weights)
    loss = total(weights * values) / ops.where(amount != 0, amount, 1.0)
    return loss, amount / ops.maximum(total(counts), 1.0)


def gates_taught_by_loss(model: keras.Model) -> list[Any]:
    """List the gates of a model that learn from its loss: those with `policy_loss`."""
    return [layer for layer in all_layers(model) if hasattr(layer, "policy_loss")]


def for_each_gate(gate: Gate, *values: Tensor) -> list[Tensor]:
    """Repeat numbers `(batch,)` for each gate: `(batch, num_gates)`.

    For a single gate they stay as they are.
    """
    if gate.num_gates is None:
        return list(values)
    return [ops.repeat(value[:, None], gate.num_gates, axis=1) for value in values]


def symmetric_divergence(a: Tensor, b: Tensor, kind: str) -> Tensor:
    """Compute the mean over the batch of half the sum of both KL divergences.

    The kind of the predictions is `"probabilities"`, `"logits"` or `"values"`. Padding
    does not count.
    """
    mask = mask_of(a)
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
    if mask is not None:
        axes = [1] * (len(each.shape) - len(mask.shape))
        each = ops.where(ops.reshape(mask, (*ops.shape(mask), *axes)), each, 0.0)
    return ops.sum(each) / ops.maximum(ops.cast(ops.shape(each)[0], "float32"), 1.0)
