"""The base class of all banks of experts."""

import abc
from collections.abc import Sequence
from typing import Any, Self

import keras

from dselectk_keras.utils import Configured, Shape, Tensor, check_shape


class ExpertBank(Configured, keras.Layer, abc.ABC):
    r"""A layer with `num_experts` sub-networks whose outputs have the same shape.

    $$
    x \mapsto \bigl(f_1(x), \dots, f_n(x)\bigr)
    $$

    A subclass sets `num_experts` and `shared_input`, and implements `call`. Whether its
    experts can be dispatched, merged or sliced is up to it.

    Call arguments:
        inputs: The input of every expert, with a batch axis first; with
            `shared_input=False` one input per expert, `(batch, n, ...)`.

    Returns:
        A tensor `(batch, n, ...)`.
    """

    num_experts: int
    shared_input: bool
    # Whether the bank has `call_slots`. "auto" evaluates all experts of a bank whose
    # widths are not known.
    can_dispatch = False

    @abc.abstractmethod
    def call(self, inputs: Tensor) -> Tensor:
        """Evaluate the experts."""

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> None:
        """Pass no mask on: that of the inputs does not fit the outputs.

        Without this method, Keras would warn about what a layer such as `MoE` does.
        """

    def call_slots(self, inputs: Tensor, owners: Tensor = None) -> Tensor:
        """Evaluate an expert on each block of examples, `(blocks * size, ...)`.

        The expert of each block is in `owners`, `(blocks,)`, in ascending order; by
        default, each expert has one block. A bank of your own may leave `owners` out:
        dispatch then gives each expert as many slots as the most chosen one needs, or
        evaluates all experts.
        """
        raise self._cannot("be dispatched")

    def parameters(self) -> list[Tensor]:
        """The experts' parameters, stacked: tensors `(n, ...)`."""
        raise self._cannot("be merged")

    def check_mergeable(self) -> None:
        """Raise an error if the experts cannot be merged."""
        if type(self).call_merged is ExpertBank.call_merged:
            raise self._cannot("be merged")
        if not self.shared_input or self.activity_regularizer is not None:
            raise ValueError(
                "Merged experts see one input, and have one output. Received: experts "
                f"with shared_input={self.shared_input} and activity_regularizer="
                f"{self.activity_regularizer!r}. Leave both out."
            )

    def call_merged(
        self,
        inputs: Tensor,
        weights: Tensor,
        per_example: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        r"""Evaluate experts whose parameters are weighted sums of all experts'.

        $$
        f\Bigl(x, \sum_i w_i \theta_i\Bigr)
        $$

        Args:
            inputs: The input of the merged experts, `(batch, ...)`.
            weights: The weights of one merged expert, `(n,)`, or of several,
                `(g, n)`; with `per_example`, `(batch, n)` or `(batch, g, n)`. A list
                of such tensors has one for each layer of the experts.
            per_example: Whether `weights` have a batch axis.
            training: Passed on to the experts.

        Returns:
            A tensor `(batch, ...)`, or `(batch, g, ...)`.
        """
        raise self._cannot("be merged")

    def sliced(self, indices: Sequence[int]) -> "ExpertBank":
        """A new, built bank with some of these experts, and their weights."""
        raise self._cannot("be sliced")

    def resized(self, num_experts: int, **changes: Any) -> "ExpertBank":
        """A new, unbuilt bank with another number of experts and other `changes`.

        It is trainable, even if this one is frozen.
        """
        config = {**self.get_config(), "num_experts": num_experts, **changes}
        config.pop("name")
        config.pop("trainable", None)
        return type(self).from_config(config)

    def build_like(self, other: "ExpertBank") -> Self:
        """Build this bank for the inputs of a built bank, and return it."""
        shape = other.get_build_config()["input_shape"]
        if not self.shared_input:
            shape = (shape[0], self.num_experts, *shape[2:])
        self.build(shape)
        return self

    def check_inputs(self, shape: Shape, rank: int = 1) -> None:
        """Raise an error if inputs lack axes, or that of experts if each has its own.

        Inputs of an expert need `rank` axes or more.
        """
        check_shape("input_shape", shape, rank)
        if not self.shared_input and (len(shape) < 3 or shape[1] != self.num_experts):
            raise ValueError(
                f"With shared_input=False the inputs need an axis of "
                f"{self.num_experts}, one entry per expert, after the batch axis. "
                f"Received: {tuple(shape)}."
            )

    def _cannot(self, what):
        return ValueError(
            f"The experts of {type(self).__name__} cannot {what}. Use `DenseExperts`, "
            "or `Experts` with copies of one layer."
        )
