"""What every bank of experts is."""

import abc
from typing import Any

import keras


class ExpertBank(keras.Layer, abc.ABC):
    r"""A layer with `num_experts` sub-networks whose outputs have one shape.

    $$
    x \mapsto \bigl(f_1(x), \dots, f_n(x)\bigr)
    $$

    Call arguments:
        inputs: What every expert sees, with a batch axis first; with
            `shared_input=False` what each sees, `(batch, n, ...)`.
        select: Numbers of the experts to evaluate, in the order wanted; `None` is
            all of them. What is left out costs nothing.
        return_hidden: Whether to give the hidden outputs as well.
        as_list: Whether a list of n tensors `(batch, ...)` will do, where the experts
            are computed one by one.

    Returns:
        A tensor `(batch, n, ...)`, or such a list; or two tensors, the second with
        the hidden outputs, which attentive gates look at.
    """

    num_experts: int
    shared_input: bool

    @abc.abstractmethod
    def call(self, inputs, select=None, return_hidden=False, as_list=False) -> Any:
        """Evaluate the experts."""

    @property
    def has_hidden(self) -> bool:
        """Whether the experts have a hidden output beside their output."""
        return False

    @property
    def can_dispatch(self) -> bool:
        """Whether the experts can be evaluated for some examples each."""
        return False

    def parameters(self) -> list[Any]:
        """The experts' trainable parameters, stacked: tensors `(n, ...)`."""
        raise ValueError(
            f"The parameters of {type(self).__name__} are not stacked by expert. "
            "Take `DenseExperts`, or `Experts` with copies of one layer."
        )

    def check_mergeable(self) -> Any:
        """Refuse experts that cannot be merged."""
        raise ValueError(
            f"The experts of {type(self).__name__} cannot be merged. Take "
            "`DenseExperts`, or `Experts` with copies of one layer."
        )

    def call_merged(self, inputs, weights, per_example=False, training=None) -> Any:
        r"""Evaluate experts whose parameters are mixtures, each in one pass.

        $$
        f\Bigl(x, \sum_i w_i \theta_i\Bigr)
        $$

        Args:
            inputs: What the merged experts see, `(batch, ...)`.
            weights: The weights of one merged expert, `(n,)`, or of several,
                `(g, n)`; with `per_example`, `(batch, n)` or `(batch, g, n)`. A list
                of such tensors has one for each layer of the experts.
            per_example: Whether `weights` have a batch axis.
            training: Passed on to the experts.

        Returns:
            A tensor `(batch, ...)`, or `(batch, g, ...)`.
        """
        return self.check_mergeable()

    def sliced(self, indices) -> Any:
        """A new bank with some of these experts, and where its weights come from.

        Args:
            indices: Numbers of the experts to keep.

        Returns:
            A built bank; and for each of its weights a pair of the variable of this
            bank that it comes from, and a function that takes it out of an array of
            that variable's shape.
        """
        raise ValueError(
            f"The experts of {type(self).__name__} cannot be taken apart. Take "
            "`DenseExperts` or `Experts`."
        )

    def resized(self, num_experts, **changes):
        """A new bank of the same kind with another number of experts.

        Args:
            num_experts: The number of experts of the new bank.
            **changes: Other arguments of the bank that are to change.

        Returns:
            An unbuilt bank. It is not frozen, even if this one is.
        """
        config = {**self.get_config(), "num_experts": num_experts, **changes}
        config.pop("name")
        config.pop("trainable", None)
        return type(self).from_config(config)


def built_like(bank, other):
    """Build a bank for the inputs that another was built for.

    Args:
        bank: A bank that is not built.
        other: A bank that is.
    """
    config = other.get_build_config()
    if not other.built or not config:
        raise ValueError(
            f"The bank {other.name!r} is not built yet, and has nothing to copy. Call "
            "the model first."
        )
    bank.build_from_config(config)


def check_selection(select, num_experts):
    """The experts to evaluate, as a list of their numbers.

    Args:
        select: `None` for all, or numbers below `num_experts`.
        num_experts: The number of experts in the bank.

    Returns:
        A list of integers.
    """
    if select is None:
        return list(range(num_experts))
    select = [int(i) for i in select]
    if not select or not all(0 <= i < num_experts for i in select):
        raise ValueError(
            f"`select` must name experts from 0 to {num_experts - 1}, one or more. "
            f"Received: select={select}."
        )
    return select


def check_own_inputs(inputs, num_selected):
    """Refuse inputs that do not have one for each expert.

    Args:
        inputs: Tensor, `(batch, n, ...)` if all is well.
        num_selected: The number of experts to be evaluated.
    """
    if len(inputs.shape) < 3 or inputs.shape[1] != num_selected:
        raise ValueError(
            f"With shared_input=False the inputs need an axis of {num_selected}, "
            f"one for each expert, after the batch. Received: {tuple(inputs.shape)}."
        )


def check_hidden(bank):
    """Refuse a bank whose experts have no hidden output.

    Args:
        bank: An `ExpertBank`.
    """
    if not bank.has_hidden:
        raise ValueError(
            "An attentive gate looks at the experts' hidden outputs, and the experts "
            f"of {bank.name!r} have none. Give `DenseExperts` two layers or more, or "
            "`Experts` the name of a layer in `hidden_layer`."
        )
