from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_equal
from gate_cases import Case
from helpers import numpy, refusals
from keras import ops

from dselectk_keras.baselines import HashGate

CASES = [Case("hash", partial(HashGate, 0), looks=("ids",), learns=False)]


def hashing(n=8, salt=0, routing=(None,), **settings):
    gate = HashGate(salt, **settings)
    gate.build((None, n), routing)
    return gate


def experts_of(gate, ids):
    weights = numpy(gate.expert_weights(ids))
    assert set(np.unique(weights)) <= {0.0, 1.0}
    assert_equal(weights.sum(axis=-1), 1)
    return weights.argmax(axis=-1)


@pytest.mark.backend_independent
def test_it_never_changes():
    # Models that are saved depend on these numbers: another process, backend or release
    # has to give the same.
    ids = np.array([*range(12), 255, 256, 65536, 2**31 - 1, -1], "int32")
    golden = [3, 0, 0, 7, 0, 0, 4, 3, 7, 7, 2, 0, 6, 5, 7, 5, 3]
    assert experts_of(hashing(), ids).tolist() == golden
    golden_salt = [5, 0, 0, 2, 5, 7, 0, 1, 5, 2, 4, 6]
    assert experts_of(hashing(salt=1), ids[:12]).tolist() == golden_salt


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_the_kind_and_the_form_of_ids_do_not_matter(dtype):
    ids = np.array([0, 1, 5, 127, *([] if dtype[0] == "u" else [-1, -128])])
    found = experts_of(hashing(), ids.astype(dtype))
    assert_equal(found, experts_of(hashing(), ids.astype("int32")))
    ids = np.arange(50, dtype="int32")
    assert_equal(experts_of(hashing(), ids[:, None]), experts_of(hashing(), ids))


@pytest.mark.backend_independent
@pytest.mark.parametrize("salt", [0, 1])
@pytest.mark.parametrize("start", [0, -500, 10**6])
def test_consecutive_ids_spread_evenly(salt, start):
    ids = np.arange(start, start + 1000, dtype="int32")
    counts = np.bincount(experts_of(hashing(salt=salt), ids), minlength=8)
    # Each count has a standard deviation of 10.5 around 125.
    assert abs(counts - 125).max() < 42


@pytest.mark.backend_independent
def test_salts_and_gates_are_independent():
    ids = np.arange(4000, dtype="int32")
    pair = (experts_of(hashing(salt=salt), ids) for salt in (1, 2))
    together = np.histogram2d(*pair, bins=8)[0]
    # 62.5 in each of 64 cells, with a standard deviation of 7.8.
    assert abs(together - 62.5).max() < 35
    ids = np.arange(500, dtype="int32")
    found = [experts_of(hashing(num_gates=3, salt=salt), ids).T for salt in (0, 1, 2)]
    rows = np.concatenate(found)
    equal = (rows[:, None] == rows[None]).mean(axis=-1)
    assert_equal(equal > 0.5, np.eye(9, dtype=bool))


@pytest.mark.backend_independent
def test_each_gate_draws_its_own_salt_and_keeps_it():
    keras.utils.set_random_seed(0)
    gates = [HashGate() for _ in range(3)]
    ids = np.arange(500, dtype="int32")
    rows = []
    for gate in gates:
        gate.build((None, 8), (None,))
        rows.append(experts_of(gate, ids))
        assert_equal(experts_of(hashing(**gate.get_config()), ids), rows[-1])
    equal = (np.array(rows)[:, None] == np.array(rows)).mean(axis=-1)
    assert_equal(equal > 0.5, np.eye(3, dtype=bool))
    keras.utils.set_random_seed(0)
    assert [HashGate().salt for _ in range(3)] == [gate.salt for gate in gates]


def test_ids_are_not_cut_to_half_precision():
    gate = hashing(1000, dtype="float16")
    ids = np.arange(4096, 4200, dtype="int32")
    experts = np.tile(np.arange(1000.0, dtype="float32")[:, None], (104, 1, 1))
    called = numpy(ops.cast(gate((experts, ids)), "float32"))[:, 0]
    assert_equal(called, experts_of(gate, ids))
    assert len(set(called)) > 90


@pytest.mark.traced
def test_compiled_code_gives_the_same():
    gate, ids = hashing(), np.arange(50, dtype="int32")
    wanted = numpy(gate.expert_weights(ids))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for xla in (False, True):
            compiled = tf.function(gate.expert_weights, jit_compile=xla)
            assert_equal(compiled(tf.constant(ids)), wanted)
    elif keras.backend.backend() == "jax":
        import jax

        assert_equal(jax.jit(gate.expert_weights)(ids), wanted)


test_what_has_no_ids_is_refused = refusals(
    (
        hashing().expert_weights,
        r"Each id must be an integer.*float32",
        np.ones((3,), "float32"),
    ),
    (HashGate().build, r"needs one id for each.*2 columns", ((None, 8), (None, 2))),
    (
        HashGate().build,
        r"HashGate is per-example.*: no rout",
        ((None, 8),),
        [(None, 2)] * 3,
    ),
    (HashGate, "`salt` must be an integer >= 0", -1, 1.5, True, "a"),
)
