"""How far tasks share experts, over examples."""

import numpy as np
import pytest

from dselectk_keras.metrics import ExpertOverlap, jaccard_index

# The expert sets {0, 1}, {1, 2}, {0, 1, 2}, {3} of four tasks, then {0}, {0}, {1}, {1}.
WEIGHTS = np.zeros((2, 4, 4), "float32")
WEIGHTS[0] = [[0.5, 0.5, 0, 0], [0, 0.9, 0.1, 0], [0.2, 0.3, 0.5, 0], [0, 0, 0, 1]]
WEIGHTS[1, [0, 1, 2, 3], [0, 0, 1, 1]] = 1.0


def test_by_hand():
    # 01: 1/3, 02: 2/3, 12: 2/3, all pairs with 3: 0; then 01: 1, 23: 1.
    found = float(ExpertOverlap()(WEIGHTS))
    assert found == pytest.approx(((5 / 3) / 6 + 2 / 6) / 2)


@pytest.mark.parametrize("groups", [[0, 1, 0, 1], ["cats", "dogs", "cats", "dogs"]])
def test_groups_take_the_pairs_apart(groups):
    related = float(ExpertOverlap(groups)(WEIGHTS))
    unrelated = float(ExpertOverlap(groups, pairs="unrelated")(WEIGHTS))
    assert related == pytest.approx((2 / 3 + 0 + 0 + 0) / 4)  # 02, 13, twice
    assert unrelated == pytest.approx((1 / 3 + 2 / 3 + 0 + 0 + 1 + 0 + 0 + 1) / 8)


def test_the_mean_of_what_the_function_gives():
    rng = np.random.default_rng(0)
    groups = [0, 1, 1, 0]
    for tolerance in (0.0, 0.1, 0.2, 0.3):
        weights = rng.random((2, 4, 4)) * (rng.random((2, 4, 4)) < 0.5)
        weights = weights.astype("float32")
        each = [jaccard_index(example, groups, tolerance) for example in weights]
        for pairs in ("related", "unrelated"):
            metric = ExpertOverlap(groups, pairs, tolerance)
            wanted = np.mean([getattr(index, pairs) for index in each])
            assert float(metric(weights)) == pytest.approx(wanted, rel=1e-6)


def test_a_static_gate():
    found = float(ExpertOverlap()(WEIGHTS[0]))
    assert found == pytest.approx(jaccard_index(WEIGHTS[0]).related)


def test_two_empty_sets_count_as_equal():
    weights = np.full((2, 4, 4), 0.25)
    assert float(ExpertOverlap(tolerance=0.5)(weights)) == 1.0


def test_sample_weights():
    found = float(ExpertOverlap()(WEIGHTS, sample_weight=[1, 2]))
    assert found == pytest.approx(((5 / 3) / 6 + 2 * 2 / 6) / 3)


def test_float16_weights():
    assert float(ExpertOverlap()(WEIGHTS.astype("float16"))) == float(
        ExpertOverlap()(WEIGHTS)
    )


def test_a_diverged_gate_shows():
    weights = WEIGHTS.copy()
    weights[0, 0, 0] = np.nan
    assert np.isnan(float(ExpertOverlap()(weights)))


@pytest.mark.parametrize("groups", [np.array([0, 1, 0, 1]), range(4), ("a", "b")])
def test_groups_of_any_kind_are_saved_as_a_list(groups):
    config = ExpertOverlap(groups, pairs="unrelated").get_config()
    assert config["groups"] == list(groups)
    assert type(config["groups"][0]) in {int, str}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": "all"}, r"`pairs` must be one of 'related', 'unrelated'\. Received"),
        ({"tolerance": -1}, r"`tolerance` must be .* at least 0"),
        ({"pairs": "unrelated"}, r"pair of unrelated tasks\. .*groups=None"),
        ({"groups": [0, 1, 2]}, r"pair of related tasks\. .*groups=\[0, 1, 2\]"),
        ({"groups": [[0, 0]]}, r"`groups` must hold one label for each"),
        ({"groups": 3}, r"`groups` must hold one label for each"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExpertOverlap(**arguments)


def test_weights_are_those_of_tasks():
    with pytest.raises(
        ValueError, match=r"shape \(batch, g, n\) or \(g, n\)\. Received"
    ):
        ExpertOverlap().update_state(np.ones(4))
    with pytest.raises(ValueError, match=r"pair of related tasks\. Received: 1 tasks"):
        ExpertOverlap().update_state(np.ones((5, 1, 4)))
    with pytest.raises(ValueError, match=r"one label for each of the 4 tasks"):
        ExpertOverlap(groups=[0, 0]).update_state(WEIGHTS)
