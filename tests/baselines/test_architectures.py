"""The architectures among the baselines are what they say."""

from functools import partial

import keras
import numpy as np
import pytest
from baselines.test_l2_constrained import distance
from checks import assert_close, assert_equal
from helpers import numpy, refusals
from keras import layers
from models.test_build import X, Y, by_task, make, num_trained, same_weights

from dselectk_keras import DenseExperts, Experts, Task


@pytest.mark.backend_independent
def test_without_strength_l2_constrained_is_single_task():
    plain = make("single_task")
    model = make("l2_constrained", strength=0.0)
    same_weights(plain, model)
    assert_equal(by_task(model), by_task(plain))
    assert num_trained(model) == num_trained(plain)
    for each in (plain, model):
        each.fit(X, Y, epochs=2, verbose=0, shuffle=False)
    assert_equal(by_task(model), by_task(plain))


@pytest.mark.backend_independent
def test_the_l2_constraint_covers_the_towers_of_like_tasks():
    tasks = [Task("a", tower=(4,)), Task("b", tower=(4,)), Task("c", "binary")]
    model = make("l2_constrained", tasks=tasks, strength=0.5)
    model(X, training=True)
    banks = [model.get_layer("l2_constrained"), model.get_layer("towers_a_b")]
    banks.append(model.get_layer("towers_c"))  # Of one task: nothing to compare.
    expected = [0.5 * distance(bank.experts) for bank in banks]
    assert_close(model.losses, expected, rtol=1e-5)
    assert [each > 0 for each in expected] == [True, True, False]


@pytest.mark.backend_independent
def test_cross_stitch_networks_that_share_nothing_are_single_tasks():
    experts = DenseExperts(4, [5, 2], ["tanh", "relu"], dropout=0.1)
    plain = make("single_task", experts=experts)
    model = make("cross_stitch", experts=experts, initial_share=0.0)
    stitches = [model.get_layer(f"cross_stitch_{layer}") for layer in range(2)]
    kept = {id(stitch.matrix) for stitch in stitches}
    own = [weight for weight in model.trainable_variables if id(weight) not in kept]
    for weight, other in zip(own, plain.trainable_variables, strict=True):
        weight.assign(numpy(other))  # On JAX, a step deletes a buffer that is shared.
    assert_close(by_task(model), by_task(plain), rtol=1e-5, atol=1e-6)
    stitches[0].matrix.assign(np.eye(2)[::-1])
    assert (np.abs(by_task(model) - by_task(plain)) > 1e-3).any()
    names = [layer.name for layer in model.layers]
    assert names[2:4] == ["dropout_0", "cross_stitch_0"]
    assert names[5] == "cross_stitch_1"


@pytest.mark.backend_independent
def test_fixed_seeds_give_the_layers_of_cross_stitch_kernels_of_their_own():
    seeded = keras.initializers.RandomNormal(seed=1)
    experts = DenseExperts(2, [3, 3], kernel_initializer=seeded)
    first, second = (
        numpy(layer.weights[0])
        for layer in make("cross_stitch", experts=experts).layers
        if isinstance(layer, DenseExperts) and not layer.name.startswith("towers")
    )
    assert len({first[0, 0, 0], first[1, 0, 0], second[0, 0, 0]}) == 3


@pytest.mark.backend_independent
@pytest.mark.parametrize("name", ["cross_stitch", "tensor_factorization"])
def test_the_outputs_of_experts_keep_their_regularizer(name):
    experts = DenseExperts(2, [5, 3], "relu", activity_regularizer="l2")
    model = make(name, experts=experts)
    last = [layer for layer in model.layers if hasattr(layer, "call_slots")][-2]
    outputs = keras.Model(model.input, last.output)(X)
    wanted = layers.Activation("linear", activity_regularizer="l2")
    wanted(outputs)
    model(X)
    assert_close([*map(numpy, model.losses)], [*map(numpy, wanted.losses)], rtol=1e-5)


COPIES = Experts(layers.Dense(2), 2)
test_what_needs_dense_experts_is_refused_without = refusals(
    (lambda: make("tensor_factorization", ranks=(1, 1, 3)), "rank 3 for 2 experts"),
    *(
        (partial(make, experts=COPIES), f"{name!r} needs `DenseExperts`", name)
        for name in ["cross_stitch", "tensor_factorization"]
    ),
)
