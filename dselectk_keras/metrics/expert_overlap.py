"""The overlap of the experts that tasks use, per example."""

from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.metrics._base import METRICS, MeanMetric
from dselectk_keras.metrics._inputs import gate_tensor, used_mask
from dselectk_keras.utils import Tensor, check_choice, check_number


@METRICS.register("expert_overlap")
class ExpertOverlap(MeanMetric):
    r"""Mean over the examples of the Jaccard index of pairs of tasks.

    With $A_t(x)$ the set of experts that task $t$ uses for example $x$ (weight
    above the tolerance), the mean over examples and pairs $t < u$ of

    $$
    J(A_t, A_u) = \frac{|A_t \cap A_u|}{|A_t \cup A_u|}
    $$

    It is `jaccard_index` for per-example gates; two empty sets count as equal.

    Args:
        groups: One group label per task, or `None`: all tasks are one group.
        pairs: `"related"` for pairs of tasks in the same group, `"unrelated"` for pairs
            in different groups.
        tolerance: The largest weight that counts as not used.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, g, n)`, the weights of a gate for each of g tasks;
            or `(g, n)`, of a static gate.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mean over the calls so far, 0 before the first.

    Example:
        >>> metric = ExpertOverlap()
        >>> float(metric([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]))
        0.25

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """

    def __init__(
        self,
        groups: Any = None,
        pairs: str = "related",
        tolerance: float = 0.0,
        name: str = "expert_overlap",
    ) -> None:
        super().__init__(name)
        check_choice("pairs", pairs, ("related", "unrelated"))
        check_number("tolerance", tolerance, minimum=0)
        # Plain labels, which can be saved.
        self.groups = None if groups is None else np.asarray(groups).tolist()
        self.pairs = pairs
        self.tolerance = tolerance
        self._pair_mask(2 if groups is None else np.size(groups))

    def update_state(self, weights: Tensor, sample_weight: Tensor = None) -> None:
        """Add the overlaps of a batch."""
        layout = "(batch, g, n) or (g, n)"
        weights = gate_tensor("weights", weights, layout, 2, 3)
        mask = self._pair_mask(weights.shape[-2])
        sets = used_mask(weights, self.tolerance)
        shared = ops.matmul(sets, ops.swapaxes(sets, -1, -2))
        sizes = ops.sum(sets, axis=-1)
        union = ops.expand_dims(sizes, -1) + ops.expand_dims(sizes, -2) - shared
        index = ops.where(union == 0.0, 1.0, shared / ops.maximum(union, 1.0))
        overlap = ops.sum(ops.multiply(index, mask), axis=(-2, -1)) / float(mask.sum())
        self.add_batch(overlap, sample_weight)

    def _pair_mask(self, num_tasks):
        """Array (tasks, tasks) with ones for the pairs of interest."""
        groups = np.zeros(num_tasks) if self.groups is None else np.asarray(self.groups)
        if groups.shape != (num_tasks,):
            raise ValueError(
                f"`groups` must hold one label for each of the {num_tasks} tasks. "
                f"Received: groups={self.groups}. Give one label per gate."
            )
        same = groups[:, None] == groups[None, :]
        mask = np.triu(same if self.pairs == "related" else ~same, k=1)
        if not mask.any():
            raise ValueError(
                f"There must be a pair of {self.pairs} tasks. Received: {num_tasks} "
                f"tasks with groups={self.groups}. Give two tasks "
                f"{'one group' if self.pairs == 'related' else 'different groups'}."
            )
        return mask.astype("float32")
