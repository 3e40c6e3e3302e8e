"""The tag gate."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.baselines._ids import look_up, require_ids
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.utils import check_count, shown


@GATES.register("tag")
class TagGate(Gate):
    r"""The expert of the example's tag.

    $$
    g_i(x) = 1[i = e_{t(x)}]
    $$

    where $t(x)$ is the tag of the example, such as its data set or domain, and $e_t$
    is the expert of tag $t$. The routing is fixed, without trainable parameters. The
    gate is per-example only.

    Args:
        experts_of_tags: A list with the number of an expert for each tag. With `None`,
            tag i has expert i.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: The tags: integers `(batch,)` or `(batch, 1)`, or
            `(batch, num_gates, 1)` with one tag for each gate. A tag out of range
            raises a `ValueError`; in compiled code, such as `fit`, its weights are NaN.
        experts, training: See `Gate`.

    Example:
        >>> gate = TagGate(experts_of_tags=[0, 2, 0])
        >>> tags = keras.ops.convert_to_tensor([1, 2])
        >>> mixed = gate(keras.ops.ones((2, 3, 5)), tags)
        >>> keras.ops.convert_to_numpy(gate.expert_weights(tags)).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 2 ("tag routing").
    """

    per_example_only = True

    def __init__(self, experts_of_tags: Sequence[int] | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.experts_of_tags: Any = experts_of_tags
        if experts_of_tags is not None:
            is_list = isinstance(experts_of_tags, (list, tuple, np.ndarray))
            if not is_list or not len(experts_of_tags):
                raise ValueError(
                    "`experts_of_tags` must be a list with an expert for each tag. "
                    f"Received: experts_of_tags={shown(experts_of_tags)}."
                )
            self.experts_of_tags = [
                check_count("experts_of_tags", expert, minimum=0)
                for expert in experts_of_tags
            ]

    def build_logits(self) -> None:
        require_ids(self, "tag")
        n, experts = self.num_experts, self.experts_of_tags
        experts = tuple(range(n) if experts is None else experts)
        if max(experts) >= n:
            raise ValueError(
                f"`experts_of_tags` must contain experts from 0 to {n - 1}, since "
                f"there are {n}. Received: experts_of_tags={[*experts]}."
            )
        self._experts = experts

    def max_experts(self, once_decided: bool = False) -> int:
        return 1

    def compute_weights(self, inputs, training, step) -> Routing:
        experts = ops.convert_to_tensor(self._experts, "int")
        places = ops.arange(self.num_experts, dtype="int")
        table = ops.cast(experts[:, None] == places, "float32")
        tags = inputs.routing_inputs
        weights = look_up(table, tags, len(self._experts), "tag")
        if self.num_gates is not None and len(weights.shape) == 2:
            weights = ops.repeat(weights[:, None], self.num_gates, axis=1)
        return Routing(weights)
