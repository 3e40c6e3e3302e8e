"""The tag gate."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.baselines._ids import look_up, require_ids
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing

_SEQUENCES = (list, tuple, np.ndarray)


@GATES.register("tag")
class TagGate(Gate):
    r"""Equal weights on the experts of the example's tag.

    $$
    g_i(x) = \frac{1[i \in E_{t(x)}]}{|E_{t(x)}|}
    $$

    where $t(x)$ is the tag of the example, such as its data set or domain, and $E_t$
    are the experts of tag $t$. The routing is fixed, without trainable parameters. The
    gate is per-example only.

    Args:
        experts_of_tags: A list with one entry for each tag: an expert, or a list of
            experts. With `None`, tag i has expert i.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: The tags: integers `(batch,)` or `(batch, 1)`, or
            `(batch, num_gates, 1)` with one tag for each gate. A tag out of range
            raises a `ValueError`; in compiled code, such as `fit`, its weights are NaN.
        experts, training: See `Gate`.

    Example:
        >>> gate = TagGate(experts_of_tags=[0, 2, [0, 1]])
        >>> tags = keras.ops.convert_to_tensor([1, 2])
        >>> mixed = gate(keras.ops.ones((2, 3, 5)), tags)
        >>> keras.ops.convert_to_numpy(gate.expert_weights(tags)).tolist()
        [[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 2 ("tag routing").
    """

    per_example_only = True

    def __init__(
        self, experts_of_tags: Sequence[int | list[int]] | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.experts_of_tags = None
        if experts_of_tags is not None:
            if not hasattr(experts_of_tags, "__len__") or not len(experts_of_tags):
                raise ValueError(
                    "`experts_of_tags` must be a list with an entry for each tag. "
                    f"Received: {experts_of_tags!r}. Leave it out to give each tag "
                    "its own expert."
                )
            self.experts_of_tags = [_as_plain(experts) for experts in experts_of_tags]

    def build_logits(self) -> None:
        """Create the table of the tags' weights, which are constants."""
        require_ids(self, "tag")
        n = self.num_experts
        tags = range(n) if self.experts_of_tags is None else self.experts_of_tags
        self._table = np.zeros((len(tags), n), "float32")
        for tag, experts in enumerate(tags):
            chosen = _as_list(experts)
            if not all(0 <= expert < n for expert in chosen):
                raise ValueError(
                    f"`experts_of_tags` must contain experts from 0 to {n - 1}, since "
                    f"there are {n}. Received for tag {tag}: {experts}."
                )
            self._table[tag, chosen] = 1.0 / len(chosen)

    def max_experts(self, once_decided: bool = False) -> int:
        """The most experts of a tag."""
        return max(map(len, map(_as_list, self.experts_of_tags or [0])))

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Look up the rows of the tags."""
        table = ops.convert_to_tensor(self._table)
        weights = look_up(table, routing_inputs, len(self._table), "tag")
        if self.num_gates is not None and len(weights.shape) == 2:
            weights = ops.repeat(weights[:, None], self.num_gates, axis=1)
        return Routing(weights)


def _as_list(experts):
    return list(experts) if isinstance(experts, _SEQUENCES) else [experts]


def _as_plain(experts):
    """The experts of a tag as Python integers, which can be saved."""
    listed = _as_list(experts)
    integers = all(hasattr(i, "__index__") and not isinstance(i, bool) for i in listed)
    if not listed or not integers or len(set(listed)) < len(listed):
        raise ValueError(
            "`experts_of_tags` must have for each tag the number of an expert, or a "
            "list of different numbers, such as [0, 2, [0, 1]]. Received for a tag: "
            f"{experts!r}."
        )
    plain = [int(i) for i in listed]
    return plain if isinstance(experts, _SEQUENCES) else plain[0]
