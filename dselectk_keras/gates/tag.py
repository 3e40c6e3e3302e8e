"""The tag gate."""

import numpy as np
from keras import ops

from dselectk_keras.gates._ids import look_up, require_ids
from dselectk_keras.gates.gate import Gate, GateOutputs
from dselectk_keras.gates.registry import GATES


@GATES.register("tag")
class TagGate(Gate):
    r"""The experts that belong to an example's tag, with equal weights.

    $$
    g_i(x) = \frac{1[i \in E_{t(x)}]}{|E_{t(x)}|}
    $$

    where $t(x)$ is a tag of the example, such as its data set or its domain, and
    $E_t$ are the experts of tag $t$. Nothing is learned. The gate is per-example
    only.

    Args:
        experts_of_tags: A list with the expert of each tag, or a list of its experts.
            `None` is one expert for each tag: tag i has expert i.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: The tags, integers `(batch,)` or
            `(batch, 1)`, or `(batch, num_gates, 1)` for gates with a tag each. A tag
            out of range is a `ValueError`, but in compiled code, such as `fit`, it
            makes the weights NaN.
        experts, training: See `Gate`.

    Example:
        >>> gate = TagGate(experts_of_tags=[0, 2, [0, 1]])
        >>> tags = keras.ops.convert_to_tensor([1, 2])
        >>> mixed = gate(keras.ops.ones((2, 3, 5)), tags)
        >>> keras.ops.convert_to_numpy(gate.expert_weights(tags)).tolist()
        [[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]

    Reference:
        Muqeeth et al., "Soft Merging of Experts with Adaptive Routing", Section 4
        ("tag routing").
    """

    always_sparse = True
    per_example_only = True

    def __init__(self, experts_of_tags=None, **kwargs):
        super().__init__(**kwargs)
        if experts_of_tags is not None and not hasattr(experts_of_tags, "__len__"):
            raise ValueError(
                "`experts_of_tags` must be a list with an entry for each tag. "
                f"Received: {experts_of_tags!r}."
            )
        for experts in [] if experts_of_tags is None else experts_of_tags:
            several = isinstance(experts, (list, tuple))
            listed = experts if several else [experts]
            if (
                not listed
                or not all(_is_integer(expert) for expert in listed)
                or len(set(listed)) < len(listed)
            ):
                raise ValueError(
                    "`experts_of_tags` must have for each tag an expert's number, or "
                    "a list of different ones, such as [0, 2, [0, 1]]. Received for "
                    f"a tag: {experts!r}."
                )
        if experts_of_tags is not None and not len(experts_of_tags):
            raise ValueError(
                "`experts_of_tags` must have one tag or more. Received: an empty list. "
                "Leave it out to give each tag an expert of its own."
            )
        # Plain numbers, which can be saved.
        self.experts_of_tags = (
            None
            if experts_of_tags is None
            else [
                [int(i) for i in each] if hasattr(each, "__len__") else int(each)
                for each in list(experts_of_tags)
            ]
        )

    @property
    def max_experts(self):
        """The experts of the tag that has most."""
        tags = self.experts_of_tags or [0]
        return max(len(each) if isinstance(each, list) else 1 for each in tags)

    def build_logits(self):
        """Make the table of the tags' weights, which are constants."""
        require_ids(self, "tag")
        n = self.num_experts
        tags = range(n) if self.experts_of_tags is None else self.experts_of_tags
        self._table = np.zeros((len(tags), n), "float32")
        for tag, experts in enumerate(tags):
            listed = experts if isinstance(experts, (list, tuple)) else [experts]
            if not all(0 <= expert < n for expert in listed):
                raise ValueError(
                    f"`experts_of_tags` must name experts from 0 to {n - 1}, since "
                    f"there are {n}. Received for tag {tag}: {experts}."
                )
            self._table[tag, listed] = 1.0 / len(listed)

    def compute_weights(self, routing_inputs, training, step) -> GateOutputs:
        """The rows of the tags."""
        table = ops.convert_to_tensor(self._table)
        weights = look_up(table, routing_inputs, len(self._table), "tag")
        if self.num_gates is not None and len(weights.shape) == 2:
            weights = ops.repeat(weights[:, None], self.num_gates, axis=1)
        return GateOutputs(weights)

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "experts_of_tags": self.experts_of_tags}


def _is_integer(value):
    return hasattr(value, "__index__") and not isinstance(value, bool)
