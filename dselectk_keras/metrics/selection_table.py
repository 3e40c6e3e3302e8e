"""How often examples of each class choose each expert."""

import keras
from keras import ops

from dselectk_keras.metrics._base import SelectionMetric
from dselectk_keras.utils import Tensor, check_choice


@keras.saving.register_keras_serializable("dselectk_keras")
class SelectionTable(SelectionMetric):
    r"""Number of examples of each class that choose each expert.

    $$
    N_{ye} = |\{x : y(x) = y, \; \mathrm{argmax}_i \, p(i|x) = e\}|
    $$

    Of equal largest weights the first is chosen.

    Args:
        num_experts: The number of experts.
        num_classes: The number of classes.
        normalize: `None` for counts; `"classes"` for $p(e|y)$, which sums to one for
            each class; `"experts"` for $p(y|e)$, which sums to one for each expert. A
            class or expert without examples has zeros.
        name: The metric's name in logs.

    Call arguments:
        labels: Tensor `(batch,)` or `(batch, 1)` of classes. Examples with a label
            outside [0, num_classes), or NaN, are ignored.
        weights: Tensor `(batch, n)`, the weights of one gate.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 tensor `(num_classes, num_experts)`, of the calls so far.

    Example:
        >>> metric = SelectionTable(num_experts=2, num_classes=3)
        >>> table = metric([0, 2, 2], [[0.9, 0.1], [0.2, 0.8], [0.0, 1.0]])
        >>> keras.ops.convert_to_numpy(table).tolist()
        [[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Figure 2, and
        Table 4 transposed.
    """

    def __init__(
        self,
        num_experts: int,
        num_classes: int,
        normalize: str | None = None,
        name: str = "selection_table",
    ) -> None:
        super().__init__(num_experts, num_classes, name)
        check_choice("normalize", normalize, (None, "classes", "experts"))
        self.normalize = normalize

    def result(self) -> Tensor:
        """The table so far."""
        if self.normalize is None:
            # A copy, which later updates do not change.
            return ops.copy(self.total)
        axis = 1 if self.normalize == "classes" else 0
        sums = ops.sum(self.total, axis=axis, keepdims=True)
        return ops.divide_no_nan(self.total, sums)
