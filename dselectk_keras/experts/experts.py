"""A bank of any layers."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import (
    ExpertBank,
    built_like,
    check_hidden,
    check_own_inputs,
    check_selection,
)
from dselectk_keras.utils import (
    check_count,
    copy_layer,
    deserialize_if_config,
    replace_in_config,
)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Experts(ExpertBank):
    r"""Copies of any Keras layer or model, each with weights and state of its own.

    $$
    x \mapsto \bigl(f_1(x), \dots, f_n(x)\bigr)
    $$

    The experts are evaluated one by one: for convolutions that is the fast way on
    a CPU. Batch normalization and dropout work as they do in one layer.

    Args:
        template: A Keras layer or model; the experts are fresh copies of its
            config. Or a list of layers, which are the experts.
        num_experts: The number of copies, $n$. Left out with a list.
        hidden_layer: Name or place of the layer in a template with several whose
            output is the expert's hidden output; `None` is none.
        shared_input: Whether all experts see the same input.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: What every expert sees; with `shared_input=False` what each sees,
            `(batch, n, ...)`.
        select: Numbers of the experts to evaluate; `None` is all.
        return_hidden: Whether to give the hidden outputs too.

    Returns:
        A tensor `(batch, n, ...)`; with `return_hidden`, and another.

    Example:
        >>> experts = Experts(keras.layers.Conv2D(4, 3), num_experts=2)
        >>> experts(keras.ops.ones((1, 8, 8, 1))).shape
        (1, 2, 6, 6, 4)
    """

    def __init__(
        self,
        template,
        num_experts: Any = None,
        hidden_layer=None,
        shared_input=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(template, (list, tuple)):
            experts = [deserialize_if_config(layer) for layer in template]
            if num_experts not in {None, len(experts)} or not experts:
                raise ValueError(
                    "A list of layers is the bank: leave `num_experts` out. Received: "
                    f"{len(experts)} layers and num_experts={num_experts}."
                )
        else:
            check_count("num_experts", num_experts)
            template = deserialize_if_config(template)
            experts = [_copy(template, i) for i in range(num_experts)]
        if not all(isinstance(expert, keras.Layer) for expert in experts):
            raise ValueError(
                "The template must be a Keras layer or model, or a list of them. "
                f"Received: {template!r}."
            )
        self.num_experts = len(experts)
        self.experts: Any = experts
        self.hidden_layer = hidden_layer
        self.shared_input = shared_input

    def build(self, input_shape):
        """Build every expert."""
        if not self.shared_input:
            input_shape = (input_shape[0], *input_shape[2:])
        for expert in self.experts:
            if not expert.built:
                expert.build(input_shape)
        self._with_hidden = [
            self._with_hidden_of(expert)
            for expert in self.experts
            if self.hidden_layer is not None
        ]
        self.built = True

    def call(self, inputs, select=None, return_hidden=False, as_list=False):
        """Evaluate the experts one by one."""
        selected = check_selection(select, self.num_experts)
        each = [inputs] * len(selected)
        if not self.shared_input:
            check_own_inputs(inputs, len(selected))
            each = [inputs[:, place] for place in range(len(selected))]
        if return_hidden:
            check_hidden(self)
            pairs = [
                self._with_hidden[i](x) for i, x in zip(selected, each, strict=True)
            ]
            outputs, hidden = zip(*pairs, strict=True)
            return self._stack(outputs), self._stack(hidden)
        outputs = [self.experts[i](x) for i, x in zip(selected, each, strict=True)]
        return outputs if as_list else self._stack(outputs)

    def _stack(self, outputs):
        shapes = {tuple(output.shape) for output in outputs}
        if len(shapes) > 1:
            raise ValueError(
                "All experts of a bank must give the same shape. Received: "
                f"{', '.join(map(str, sorted(shapes, key=str)))}. Give their last "
                "layers the same number of units."
            )
        return ops.stack(outputs, axis=1)

    @property
    def has_hidden(self):
        """Whether the experts have a hidden output."""
        return self.hidden_layer is not None

    def parameters(self):
        """The trainable parameters of the experts, stacked."""
        self._check_alike()
        groups = zip(*(e.trainable_variables for e in self.experts), strict=True)
        return [ops.stack([variable.value for variable in each]) for each in groups]

    def sliced(self, indices):
        """Some of the experts (see `ExpertBank.sliced`)."""
        indices = check_selection(indices, self.num_experts)
        kept = [self.experts[i] for i in indices]
        config = self.get_config()
        config["template"] = [config["template"][i] for i in indices]
        config.pop("name")
        bank = type(self).from_config(config)
        built_like(bank, self)
        sources = [
            (variable, lambda array: array)
            for expert in kept
            for variable in expert.weights
        ]
        for new, old in zip(bank.experts, kept, strict=True):
            new.set_weights(old.get_weights())
        return bank, sources

    def check_mergeable(self):
        """Refuse experts of several forms, and experts with a state."""
        if not self.shared_input:
            raise ValueError(
                "Merged experts see one input. Received: experts with "
                "shared_input=False."
            )
        expert = self.experts[0]
        if not expert.built:
            return
        self._check_alike()
        if expert.non_trainable_variables:
            state = [variable.path for variable in expert.non_trainable_variables]
            raise ValueError(
                "Experts with a state of their own, such as batch statistics or the "
                f"seeds of dropout, cannot be merged. Received: {state}. Normalize "
                "and drop before the experts instead."
            )

    def call_merged(self, inputs, weights, per_example=False, training=None):
        """Merge all parameters, and apply the first expert with them.

        Each example has parameters of its own if the weights are per-example. That
        is a vectorized map: for dense layers a batched product; for convolutions
        about as slow as a loop, and a loop on torch.
        """
        if isinstance(weights, (list, tuple)):
            raise ValueError(
                "`Experts` are merged as a whole, with one weight for all layers of "
                "an expert. Received: weights for each layer. Take `DenseExperts`."
            )
        inputs, weights = map(ops.convert_to_tensor, (inputs, weights))
        stacked, expert = self.parameters(), self.experts[0]

        def apply(parameters, x):
            return expert.stateless_call(parameters, [], x)[0]

        def merge(shares):
            shares = ops.cast(shares, self.variable_dtype)
            return [ops.tensordot(shares, each, axes=1) for each in stacked]

        def merged(shares):
            if not per_example:
                return apply(merge(shares), inputs)

            def one(element):
                parameters, x = element
                return apply(parameters, ops.expand_dims(x, 0))[0]

            elements = (merge(shares), inputs)
            try:
                return ops.vectorized_map(one, elements)
            except RuntimeError:
                # Torch cannot vectorize every layer: Keras' convolutions, for one.
                if keras.backend.backend() != "torch":
                    raise
                return ops.map(one, elements)

        if len(weights.shape) == 1 + per_example:
            return merged(weights)
        gates = ops.unstack(weights, axis=-2)
        return ops.stack([merged(shares) for shares in gates], axis=1)

    def get_config(self):
        """The experts themselves, so that each keeps its config."""
        return {
            **super().get_config(),
            "template": [
                keras.saving.serialize_keras_object(expert) for expert in self.experts
            ],
            "hidden_layer": self.hidden_layer,
            "shared_input": self.shared_input,
        }

    def resized(self, num_experts, **changes):
        """A new bank of copies of the first expert.

        Args:
            num_experts: The number of experts of the new bank.
            **changes: Other arguments of the bank that are to change.

        Returns:
            An unbuilt bank. It is not frozen, even if this one is.
        """
        kept = {"hidden_layer": self.hidden_layer, "shared_input": self.shared_input}
        template = self.experts[0]
        if not self.trainable:
            config = replace_in_config(
                template.get_config(), "trainable", lambda _: True
            )
            template = type(template).from_config(config)
        return Experts(
            template, num_experts, dtype=self.dtype_policy, **{**kept, **changes}
        )

    def _with_hidden_of(self, expert):
        """A function that gives an expert's output and its hidden one."""
        hidden = self._hidden_of(expert).output
        # A function, not a model: its layers are ours already.
        return keras.Model(expert.inputs, [*expert.outputs, hidden]).__call__

    def _hidden_of(self, expert):
        """The layer of an expert whose output is the hidden one."""
        layers = {
            layer.name: layer
            for layer in getattr(expert, "layers", [])
            if not isinstance(layer, keras.layers.InputLayer)
        }
        place, count = self.hidden_layer, len(layers)
        if isinstance(place, int) and -count <= place < count:
            return list(layers.values())[place]
        if self.hidden_layer not in layers:
            raise ValueError(
                "`hidden_layer` must be the name or the place of a layer in every "
                f"expert, which is a model of several. Received: {self.hidden_layer!r} "
                f"for an expert with the layers: {', '.join(layers) or 'none'}."
            )
        return layers[self.hidden_layer]

    def _check_alike(self):
        shapes = [
            [tuple(variable.shape) for variable in expert.trainable_variables]
            for expert in self.experts
        ]
        if any(other != shapes[0] for other in shapes):
            raise ValueError(
                "Only experts of one form can be merged. Received trainable shapes: "
                f"{'; '.join(map(str, shapes))}. Take copies of one layer."
            )
        forms = [(type(expert), _form(expert.get_config())) for expert in self.experts]
        if any(other != forms[0] for other in forms):
            raise ValueError(
                "Only experts of one form can be merged. Received: experts whose "
                "configs differ, such as in an activation. Take copies of one layer."
            )


# What the configs of two copies of a layer may differ in: names, seeds, and what refers
# to names.
OF_A_COPY = {
    "name",
    "seed",
    "shared_object_id",
    "build_config",
    "inbound_nodes",
    "input_layers",
    "output_layers",
}


def _form(config) -> Any:
    """A config without what may differ between copies."""
    if isinstance(config, dict):
        return {
            key: _form(value) for key, value in config.items() if key not in OF_A_COPY
        }
    if isinstance(config, (list, tuple)):
        return [_form(value) for value in config]
    return config


def _copy(template, i):
    """A fresh copy of a layer, with its fixed seeds moved so that it is another."""
    if not isinstance(template, keras.Layer):
        return template
    return copy_layer(template, 1_000_003 * i, name=f"expert_{i}")
