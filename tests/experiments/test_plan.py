"""What an experiment needs is said before it runs."""

import dataclasses

from experiments import Experiment, Results, Run, preset
from experiments.plan import plan


@dataclasses.dataclass(frozen=True)
class Tuned(Experiment):
    name = "tuned"
    title = "two arms, of which one is tuned"
    needs = ("pictures", 1_000)

    num_train: int | None = preset(1_000, paper=None)
    epochs: tuple[int, ...] = preset((2,), paper=(10, 30))
    trials: int = 3
    seeds: int = 5
    trial_runs: int = 2
    all_train = 1_000_000

    @property
    def arms(self):
        return {"tuned": 1, "fixed": 2}

    def space(self, arm):
        return {"rate": (0.1, 0.2, 0.3, 0.4)} if arm == "tuned" else {}

    def run(self, arm, jobs):
        raise NotImplementedError


def test_runs_data_memory_and_time():
    recorded = Results(Tuned(), "cpu")
    paper = Tuned.presets()["paper"]
    # Three settings of two runs, and five seeds of two arms. 8 GB of data, and 1.5.
    assert plan(paper, recorded) == "16 runs; pictures; 10 GB; time not known"
    for seconds in (1.0, 3.0):
        recorded.add(Run("fixed", 0, {}, {}, seconds), {})
    # 16 runs of 2 seconds, a thousand times the examples, ten times the epochs.
    assert plan(paper, recorded) == "16 runs; pictures; 10 GB; 89 h"
    assert plan(Tuned(), recorded) == "16 runs; pictures; 2 GB; 32 s"


def test_runs_that_are_shared_are_said_once():
    @dataclasses.dataclass(frozen=True)
    class Shown(Tuned):
        name = "shown"
        shown_runs = "tuned"

    assert plan(Shown(), Results(Tuned(), "cpu")) == "the runs of tuned"
