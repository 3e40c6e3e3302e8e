"""Runs on synthetic data: which data they see, and what is kept."""

import numpy as np
import pytest

from dselectk_keras.utils import num_trained
from experiments import Job
from papers import EXPERIMENTS
from papers.mmoe import _synthetic

# A few steps of many models: TensorFlow would trace graphs most of the time.

FIG3 = EXPERIMENTS["mmoe-fig3"]


def test_seeds_in_a_row_share_their_data():
    experiment = FIG3(starts=3, num_train=4, num_held_out=4)
    first, third, fourth = (experiment.data(0.5, seed).train.x for seed in (0, 2, 3))
    np.testing.assert_array_equal(first, third)
    assert not np.array_equal(first, fourth)


def test_a_run_is_the_same_in_any_company():
    experiment = FIG3(starts=2, num_train=64, num_held_out=32, epochs=2, batch_size=32)
    jobs = [Job(seed, {}) for seed in (1, 2, 0)]
    together = experiment.train("MMoE", 0.9, jobs)
    alone = [experiment.train("MMoE", 0.9, [job])[0] for job in jobs]
    for one, other in zip(together, alone, strict=True):
        assert one["curve"] == pytest.approx(other["curve"], rel=1e-3)
    losses = [found["loss"] for found in together]
    assert len(set(losses)) == 3
    assert len(together[0]["curve"]) == 2


def test_what_is_kept_is_a_mean_over_tasks():
    logs = [
        {"a_loss": 1.0, "b_loss": 3.0, "val_a_loss": 2.0, "val_b_loss": 2.4691},
        {"a_loss": 0.5, "b_loss": 0.7, "val_a_loss": 1.0, "val_b_loss": 2.0},
    ]
    assert _synthetic.read(logs, ["a", "b"]) == {
        "loss": 1.5,
        "train_loss": pytest.approx(0.6),
        "curve": [2.235, 1.5],
    }


def test_models_have_the_sizes_of_the_paper():
    counts = {
        model: num_trained(_synthetic.build(model, 0, 0.1))
        for model in _synthetic.MODELS
    }
    towers = 2 * (8 + 8 + 1)  # Biases, and the output unit.
    experts = 100 * 16 * 8 + 16 * 8 * 2 + 16 * 8
    assert counts == {
        "Shared-Bottom": 100 * 113 + 113 + 113 * 8 * 2 + towers,
        "OMoE": experts + 100 * 8 + towers,
        "MMoE": experts + 2 * 100 * 8 + towers,
    }


def test_steps_count_the_smaller_last_batch():
    experiment = FIG3(num_train=10, batch_size=4)

    class Made:
        def of(self, _):
            return [type("Run", (), {"numbers": {"curve": [3.0, 2.0, 1.0]}})]

    assert experiment.steps(Made(), "p = 0.5").tolist() == [3, 6, 9]


def test_only_several_learning_rates_are_tuned():
    assert FIG3().space("p = 0.5") == {}
    several = FIG3(learning_rates=(0.1, 0.2))
    assert several.space("p = 0.5") == {"learning_rate": (0.1, 0.2)}
