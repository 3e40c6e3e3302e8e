"""The hash gate."""

import functools
import itertools
import random
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.baselines._ids import check_ids, require_ids
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.utils import Tensor, add_counter, check_count


@GATES.register("hash")
class HashGate(Gate):
    r"""One expert for each example, by a fixed hash of its id.

    $$
    g_i(x) = 1[i = h(x) \bmod n], \qquad
    h(x) = \bigoplus_{b=0}^{3} T_b\bigl[\mathrm{byte}_b(x)\bigr]
    $$

    The routing is fixed, without trainable parameters. It is the same in every process,
    on every backend and device, and distributes ids evenly over the experts. The four
    bytes of an id index tables $T_b$ of random numbers, which depend only on the salt
    (tabulation hashing). They are weights that are not trained, so that a file keeps
    them. Several gates hash independently. The gate is per-example only.

    Args:
        salt: A non-negative integer that changes the hash. `None` draws one, so that
            each layer of a network has its own hash.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: Ids: integers `(batch,)` or `(batch, 1)`, or
            `(batch, num_gates, 1)`. Of larger ones, the lower 32 bits are hashed.
        experts, training: See `Gate`.

    Example:
        >>> gate = HashGate(salt=0)
        >>> ids = keras.ops.convert_to_tensor([3, 6, 3])
        >>> mixed = gate(keras.ops.ones((3, 8, 2)), ids)
        >>> chosen = keras.ops.argmax(gate.expert_weights(ids), axis=-1)
        >>> keras.ops.convert_to_numpy(chosen).tolist()
        [7, 4, 7]

    Reference:
        Roller et al., "Hash Layers For Large Sparse Models" (NeurIPS 2021), Section 4;
        Muqeeth et al., "SMEAR" (2023), Section 2; Pătraşcu and Thorup, "The Power of
        Simple Tabulation Hashing" (Journal of the ACM, 2012), Section 1.
    """

    per_example_only = True

    def __init__(self, salt: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if salt is None:
            salt = random.randrange(2**31)
        self.salt = check_count("salt", salt, minimum=0)

    def build_logits(self) -> None:
        """Create the tables, which are not trained."""
        require_ids(self, "id")
        # Above 32 bits, so that gates with different salts never have the same salt.
        salt = int(self.salt) << 32
        salts = range(salt, salt + (self.num_gates or 1))
        self._tables = add_counter(
            self,
            "tables",
            (len(salts), 4 * 256),
            lambda *_, **__: ops.convert_to_tensor(_random_tables(salts), "int"),
        )

    def max_experts(self, once_decided: bool = False) -> int:
        return 1

    def compute_weights(self, inputs, training, step) -> Routing:
        check_ids(inputs.routing_inputs, "id")
        ids = ops.cast(inputs.routing_inputs, "int32")
        hashes = hash_ids(ids, ops.convert_to_tensor(self._tables))
        expert = ops.cast(hashes, "int") % self.num_experts
        # Not `one_hot`, for which torch reads the largest.
        experts = ops.arange(self.num_experts, dtype="int")
        weights = ops.cast(ops.expand_dims(expert, -1) == experts, "float32")
        return Routing(weights if self.num_gates else weights[:, 0])


def hash_ids(ids: Tensor, tables: Tensor) -> Tensor:
    """Hash ids `(batch, [g,] 1)` of int32 with the tables `(g, 1024)`, `(batch, g)`."""
    ids = ops.squeeze(ids, -1) if len(ids.shape) == 3 else ids
    # Integers of 32 bits cannot be shifted by 32 at once.
    shifted = [ops.right_shift(ids, shift) for shift in (0, 8, 16, 24, 31)]
    shifted[-1] = ops.right_shift(shifted[-1], 1)
    # On a GPU, TensorFlow computes with int32 on the host, but for shifts and xor.
    pairs = itertools.pairwise(ops.cast(each, "int") for each in shifted)
    starts = 4 * 256 * ops.arange(tables.shape[0], dtype="int")
    # Not `bitwise_and`, which LiteRT lacks. It is right if a shift fills in zeros too.
    places = [low - 256 * high + starts for low, high in pairs]
    tables = ops.reshape(ops.cast(tables, "int32"), (-1,))
    entries = [ops.take(tables, each + 256 * byte) for byte, each in enumerate(places)]
    return functools.reduce(ops.bitwise_xor, entries)


def _random_tables(salts):
    """Draw random numbers of 31 bits, 256 for each byte, in a row for each salt."""
    # NumPy guarantees that the raw output of a bit generator never changes.
    draws = [np.random.PCG64(salt).random_raw(4 * 256) >> 33 for salt in salts]
    return np.stack(draws).astype("int32")
