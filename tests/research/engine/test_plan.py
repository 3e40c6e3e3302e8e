"""The needs of an experiment are printed before it runs."""

import dataclasses

from research.engine import Experiment, Results, Run, preset
from research.engine.plan import cost, plan, price


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
    for seed, seconds in enumerate((1.0, 3.0)):
        recorded.add(Run("fixed", seed, {}, {}, seconds), {})
    # 16 runs of 2 seconds, a thousand times the examples, ten times the epochs.
    assert plan(paper, recorded) == ("16 runs; pictures; 10 GB; 89 h; 89 core-hours")
    assert plan(Tuned(), recorded) == ("16 runs; pictures; 2 GB; 32 s; 0.0 core-hours")


def test_an_arm_has_its_own_time_and_a_machine_its_cores():
    recorded = Results(Tuned(), "cpu")
    one, two = {"device": "1 CPU core (x86_64)"}, {"device": "2 CPU cores (x86_64)"}
    recorded.add(Run("fixed", 0, {}, {}, 10.0), one)
    recorded.add(Run("tuned", 0, {}, {}, 3600.0), two)
    # Six trials and five seeds of two cores for an hour; five seeds of ten seconds.
    found = cost(Tuned(), recorded)
    assert (found.runs, found.seconds) == (16, 11 * 3600 + 50)
    assert found.core_seconds == 11 * 7200 + 50
    # The runs that are there are not needed again where only the seeds change.
    assert price(recorded, seeds=2) == "8 runs, 14 core-hours, 2 GB"
    assert price(recorded, trials=1, seeds=2) == "6 runs, 8.0 core-hours, 2 GB"
    assert price(recorded, seeds=2, num_train=2_000, trials=1).startswith(
        "6 runs, 16 core-hours"
    )


def test_runs_that_are_shared_are_said_once():
    @dataclasses.dataclass(frozen=True)
    class Shown(Tuned):
        name = "shown"
        shown_runs = "tuned"

    assert plan(Shown(), Results(Tuned(), "cpu")) == "the runs of tuned"
