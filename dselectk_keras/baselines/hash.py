"""The hash gate."""

import random
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.baselines._hash_integers import hash_integers
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.utils import check_count


@GATES.register("hash")
class HashGate(Gate):
    r"""One expert for each example, by a fixed hash of its id.

    $$
    g_i(x) = 1[i = h(x) \bmod n]
    $$

    The routing is fixed, without trainable parameters. The hash is the same in every
    process, on every backend and device, and distributes ids evenly over the experts.
    Several gates hash independently. The gate is per-example only.

    Args:
        salt: A non-negative integer that changes the hash. `None` draws one, which is
            saved with the gate, so that each layer of a network has its own hash. A
            file of weights has it too: `load_weights` replaces the salt. A model that
            has run before must be compiled again.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: Ids: integers `(batch,)`, `(batch, 1)` or `(batch, columns)`.
            All columns are hashed together. By default JAX truncates ids to 32 bits.
            Floats are hashed by their bits in the gate's compute dtype, with -0.0 as
            0.0, so that any other change of a feature may change the expert.
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
        Muqeeth et al., "SMEAR" (2023), Section 2.
    """

    per_example_only = True

    def __init__(self, salt: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if salt is None:
            salt = random.randrange(2**31)
        self.salt = check_count("salt", salt, minimum=0)

    def build_logits(self) -> None:
        """Create no variables."""

    def max_experts(self, once_decided: bool = False) -> int:
        """Always one expert."""
        return 1

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute a one for the expert that the hash chooses."""
        ids = routing_inputs
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(ids.dtype)):
            # The layer's call has cast the floats; `expert_weights` has not.
            x = ops.cast(ops.cast(ids, self.compute_dtype), "float32")
            bits = ops.view(x, "int32")
            # Find -0.0 by its bits: some CPUs compare tiny floats as equal to 0.
            ids = ops.where(bits == -(2**31), 0, bits)
        # Above 32 bits, so that gates with different salts never have the same salt.
        salt: Any = int(self.salt) << 32
        if self.num_gates is not None:
            salt = [salt + gate for gate in range(self.num_gates)]
            ids = ids if len(ids.shape) == 3 else ops.expand_dims(ids, 1)
        expert = hash_integers(ids, self.num_experts, salt)
        one_hot = ops.one_hot(expert, self.num_experts)
        return Routing(ops.cast(one_hot, "float32"))

    def save_own_variables(self, store: Any) -> None:
        """Save the variables and the salt."""
        super().save_own_variables(store)
        store["salt"] = np.asarray(self.salt, "int64")

    def load_own_variables(self, store: Any) -> None:
        """Load the variables and the salt."""
        values = {key: store[key] for key in store.keys()}  # noqa: SIM118 (no dict)
        self.salt = int(np.asarray(values.pop("salt")))
        super().load_own_variables(values)
