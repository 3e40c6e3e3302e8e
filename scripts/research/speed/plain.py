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
        weights, lead = self._weights(x), "b" if self.workload.per_example else ""
        if not self.towers:  # A sum of the features, which commutes with the mixture.
            return ops.einsum(f"bn,{lead}tn->bt", ops.sum(outputs, axis=-1), weights)
        y = ops.einsum(f"bnh,{lead}tn->tbh", outputs, weights)
        for layer, (kernel, bias) in enumerate(self.towers, start=1):
            y = ops.matmul(y, kernel) + ops.expand_dims(bias, 1)
            y = ops.relu(y) if layer < len(self.towers) else y
        return ops.transpose(y[..., 0])

    def _weights(self, x):
        k, shape = self.workload.num_nonzeros, (-1, self.workload.num_tasks)
        if not self.workload.per_example:
            logits = [logit for (logit,) in self.logits]
        elif self.workload.gate == "top_k":
            logits = [
                ops.reshape(
                    ops.matmul(x, self.logits[0][0]), (*shape, self.bias.shape[0])
                )
            ]
        else:
            logits = [
                ops.reshape(ops.matmul(x, kernel), (-1, *bias.shape)) + bias
                for kernel, bias in self.logits
            ]
        if self.workload.gate == "top_k":
            least = ops.top_k(logits[0], k)[0][..., -1:]
            return ops.softmax(ops.where(logits[0] < least, -float("inf"), logits[0]))
        u = ops.clip(logits[0] + 0.5, 0.0, 1.0)
        bits = u * u * (3.0 - 2.0 * u)
        # Outer products of the bits, from the last: 2n multiplications in place of n m.
        lead, selectors = ops.shape(bits)[:-1], ops.ones_like(bits[..., :1])
        for bit in reversed(range(bits.shape[-1])):
            pair = ops.stack([1.0 - bits[..., bit], bits[..., bit]], axis=-1)
            selectors = pair[..., None] * selectors[..., None, :]
            selectors = ops.reshape(selectors, (*lead, -1))
        selectors = selectors[..., : self.bias.shape[0]]
        return ops.sum(ops.softmax(logits[1], axis=-2) * selectors, axis=-2)
