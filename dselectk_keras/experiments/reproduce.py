"""Run the trials and the seeds that an experiment still lacks."""

import contextlib
import sys
import time

from dselectk_keras.archive import locked
from dselectk_keras.experiments.environment import environment
from dselectk_keras.experiments.experiment import TRIAL_SEED, Job
from dselectk_keras.experiments.results import Results, Run, results_path
from dselectk_keras.experiments.search import (
    SAMPLERS,
    best_settings,
    grid_size,
    next_settings,
    random_settings,
)
from dselectk_keras.utils import check_choice


def reproduce(
    experiment,
    *,
    preset="cpu",
    folder=None,
    together=1,
    fresh=False,
    command="",
    progress=True,
):
    """Tune the arms of an experiment and run its seeds; skip those that are done.

    Each run is saved when it ends, so that an interrupted call can be continued. Only
    one process at a time may write the file: a second one gets a `RuntimeError`. See
    `Experiment` for an example. Returns a `Results`.

    Args:
        experiment: An `Experiment`.
        preset: The name under which the results are saved.
        folder: The folder of the file of results; `None` keeps them in memory only.
        together: The number of seeds, or trials, of an arm that are trained in one
            program if the experiment can. An interrupted call loses these.
        fresh: Whether to discard runs that are in the file already.
        command: The command line, which is saved with the results.
        progress: Whether to print the present run, and an estimate of the time left.
    """
    check_choice("sampler", experiment.sampler, SAMPLERS)
    path = results_path(experiment, preset, folder)
    with locked(path) if path else contextlib.nullcontext():
        results = Results(experiment, preset, folder, fresh)
        clock = _Clock(results, progress)
        around = {**environment(), "command": command}
        arms = experiment.arms
        for arm, tuning in [(arm, each) for arm in arms for each in (True, False)]:
            while jobs := _jobs(experiment, results, arm, tuning)[:together]:
                clock.begin(arm, jobs, tuning)
                began = time.perf_counter()
                found = experiment.run(arm, jobs)
                seconds = (time.perf_counter() - began) / len(jobs)
                for job, numbers in zip(jobs, found, strict=True):
                    run = Run(arm, job.seed, job.settings, numbers, seconds, tuning)
                    results.add(run, around)
        clock.end()
    return results


def _jobs(experiment, results, arm, tuning):
    """The jobs that an arm lacks: trials, or seeds with the best settings."""
    trials = results.of(arm, tuning=True)
    space = experiment.space(arm)
    count = _num_trials(experiment, space)
    if not tuning:
        settings, _ = best_settings(trials)
        done = {run.seed for run in results.of(arm)}
        seeds = [seed for seed in range(experiment.seeds) if seed not in done]
        return [Job(seed, settings) for seed in seeds]
    if len(trials) >= count:
        return []
    if experiment.sampler == "gp":
        return [Job(TRIAL_SEED, next_settings(space, trials))]
    grid = random_settings(space, count)
    return [Job(TRIAL_SEED, settings) for settings in grid[len(trials) :]]


def _num_trials(experiment, space):
    """The number of settings of an arm that are tried."""
    if not space:
        return 0
    if experiment.sampler == "gp":
        return experiment.trials
    if experiment.sampler == "grid":
        return grid_size(space)
    return min(experiment.trials, grid_size(space))


class _Clock:
    """Prints the present run, and estimates the time left."""

    def __init__(self, results, show):
        self._results = results
        self._show = show
        self._began = time.perf_counter()
        self._done_before = len(results.runs)

    def begin(self, arm, jobs, tuning):
        """Print the next run."""
        if not self._show:
            return
        what = "trial" if tuning else "seed"
        first = len(self._results.of(arm, tuning=True)) if tuning else jobs[0].seed
        last = first + len(jobs) - 1
        numbers = f"{what} {first}" + (f" to {last}" if last > first else "")
        done, left = len(self._results.runs), self._left()
        total = done + sum(left.values())
        self._say(f"[{done + 1}/{total}] {arm}, {numbers}{self._estimate(left)}")

    def end(self):
        """Print the total time."""
        if self._show:
            ran = len(self._results.runs) - self._done_before
            seconds = time.perf_counter() - self._began
            self._say(f"{ran} runs in {in_words(seconds)}.", last=True)

    def _left(self):
        """The number of runs that each arm lacks."""
        results, experiment = self._results, self._results.experiment
        left = {}
        for arm in experiment.arms:
            left[arm] = len(_jobs(experiment, results, arm, tuning=False))
            trials = _num_trials(experiment, experiment.space(arm))
            left[arm] += max(0, trials - len(results.of(arm, tuning=True)))
        return left

    def _estimate(self, left):
        runs = self._results.runs
        seconds = 0.0
        for arm, count in left.items():
            own = [run.seconds for run in runs if run.arm == arm]
            times = own or [run.seconds for run in runs]
            seconds += count * sum(times) / max(len(times), 1)
        return f" · about {in_words(seconds)} left" if runs else ""

    def _say(self, text, last=False):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text:79s}" + "\n" * last)
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def in_words(seconds):
    """A time in seconds, minutes or hours, as text."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
