"""A bank of copies of any layer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import (
    all_layers,
    copy_state,
    mask_of,
    prefix_paths,
    with_mask,
)
from dselectk_keras.experts.bank import ExpertBank
from dselectk_keras.initializers import copy_layer
from dselectk_keras.ops import mix_parameters, unstack
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Shape,
    Tensor,
    check_count,
    check_flags,
    check_integers,
    check_type,
)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Experts(ExpertBank):
    r"""Copies of any Keras layer or model, each with weights and state of its own.

    $$
    x \mapsto \bigl(f_1(x), \dots, f_n(x)\bigr)
    $$

    The experts are evaluated one by one, which is fastest for convolutions on a
    CPU. Batch normalization and dropout work as in a single layer.

    Args:
        template: A Keras layer or model, whose config the experts are made from; or
            a list of layers, which are the experts.
        num_experts: The number of copies, $n$. Omit it with a list of layers, unless
            they are copies of one.
        shared_input: Whether all experts see the same input.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The input of every expert; with `shared_input=False` one input per
            expert, `(batch, n, ...)`.

    Returns:
        A tensor `(batch, n, ...)`.

    Example:
        >>> experts = Experts(keras.layers.Conv2D(4, 3), num_experts=2)
        >>> experts(keras.ops.ones((1, 8, 8, 1))).shape
        (1, 2, 6, 6, 4)
    """

    def __init__(
        self,
        template: Any,
        num_experts: Any = None,
        shared_input: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        wanted = "a Keras layer or model, or a list of them"
        experts: Any = keras.tree.flatten(template)
        for each in experts:
            check_type("template", each, keras.Layer, wanted)
        if experts == [template]:
            check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
            experts = [
                copy_layer(experts[0], 1_000_003 * i, name=f"expert_{i}")
                for i in range(num_experts)
            ]
        elif num_experts not in {None, len(experts)} or not experts:
            raise ValueError(
                "A list of layers as `template` is the whole bank: omit `num_experts`. "
                f"Received: {len(experts)} layers and num_experts={num_experts}."
            )
        self.num_experts = len(experts)
        self.experts = experts
        check_flags(shared_input=shared_input)
        self.shared_input = shared_input
        self._are_copies = num_experts is not None

    def build(self, input_shape: Shape) -> None:
        self.check_inputs(input_shape)
        if not self.shared_input:
            self.input_spec = keras.InputSpec(axes={1: self.num_experts})
            input_shape = (input_shape[0], *input_shape[2:])
        for i, expert in enumerate(self.experts):
            if not expert.built:
                expert.build(input_shape)
            prefix_paths(expert, f"{self.path}/expert_{i}")
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        pairs = zip(self.experts, self.split(inputs), strict=True)
        return self.stack([expert(x) for expert, x in pairs])

    def split(self, inputs: Tensor) -> list[Tensor]:
        """List the input of each expert."""
        return _split(inputs) if not self.shared_input else [inputs] * self.num_experts

    def stack(self, outputs: Sequence[Tensor]) -> Tensor:
        """Stack outputs of all experts, which must have the same shape."""
        shapes = {tuple(output.shape) for output in outputs}
        if len(shapes) > 1:
            raise ValueError(
                "All experts of a bank must have the same output shape. Received: "
                f"{', '.join(map(str, sorted(shapes, key=str)))}. Give their last "
                "layers the same number of units."
            )
        return ops.stack(outputs, axis=1)

    def parameters(self) -> list[Tensor]:
        """The parameters of the experts, stacked; frozen ones too."""
        self._check_copies()
        quantized = keras.dtype_policies.QuantizedDTypePolicy
        for layer in all_layers(self.experts[0]):
            if isinstance(layer.dtype_policy, quantized):
                raise ValueError(
                    "Quantized experts cannot be merged: the sum of their integers has "
                    f"no scale. Received: {layer.name!r} with the policy "
                    f"{layer.dtype_policy.name!r}. Load the model from before "
                    "`quantize`."
                )
        groups = zip(*map(_parameters, self.experts), strict=True)
        return [ops.stack([variable.value for variable in each]) for each in groups]

    def _check_copies(self):
        if not self._are_copies:
            raise ValueError(
                "Only copies of one layer can be merged. Received: a list of layers. "
                "Pass one layer, and `num_experts`."
            )

    def sliced(self, indices: Sequence[int]) -> "Experts":
        indices = check_integers("indices", indices, 0, self.num_experts - 1)
        config = self.get_config()
        config["template"] = [config["template"][i] for i in indices]
        config["num_experts"] = len(indices) if self._are_copies else None
        config.pop("name")
        bank = type(self).from_config(config).build_like(self)
        for new, i in zip(bank.experts, indices, strict=True):
            copy_state(self.experts[i], new)
        return bank

    def check_mergeable(self) -> None:
        """Raise an error for experts that have a state, or losses of their own."""
        super().check_mergeable()
        self._check_copies()
        expert = self.experts[0]
        for layer in all_layers(expert):
            if layer.activity_regularizer is not None:
                raise ValueError(
                    "The outputs of merged experts have no `activity_regularizer`. "
                    f"Received: {layer.name!r} with {layer.activity_regularizer!r}. "
                    "Leave it out."
                )
        parameters = {id(weight) for weight in _parameters(expert)}
        state = [each.path for each in expert.variables if id(each) not in parameters]
        if state:
            raise ValueError(
                "Experts with a state of their own, such as batch statistics or the "
                f"seeds of dropout, cannot be merged. Received: {state}. Apply "
                "normalization and dropout before the experts instead."
            )

    def call_merged(
        self,
        inputs: Tensor,
        weights: Tensor,
        per_example: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Merge all parameters, and apply the first expert with them.

        With per-example weights each example has its own parameters, in a vectorized
        map: a batched product for dense layers. For convolutions it is about as slow
        as a loop, and on torch it is a loop.
        """
        if isinstance(weights, (list, tuple)):
            raise ValueError(
                "`Experts` are merged as a whole, with one weight for all layers of "
                "an expert. Received: weights for each layer. Use `DenseExperts`."
            )
        inputs, weights = map(ops.convert_to_tensor, (inputs, weights))
        stacked = self.parameters()
        if len(weights.shape) == 1 + per_example:
            return self._merge_and_apply(stacked, weights, inputs, per_example)
        merged = [
            self._merge_and_apply(stacked, each, inputs, per_example)
            for each in unstack(weights, axis=-2)
        ]
        return ops.stack(merged, axis=1)

    def _merge_and_apply(self, stacked, weights, inputs, per_example):
        """Apply one merged expert, or one for each example."""
        expert, weights = self.experts[0], ops.cast(weights, self.variable_dtype)
        merged = [mix_parameters(weights, each) for each in stacked]

        def apply(parameters, x):
            values = [*zip(expert.weights, parameters, strict=True)]
            with keras.StatelessScope(values):
                return expert(x)

        def apply_to_one(element):
            parameters, *parts = element
            x, *mask = (ops.expand_dims(each, 0) for each in parts)
            return apply(parameters, with_mask(x, *mask) if mask else x)[0]

        if not per_example:
            return apply(merged, inputs)
        # An example of a map has no mask attached.
        mask = mask_of(inputs)
        examples = (merged, inputs) if mask is None else (merged, inputs, mask)
        try:
            return ops.vectorized_map(apply_to_one, examples)
        except RuntimeError:
            # Torch cannot vectorize every layer: Keras' convolutions, for one.
            if keras.backend.backend() != "torch":
                raise
            return ops.map(apply_to_one, examples)

    def get_config(self) -> dict[str, Any]:
        template = [*map(keras.saving.serialize_keras_object, self.experts)]
        number = self.num_experts if self._are_copies else None
        return {**super().get_config(), "template": template, "num_experts": number}

    @property
    def template(self) -> list[keras.Layer]:
        """The experts, which a copy is made from."""
        return self.experts

    def resized(self, num_experts: int, **changes: Any) -> "Experts":
        changes = {"template": self.experts[0], **changes}
        copy: Any = super().resized(num_experts, **changes)
        if not self.trainable:
            # Copies of frozen layers are frozen. On TensorFlow, a layer ignores a new
            # value that equals its own, and does not pass it on.
            for layer in all_layers(copy):
                layer.trainable = True
        return copy


def _parameters(expert):
    """List the weights of an expert without its state, such as batch statistics."""
    # Weights of a frozen layer are parameters that are not trained. Those of a layer
    # with parts may be of a frozen part.
    state = {
        id(weight)
        for layer in all_layers(expert)
        if layer.trainable and len(all_layers(layer)) == 1
        for weight in layer.non_trainable_weights
    }
    return [weight for weight in expert.weights if id(weight) not in state]


def _split(inputs):
    """Split inputs and their mask along the axis of experts.

    A mask without this axis, of the batch, is that of each expert's input.
    """
    mask, parts = mask_of(inputs), unstack(inputs, 1)
    if mask is None:
        return parts
    masks = [mask] * len(parts) if len(mask.shape) == 1 else unstack(mask, 1)
    return [with_mask(*pair) for pair in zip(parts, masks, strict=True)]
