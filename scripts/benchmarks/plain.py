"""A plain Keras model of a workload, for comparison: nothing in it is general."""

import itertools

import keras
import numpy as np
from keras import ops


class PlainModel(keras.Model):
    """Experts, gates, mixtures and towers of a workload, each one product.

    Its variables have the shapes of those of a bank, but for the experts' kernel
    `(features, n * units)`, which needs no transpose. The outputs are one tensor
    `(batch, tasks)`.
    """

    def __init__(self, workload):
        super().__init__()
        n, t, k = workload.num_experts, workload.num_tasks, workload.num_nonzeros
        d, units = workload.num_features, workload.units
        bits = (n - 1).bit_length()
        self.workload = workload
        self.codes = np.arange(n)[:, None] >> np.arange(bits)[::-1] & 1 == 1
        self.kernel = self.add_weight((d, n * units), "glorot_uniform")
        self.bias = self.add_weight((n, units), "zeros")
        top_k = workload.gate == "top_k"
        shapes = [(t, n)] if top_k else [(t, k, bits), (t, k, 1)]
        self.logits = [self._add_logits(shape, d, bias=not top_k) for shape in shapes]
        widths = [] if workload.tower == "sum" else [units, *workload.tower, 1]
        self.towers = [
            (self.add_weight((t, a, b), "glorot_uniform"), self.add_weight((t, b)))
            for a, b in itertools.pairwise(widths)
        ]

    def _add_logits(self, shape, num_features, bias):
        if not self.workload.per_example:
            return [self.add_weight(shape, "random_uniform")]
        kernel = self.add_weight((num_features, np.prod(shape)), "random_uniform")
        return [kernel, self.add_weight(shape, "zeros")] if bias else [kernel]

    def call(self, x):
        """Compute the predictions `(batch, tasks)`."""
        outputs = ops.reshape(ops.matmul(x, self.kernel), (-1, *self.bias.shape))
        outputs = ops.relu(outputs + self.bias)
        if not self.towers:  # A sum of the features, which commutes with the mixture.
            outputs = ops.sum(outputs, axis=-1, keepdims=True)
        lead = "b" if self.workload.per_example else ""
        y = ops.einsum(f"bnh,{lead}tn->bth", outputs, self._weights(x))
        for layer, (kernel, bias) in enumerate(self.towers, start=1):
            y = ops.einsum("bth,thu->btu", y, kernel) + bias
            y = ops.relu(y) if layer < len(self.towers) else y
        return y[..., 0]

    def _weights(self, x):
        k, shape = self.workload.num_nonzeros, (-1, self.workload.num_tasks)
        if not self.workload.per_example:
            logits = [logit for (logit,) in self.logits]
        elif self.workload.gate == "top_k":
            logits = [
                ops.reshape(ops.matmul(x, self.logits[0][0]), (*shape, len(self.codes)))
            ]
        else:
            logits = [
                ops.reshape(ops.matmul(x, kernel), (-1, *bias.shape)) + bias
                for kernel, bias in self.logits
            ]
        if self.workload.gate == "top_k":
            least = ops.top_k(logits[0], k)[0][..., -1:]
            return ops.softmax(ops.where(logits[0] < least, -float("inf"), logits[0]))
        u = ops.expand_dims(ops.clip(logits[0] + 0.5, 0.0, 1.0), -2)
        bits = u * u * (3.0 - 2.0 * u)
        selectors = ops.prod(ops.where(self.codes, bits, 1.0 - bits), axis=-1)
        return ops.sum(ops.softmax(logits[1], axis=-2) * selectors, axis=-2)
