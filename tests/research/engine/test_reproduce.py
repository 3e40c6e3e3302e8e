"""Arms are tuned and run seed by seed, and nothing is run twice."""

import dataclasses
import itertools
import math
import random

import pytest

from research.engine import Arm, Experiment, Job, Results, Run, by_group, reproduce
from research.engine.reproduce import TRIAL_SEED, in_words


@dataclasses.dataclass(frozen=True)
class Counting(Experiment):
    """An experiment that counts what it is asked for, and may stop half-way."""

    name = "mmoe-counting"
    title = "counting"
    where = "Figure 0"

    size: int = 3
    calls: list = dataclasses.field(default_factory=list)
    fail_at: int = -1

    @classmethod
    def presets(cls):
        return {"smoke": cls()}

    @property
    def arms(self):
        return {"tuned": 1.0, "plain": 2.0}

    @property
    def config(self):
        return {"size": self.size}

    def space(self, arm):
        return {"rate": (0.1, 0.2, 0.4)} if arm == "tuned" else {}

    def run(self, arm, jobs):
        if len(self.calls) == self.fail_at:
            raise KeyboardInterrupt
        self.calls.append((arm, tuple(job.seed for job in jobs)))
        return [
            {
                "objective": abs(job.settings.get("rate", 0) - 0.2),
                "value": self.arms[arm] + job.seed,
            }
            for job in jobs
        ]


def test_settings_are_tuned_on_seeds_that_are_not_reported():
    results = reproduce(Counting(seeds=2, trials=3), progress=False)
    trials, reported = results.of("tuned", tuning=True), results.of("tuned")
    assert [run.seed for run in trials] == [TRIAL_SEED] * 3
    assert [run.seed for run in reported] == [0, 1]
    assert {run.settings["rate"] for run in trials} == {0.1, 0.2, 0.4}
    assert {run.settings["rate"] for run in reported} == {0.2}
    assert results.of("plain", tuning=True) == []
    assert results.of("plain")[0].settings == {}


@dataclasses.dataclass(frozen=True)
class Searching(Counting):
    """Arms that search in the same grid."""

    sampler: str = "random"

    def space(self, arm):
        return {"rate": tuple(range(15)), "units": ((8, 4), [2])}


def tried(results, arm):
    """The settings, as a list of tuples."""
    runs = results.of(arm, tuning=True)
    return [(run.settings["rate"], tuple(run.settings["units"])) for run in runs]


def test_a_search_goes_on_with_settings_that_are_new(tmp_path):
    few = reproduce(Searching(seeds=0, trials=6), folder=tmp_path, progress=False)
    assert tried(few, "tuned") != tried(
        few, "plain"
    )  # Each arm has settings of its own.
    more = Searching(seeds=0, trials=30)
    all_of_them = reproduce(more, folder=tmp_path, progress=False, together=9)
    for arm in ("tuned", "plain"):
        assert tried(all_of_them, arm)[:6] == tried(few, arm)
        assert len(set(tried(all_of_them, arm))) == 30


def test_a_run_that_is_cut_short_goes_on_where_it_was(tmp_path):
    cut = Counting(seeds=2, trials=3, fail_at=4)
    with pytest.raises(KeyboardInterrupt):
        reproduce(cut, folder=tmp_path, progress=False)
    again = Counting(seeds=2, trials=3)
    results = reproduce(again, folder=tmp_path, progress=False)
    assert again.calls == [("tuned", (1,)), ("plain", (0,)), ("plain", (1,))]
    assert len(results.runs) == 7
    for seeds, calls in ((2, []), (3, [("tuned", (2,)), ("plain", (2,))])):
        more = Counting(seeds=seeds, trials=3)
        reproduce(more, folder=tmp_path, progress=False)
        assert more.calls == calls
    with pytest.raises(ValueError, match=r"another config: size differ.*--fresh"):
        reproduce(Counting(size=4), folder=tmp_path, progress=False)
    fresh = Counting(size=4)
    results = reproduce(fresh, folder=tmp_path, progress=False, fresh=True)
    assert len(fresh.calls) == len(results.runs) == 2


def test_a_grid_is_tried_whole_whatever_the_number_of_trials():
    experiment = Counting(sampler="grid")
    results = reproduce(experiment, together=9, progress=False)
    tried = [run.settings["rate"] for run in results.of("tuned", tuning=True)]
    assert sorted(tried) == sorted(experiment.space("tuned")["rate"])
    assert results.of("plain", tuning=True) == []
    assert experiment.calls[0] == ("tuned", (TRIAL_SEED,) * len(tried))


@dataclasses.dataclass(frozen=True)
class Wider(Counting):
    """An experiment with a grid of any size; "plain" is worst in the middle."""

    sampler: str = "grid"
    rates: tuple = ()

    def space(self, arm):
        return {"rate": self.rates, "place": [arm == "plain"]}

    def run(self, arm, jobs):
        found = super().run(arm, jobs)
        if arm == "plain":
            return [each | {"objective": -each["objective"]} for each in found]
        return found


def test_a_wider_grid_is_tried_and_what_was_not_best_is_run_again(tmp_path):
    options = {"folder": tmp_path, "progress": False}
    reproduce(Wider(seeds=2, rates=(0.1, 0.2)), **options)
    wider = Wider(seeds=2, rates=(0.1, 0.2, 0.4))
    results = reproduce(wider, **options)
    trial = (TRIAL_SEED,)
    # The best of "tuned" is still 0.2; that of "plain" was 0.1, and is 0.4.
    expected = [("tuned", trial), ("plain", trial), ("plain", (0,)), ("plain", (1,))]
    assert wider.calls == expected
    assert [run.settings["rate"] for run in results.of("tuned")] == [0.2] * 2
    assert [run.settings["rate"] for run in results.of("plain")] == [0.4] * 2
    assert len(results.runs) == 2 * (3 + 2)
    again = Wider(seeds=2, rates=(0.1, 0.2, 0.4))
    assert reproduce(again, **options).runs == results.runs
    assert again.calls == []


@dataclasses.dataclass(frozen=True)
class Noisy(Counting):
    """One trial is misleading: only the mean of two of them finds the best rate."""

    trial_runs: int = 2

    def run(self, arm, jobs):
        self.calls.append((arm, tuple(job.seed for job in jobs)))
        luck = {(0.4, TRIAL_SEED): -1.0, (0.4, TRIAL_SEED + 1): 2.0}
        keys = [(job.settings.get("rate", 0), job.seed) for job in jobs]
        return [{"objective": luck.get(key, abs(key[0] - 0.2))} for key in keys]


def test_runs_of_settings_that_are_no_longer_the_best_are_dropped(tmp_path):
    options = {"folder": tmp_path, "progress": False}
    reproduce(Wider(seeds=3, rates=(0.1, 0.2)), **options)
    results = reproduce(Wider(seeds=1, rates=(0.1, 0.2, 0.4)), **options)
    assert len(results.of("tuned")) == 3
    assert [run.settings["rate"] for run in results.of("plain")] == [0.4]


@pytest.mark.parametrize("together", [1, 4, 9])
def test_a_setting_is_judged_by_the_mean_of_its_trial_runs(together):
    options = {"progress": False, "together": together}
    once = reproduce(Noisy(trials=3, trial_runs=1), **options)
    assert once.of("tuned")[0].settings == {"rate": 0.4}
    results = reproduce(Noisy(trials=3), **options)
    tried = [(r.settings["rate"], r.seed) for r in results.of("tuned", tuning=True)]
    runs = (TRIAL_SEED, TRIAL_SEED + 1)
    assert sorted(tried) == [(rate, seed) for rate in (0.1, 0.2, 0.4) for seed in runs]
    assert results.of("tuned")[0].settings == {"rate": 0.2}


def test_a_gaussian_process_proposes_when_the_last_setting_had_all_its_runs():
    results = reproduce(Noisy(trials=3, sampler="gp"), progress=False)
    trials = results.of("tuned", tuning=True)
    assert [run.seed for run in trials] == [TRIAL_SEED, TRIAL_SEED + 1] * 3
    assert all(trials[i].settings == trials[i + 1].settings for i in (0, 2, 4))


def test_what_has_all_its_seeds_needs_no_trials(tmp_path):
    done = Counting(seeds=2, trials=3)
    results = Results(done, "cpu", tmp_path)
    for arm, seed in itertools.product(done.arms, range(2)):
        results.add(Run(arm, seed, {}, {}, math.nan), {})
    # A time that is not known stays unknown.
    assert math.isnan(Results(done, "cpu", tmp_path).runs[0].seconds)
    reproduce(done, folder=tmp_path, progress=False)
    assert done.calls == []
    # For another seed, the settings have to be found, which are those of all seeds.
    more = Counting(seeds=3, trials=3)
    reproduce(more, folder=tmp_path, progress=False, together=9)
    assert more.calls[:2] == [("tuned", (TRIAL_SEED,) * 3), ("tuned", (0, 1, 2))]


def test_what_tunes_itself_says_its_settings(tmp_path):
    class Own(Counting):
        def run(self, arm, jobs):
            return [{"settings": {"rate": job.seed}, "loss": 0.5} for job in jobs]

    experiment = Own(seeds=2, trials=0)
    for _ in range(2):
        results = reproduce(experiment, folder=tmp_path, progress=False)
    found = results.of("plain")
    assert [run.settings for run in found] == [{"rate": 0}, {"rate": 1}]
    assert [run.numbers for run in found] == [{"loss": 0.5}] * 2


def test_jobs_are_trained_by_group_in_their_order():
    groups = []

    def train(rate, jobs):
        groups.append((rate, [job.seed for job in jobs]))
        return [(rate, job.seed) for job in jobs]

    jobs = [Job(seed, {"rate": seed % 2}) for seed in (4, 1, 2, 3)]
    found = by_group(jobs, lambda job: job.settings["rate"], train)
    assert found == [(0, 4), (1, 1), (0, 2), (1, 3)]
    assert groups == [(0, [4, 2]), (1, [1, 3])]


@dataclasses.dataclass(frozen=True)
class Rated(Experiment):
    """An arm with these rates, of which the lowest is best."""

    name = "rated"
    title = "rates"
    rates: dataclasses.InitVar[tuple] = ()
    sampler: str = "grid"

    def __post_init__(self, rates):
        object.__setattr__(self, "space_of_a", {"rate": rates})

    @property
    def arms(self):
        return {"a": Arm(space=self.space_of_a)}

    def run(self, arm, jobs):
        return [{"objective": job.settings["rate"]} for job in jobs]


def test_results_of_another_space_are_not_taken_as_done(tmp_path):
    given = {"folder": tmp_path, "progress": False}
    reproduce(Rated(rates=(0.1, 0.3)), **given)
    # As many settings as before, or some of them.
    for rates in [(0.1, 0.2), (0.3,)]:
        with pytest.raises(ValueError, match=r"config: the space of a differ.*--fresh"):
            reproduce(Rated(rates=rates), **given)
    # What it has tried is among these.
    results = reproduce(Rated(rates=(0.01, 0.1, 0.3)), **given)
    assert len(results.of("a", tuning=True)) == 3
    assert [run.settings for run in results.of("a")] == [{"rate": 0.01}]
    # Without trials, nobody knows what the new ones would say.
    results.runs = results.of("a")
    results._write(results.path)
    assert reproduce(Rated(rates=(0.01, 0.1, 0.3)), **given).runs == results.runs
    with pytest.raises(ValueError, match="the space of a differ"):
        reproduce(Rated(rates=(0.001, 0.01, 0.1, 0.3)), **given)


def test_a_second_process_is_refused_and_no_run_is_lost(tmp_path):
    class Busy(Counting):
        def run(self, arm, jobs):
            with pytest.raises(RuntimeError, match=r"writes .*counting_cpu\.json"):
                reproduce(Counting(), folder=tmp_path, progress=False)
            return super().run(arm, jobs)

    reproduce(Busy(seeds=2), folder=tmp_path, progress=False)
    assert len(Results(Counting(), "cpu", tmp_path).runs) == 4
    assert [each.name for each in tmp_path.iterdir()] == ["mmoe-counting_cpu.json"]


def test_altered_results_are_refused_by_name_and_left_alone(tmp_path):
    reproduce(Counting(seeds=2), folder=tmp_path, progress=False)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    kept, draw = Results(Counting(), "smoke", tmp_path).runs, random.Random(0)
    for _ in range(60):
        place = draw.randrange(len(content))
        bit = 1 << draw.randrange(8)
        flipped = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        for altered in (flipped, content[:place], content + content[:place]):
            path.write_bytes(altered)
            # Other white space changes nothing.
            try:
                found = Results(Counting(), "smoke", tmp_path).runs
            except ValueError as error:
                found = str(error)
            assert found == kept or f"{path} is damaged" in found
            assert path.read_bytes() == altered


@pytest.mark.parametrize(
    ("own", "asked", "text"),
    [
        ({}, {"together": 0}, "`together` must be a positive integer"),
        ({"trial_runs": -1}, {}, "`trial_runs` must be a positive integer"),
        ({"sampler": "luck"}, {}, "`sampler` must be one of .*sampler='luck'"),
    ],
)
def test_what_would_do_nothing_is_refused_before_any_work(own, asked, text):
    experiment = Counting(seeds=3, **own)
    with pytest.raises(ValueError, match=text):
        reproduce(experiment, progress=False, **asked)
    assert experiment.calls == []


def test_settings_may_be_tuples_and_lists_also_in_a_file(tmp_path):
    class Wide(Counting):
        def space(self, arm):
            return (
                {"rate": (0.1, 0.2), "units": ((8, 4), [2])} if arm == "tuned" else {}
            )

    first = reproduce(Wide(trials=4), folder=tmp_path, progress=False)
    again = reproduce(Wide(trials=4, seeds=2), folder=tmp_path, progress=False)
    (taken,) = {run.settings["units"] for run in again.of("tuned")}
    assert list(first.of("tuned")[0].settings["units"]) == list(taken)
    tried = [run.settings["units"] for run in again.of("tuned", tuning=True)]
    assert sorted(tried) == [(2,), (2,), (8, 4), (8, 4)]


def test_progress_says_what_is_run_and_how_long_the_rest_takes(capsys):
    reproduce(Counting(seeds=2, trials=1))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[1/5] tuned, trial 0"
    assert lines[1].startswith("[2/5] tuned, seed 0 · about 0 s left")
    assert lines[-1] == "5 runs in 0 s."


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (119, "119 s"), (600, "10 min"), (9000, "2 h")]
)
def test_times_are_in_words(seconds, text):
    assert in_words(seconds) == text


def test_a_mean_and_its_error_or_deviation():
    results = Results(Counting(), "smoke")
    results.add(Run("plain", 0, {}, {"value": 1.0}, 0.0), {})
    assert results.spread("plain", "value", 2) == "1.00"
    results.add(Run("plain", 1, {}, {"value": 3.0}, 0.0), {})
    assert results.spread("plain", "value") == "2.000 ± 1.414"
    results.add(Run("plain", 2, {}, {"value": None}, 0.0), {})
    assert results.mean("plain", "value") == 2
    # The standard deviation is sqrt(2), and there are two of them.
    assert results.error("plain", "value") == pytest.approx(1.0)
    assert results.text("plain", "value", digits=2, scale=10) == "20 ± 10"
    assert results.texts("plain", "value", "nothing") == ["2.00 ± 1.00", ""]
