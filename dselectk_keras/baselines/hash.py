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
from dselectk_keras.utils import Tensor, check_count


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
    (tabulation hashing). Several gates hash independently. The gate is per-example
    only.

    Args:
        salt: A non-negative integer that changes the hash. `None` draws one, which is
            saved with the gate, so that each layer of a network has its own hash. A
            file of weights has it too: `load_weights` replaces the salt. A model that
            has run before must be compiled again.
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
        """Create no variables."""
        require_ids(self, "id")

    def max_experts(self, once_decided: bool = False) -> int:
        """Always one expert."""
        return 1

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute a one for the expert that the hash chooses."""
        check_ids(routing_inputs, "id")
        # Above 32 bits, so that gates with different salts never have the same salt.
        salt: Any = int(self.salt) << 32
        salts = tuple(salt + gate for gate in range(self.num_gates or 1))
        ids = ops.cast(routing_inputs, "int32")
        expert = ops.cast(hash_ids(ids, salts), "int") % self.num_experts
        # Not `one_hot`, for which torch reads the largest.
        experts = ops.arange(self.num_experts, dtype="int")
        weights = ops.cast(ops.expand_dims(expert, -1) == experts, "float32")
        return Routing(weights if self.num_gates else weights[:, 0])

    def save_own_variables(self, store: Any) -> None:
        """Save the variables and the salt."""
        super().save_own_variables(store)
        store["salt"] = np.asarray(self.salt, "int64")

    def load_own_variables(self, store: Any) -> None:
        """Load the variables and the salt."""
        values = {key: store[key] for key in store.keys()}  # noqa: SIM118 (no dict)
        self.salt = int(np.asarray(values.pop("salt")))
        super().load_own_variables(values)


def hash_ids(ids: Tensor, salts: tuple[int, ...]) -> Tensor:
    """Hash ids `(batch, [g,] 1)` of int32 with a hash for each salt, `(batch, g)`."""
    ids = ops.squeeze(ids, -1) if len(ids.shape) == 3 else ids
    # Integers of 32 bits cannot be shifted by 32 at once.
    shifted = [ops.right_shift(ids, shift) for shift in (0, 8, 16, 24, 31)]
    shifted[-1] = ops.right_shift(shifted[-1], 1)
    # On a GPU, TensorFlow computes with int32 on the host, but for shifts and xor.
    pairs = itertools.pairwise(ops.cast(each, "int") for each in shifted)
    starts = 4 * 256 * ops.arange(len(salts), dtype="int")
    # Not `bitwise_and`, which LiteRT lacks. It is right if a shift fills in zeros too.
    places = [low - 256 * high + starts for low, high in pairs]
    tables = ops.convert_to_tensor(_tables(salts))
    entries = [ops.take(tables, each + 256 * byte) for byte, each in enumerate(places)]
    return functools.reduce(ops.bitwise_xor, entries)


@functools.lru_cache(maxsize=32)
def _tables(salts):
    """Random numbers of 31 bits, 256 for each byte and salt."""
    # NumPy guarantees that the raw output of a bit generator never changes.
    draws = [np.random.PCG64(salt).random_raw(4 * 256) >> 33 for salt in salts]
    return np.concatenate(draws).astype("int32")
