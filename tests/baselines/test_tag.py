from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_equal
from gate_cases import Case
from helpers import numbers, numpy, on_host, refusals

from dselectk_keras import ImportanceRegularizer
from dselectk_keras.baselines import TagGate

CASES = [Case("tag", partial(TagGate, [0, 2, 3]), looks=("ids",), learns=False)]
N = 4


def built(experts_of_tags=None, routing=(None,), **settings):
    gate = TagGate(experts_of_tags, **settings)
    gate.build((None, N), routing)
    return gate


def tags(*values, dtype="int32"):
    return np.array(values, dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_any_integer_is_a_tag(dtype):
    for experts_of_tags, values, wanted in [
        (None, (2, 0, 3), [2, 0, 3]),
        ([3, 0, 3], (0, 1, 2, 0), [3, 0, 3, 3]),
        # More tags than a small integer can count.
        ([0, 1, 2] * 100, (101 if dtype == "int8" else 200, 3), [2, 0]),
    ]:
        found = built(experts_of_tags).expert_weights(tags(*values, dtype=dtype))
        assert_equal(found, np.eye(N)[wanted])


def test_tags_have_any_form_and_gates_share_them_or_have_their_own():
    for routing in [(None,), (None, 1)]:
        gate = built(routing=routing)
        for values in (tags(3, 1), tags(3, 1)[:, None]):
            assert_equal(gate.expert_weights(values), np.eye(N)[[3, 1]])
    shared = numpy(built(num_gates=2).expert_weights(tags(3, 1)))
    assert_equal(shared, np.eye(N)[[[3, 3], [1, 1]]])
    gate = built(num_gates=2, routing=(None, 2, 1))
    own = numpy(gate.expert_weights(tags([[3], [0]], [[1], [2]])))
    assert_equal(own, np.eye(N)[[[3, 0], [1, 2]]])


@pytest.mark.backend_independent
def test_the_experts_of_tags_may_be_an_array():
    assert TagGate(np.array([2, 0])).get_config()["experts_of_tags"] == [2, 0]


@pytest.mark.traced
@pytest.mark.parametrize("num_gates", [None, 3])
def test_in_compiled_code_a_tag_out_of_range_gives_nan(monkeypatch, num_gates):
    gate, values = built(num_gates=num_gates), tags(0, -1, 4, 3)
    compiled = gate.expert_weights
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        compiled, values = tf.function(compiled), tf.constant(values)
    elif keras.backend.backend() == "jax":
        import jax

        compiled = jax.jit(compiled)
    else:
        # Compiling takes torch too long; the gate is to believe it is compiled.
        monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    found = numpy(compiled(values))
    wrong = np.isnan(found).all(axis=tuple(range(1, found.ndim)))
    assert_equal(wrong, [False, True, True, False])
    assert np.isfinite(found[[0, 3]]).all()


def test_an_accelerator_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("dselectk_keras.baselines._ids._is_on_host", lambda _: False)
    found = numpy(built().expert_weights(tags(0, 4)))
    assert_equal(np.isnan(found).all(axis=1), [False, True])


on_a_processor = pytest.mark.skipif(
    not on_host(), reason="On a GPU, wrong ids give NaN."
)


@on_a_processor
@pytest.mark.parametrize("wrong", [-1, 2, 100, -(2**31)])
def test_a_tag_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=f"must be an integer from 0 to 1.*{wrong}"):
        built([1, 3]).expert_weights(tags(0, wrong))


@on_a_processor
@pytest.mark.backends("tensorflow", "torch", reason="JAX cuts integers to 32 bits.")
def test_a_large_tag_is_not_folded_into_the_range():
    with pytest.raises(ValueError, match="must be an integer from 0 to 3"):
        built().expert_weights(tags(0, 2**32 + 1, dtype="int64"))


test_what_cannot_be_is_refused = refusals(
    (
        TagGate,
        "`experts_of_tags` must be an integer >= 0",
        *([0, [1]], [0.5], ["a"], [True], [-1]),
    ),
    (built, r"from 0 to 3, since.*Received: .*\[0, 4\]", [0, 4]),
    (TagGate().build, r"TagGate is per-example.*no routing inputs", ((None, N),)),
    (built, r"needs one tag for each.*2 columns", {"routing": (None, 2)}),
    (
        built().expert_weights,
        r"Each tag must be an integer.*dtype float32",
        numbers((3,)),
    ),
    (
        built,
        "TagGate has no trainable weights",
        {"weights_regularizer": ImportanceRegularizer(0.1)},
    ),
)
