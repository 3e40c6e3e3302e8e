"""What every bank of experts is."""

import abc

import keras


class ExpertBank(keras.Layer, abc.ABC):
    r"""A layer with `num_experts` sub-networks whose outputs have one shape.

    $$
    x \mapsto \bigl(f_1(x), \dots, f_n(x)\bigr)
    $$

    Call arguments:
        inputs: What every expert sees, with a batch axis first.
        select: Numbers of the experts to evaluate, in the order wanted; `None` is
            all of them. What is left out costs nothing.

    Returns:
        A tensor `(batch, n, ...)`.
    """

    num_experts: int

    @abc.abstractmethod
    def call(self, inputs, select=None):
        """Evaluate the experts."""

    def resized(self, num_experts):
        """A new bank of the same kind with another number of experts.

        Args:
            num_experts: The number of experts of the new bank.

        Returns:
            An unbuilt bank.
        """
        config = {**self.get_config(), "num_experts": num_experts}
        config.pop("name")
        return type(self).from_config(config)


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
