"""A bank of any layers."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import ExpertBank, check_selection
from dselectk_keras.utils import check_count, revive


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
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: What every expert sees.
        select: Numbers of the experts to evaluate; `None` is all.

    Returns:
        A tensor `(batch, n, ...)`.

    Example:
        >>> experts = Experts(keras.layers.Conv2D(4, 3), num_experts=2)
        >>> experts(keras.ops.ones((1, 8, 8, 1))).shape
        (1, 2, 6, 6, 4)
    """

    def __init__(self, template, num_experts: Any = None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(template, (list, tuple)):
            experts = [revive(layer) for layer in template]
            if num_experts not in {None, len(experts)} or not experts:
                raise ValueError(
                    "A list of layers is the bank: leave `num_experts` out. Received: "
                    f"{len(experts)} layers and num_experts={num_experts}."
                )
        else:
            check_count("num_experts", num_experts)
            template = revive(template)
            experts = [_copy(template, i) for i in range(num_experts)]
        if not all(isinstance(expert, keras.Layer) for expert in experts):
            raise ValueError(
                "The template must be a Keras layer or model, or a list of them. "
                f"Received: {template!r}."
            )
        self.num_experts = len(experts)
        self.experts: Any = experts

    def build(self, input_shape):
        """Build every expert."""
        for expert in self.experts:
            if not expert.built:
                expert.build(input_shape)
        self.built = True

    def call(self, inputs, select=None):
        """Evaluate the experts one by one and stack what they give."""
        selected = check_selection(select, self.num_experts)
        outputs = [self.experts[i](inputs) for i in selected]
        shapes = {tuple(output.shape) for output in outputs}
        if len(shapes) > 1:
            raise ValueError(
                "All experts of a bank must give the same shape. Received: "
                f"{', '.join(map(str, sorted(shapes, key=str)))}. Give their last "
                "layers the same number of units."
            )
        return ops.stack(outputs, axis=1)

    def get_config(self):
        """The experts themselves, so that each keeps its config."""
        return {
            **super().get_config(),
            "template": [
                keras.saving.serialize_keras_object(expert) for expert in self.experts
            ],
        }

    def resized(self, num_experts):
        """A new bank of copies of the first expert.

        Args:
            num_experts: The number of experts of the new bank.

        Returns:
            An unbuilt bank.
        """
        return Experts(self.experts[0], num_experts, dtype=self.dtype_policy)


def _copy(template, i):
    """A fresh copy of a layer, with its fixed seeds moved so that it is another."""
    if not isinstance(template, keras.Layer):
        return template
    config = _reseed(template.get_config(), 1_000_003 * i)
    config["name"] = f"expert_{i}"
    return type(template).from_config(config)


def _reseed(config, offset) -> Any:
    if isinstance(config, dict):
        return {
            key: value + offset
            if key == "seed" and isinstance(value, int)
            else _reseed(value, offset)
            for key, value in config.items()
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_reseed(value, offset) for value in config)
    return config
