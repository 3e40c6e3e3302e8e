import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy
from keras import ops

from dselectk_keras import HashGate
from dselectk_keras.baselines._hash_integers import hash_integers

CASES = [
    Case(
        "hash",
        lambda **kwargs: HashGate(salt=0, **kwargs),
        looks=("ids",),
        learns=False,
    ),
]


backend = keras.backend.backend


def built(n=8, columns=None, **settings):
    gate = HashGate(**{"salt": 0, **settings})
    gate.build((None, n), (None,) if columns is None else (None, columns))
    return gate


def experts_of(gate, ids):
    weights = numpy(gate.expert_weights(ids))
    assert set(np.unique(weights)) <= {0.0, 1.0}
    np.testing.assert_array_equal(weights.sum(axis=-1), 1)
    return weights.argmax(axis=-1)


def test_it_never_changes():
    # Models that are saved depend on these numbers.
    assert experts_of(built(), np.arange(12, dtype="int32")).tolist() == GOLDEN
    salted = experts_of(built(salt=1), np.arange(12, dtype="int32"))
    assert salted.tolist() == GOLDEN_SALT
    floats = np.array([[0.0, 1.5], [-2.25, 1e-30], [3e38, 0.1]], "float32")
    assert experts_of(built(100, columns=2), floats).tolist() == GOLDEN_FLOATS


GOLDEN = [3, 0, 0, 7, 0, 0, 4, 3, 7, 7, 2, 0]
GOLDEN_SALT = [5, 0, 0, 2, 5, 7, 0, 1, 5, 2, 4, 6]
GOLDEN_FLOATS = [61, 29, 57]


def test_a_column_of_ids_is_a_vector_of_ids():
    ids = np.arange(50, dtype="int32")
    found = experts_of(built(), ids)
    np.testing.assert_array_equal(experts_of(built(), ids[:, None]), found)
    np.testing.assert_array_equal(experts_of(built(columns=1), ids[:, None]), found)


def test_no_gate_has_the_salt_of_another_layers():
    ids = np.arange(500, dtype="int32")
    found = [experts_of(built(num_gates=3, salt=salt), ids).T for salt in (0, 1, 2)]
    rows = np.concatenate(found)
    equal = (rows[:, None] == rows[None]).mean(axis=-1)
    np.testing.assert_array_equal(equal > 0.5, np.eye(9, dtype=bool))


def test_each_gate_draws_its_own_salt_and_keeps_it():
    keras.utils.set_random_seed(0)
    gates = [HashGate() for _ in range(3)]
    ids = np.arange(500, dtype="int32")
    rows = []
    for gate in gates:
        gate.build((None, 8), (None,))
        rows.append(experts_of(gate, ids))
        rebuilt = HashGate.from_config(gate.get_config())
        rebuilt.build((None, 8), (None,))
        np.testing.assert_array_equal(experts_of(rebuilt, ids), rows[-1])
    equal = (np.array(rows)[:, None] == np.array(rows)).mean(axis=-1)
    np.testing.assert_array_equal(equal > 0.5, np.eye(3, dtype=bool))
    keras.utils.set_random_seed(0)
    assert [HashGate().salt for _ in range(3)] == [gate.salt for gate in gates]


def test_gates_may_look_at_an_id_each():
    ids = np.arange(60, dtype="int32").reshape(20, 3)
    gate = HashGate(salt=0, num_gates=3)
    gate.build((None, 8), (None, 3, 1))
    found = experts_of(gate, ids[:, :, None])
    for i in range(3):
        shared = experts_of(built(num_gates=3), ids[:, i])
        np.testing.assert_array_equal(found[:, i], shared[:, i])


def test_floats_are_hashed_by_their_bits():
    x = numbers((300, 2))
    gate = built(1000, columns=2)
    wanted = hash_integers(x.view("int32"), 1000)
    np.testing.assert_array_equal(experts_of(gate, x), numpy(wanted))
    nearby = experts_of(gate, np.nextafter(x, 9, dtype="float32"))
    assert (nearby == experts_of(gate, x)).mean() < 0.02


def test_minus_zero_is_zero():
    gate = built(1000)
    x = np.array([0.0, -0.0, 1e-30, 1e-40, -1e-40], "float32")
    found = experts_of(gate, x).tolist()
    assert found[0] == found[1]
    assert len(set(found)) == 4


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_float16"])
def test_a_call_and_the_weights_agree_in_half_precision(policy):
    gate = built(columns=2, dtype=policy)
    experts = np.tile(np.arange(8.0, dtype="float32")[:, None], (100, 1, 1))
    x = numbers((100, 2))
    called = numpy(ops.cast(gate((experts, x)), "float32"))[:, 0]
    np.testing.assert_array_equal(called, experts_of(gate, x))


def test_ids_are_not_cut_to_half_precision():
    gate = built(1000, dtype="float16")
    ids = np.arange(4096, 4200, dtype="int32")
    experts = np.tile(np.arange(1000.0, dtype="float32")[:, None], (104, 1, 1))
    called = numpy(ops.cast(gate((experts, ids)), "float32"))[:, 0]
    np.testing.assert_array_equal(called, experts_of(gate, ids))
    assert len(set(called)) > 90


@pytest.mark.traced
def test_compiled_code_gives_the_same():
    gate, ids, x = built(), np.arange(50, dtype="int32"), numbers((50,))
    if backend() == "tensorflow":
        import tensorflow as tf

        for xla in (False, True):
            compiled = tf.function(gate.expert_weights, jit_compile=xla)
            for inputs in (ids, x):
                found = compiled(tf.constant(inputs)).numpy()
                np.testing.assert_array_equal(found, numpy(gate.expert_weights(inputs)))
    elif backend() == "jax":
        import jax

        for inputs in (ids, x):
            found = np.asarray(jax.jit(gate.expert_weights)(inputs))
            np.testing.assert_array_equal(found, numpy(gate.expert_weights(inputs)))


def test_a_static_gate_is_refused():
    for shape in [(None, 8), [(None, 2)] * 3]:
        with pytest.raises(ValueError, match=r"HashGate is per-example.*: no rout"):
            HashGate().build(shape)


@pytest.mark.parametrize("salt", [-1, 1.5, True, "a"])
def test_a_salt_is_a_natural_number(salt):
    with pytest.raises(ValueError, match="`salt` must be an integer >= 0"):
        HashGate(salt=salt)
