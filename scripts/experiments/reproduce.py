"""Run the trials and the seeds that an experiment still lacks."""

import contextlib
import json
import sys
import time
import zlib

from dselectk_keras.utils import check_choice, check_count
from experiments.environment import environment
from experiments.experiment import TRIAL_SEED, Job
from experiments.lock import locked
from experiments.results import Results, Run, results_path
from experiments.search import (
    SAMPLERS,
    best_settings,
    grid_size,
    next_settings,
    random_settings,
)


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
    check_count("together", together)
    check_count("trial_runs", experiment.trial_runs)
    path = results_path(experiment, preset, folder)
    with locked(path) if path else contextlib.nullcontext():
        results = Results(experiment, preset, folder, fresh)
        clock = _Clock(results, progress)
        around = {**environment(), "command": command}
        for arm in experiment.arms:
            while jobs := _next_jobs(experiment, results, arm)[:together]:
                clock.begin(arm, jobs)
                began = time.perf_counter()
                found = experiment.run(arm, jobs)
                seconds = (time.perf_counter() - began) / len(jobs)
                for job, numbers in zip(jobs, found, strict=True):
                    run = Run(arm, *job, numbers, seconds, tuning=job.is_trial)
                    results.add(run, around)
        clock.end()
    return results


def _next_jobs(experiment, results, arm):
    """The trials that an arm lacks; after them, the seeds, with the best settings."""
    space, trials = experiment.space(arm), results.of(arm, tuning=True)
    num_trials, seeds = lacking(experiment, results, arm)
    if not num_trials:
        settings, _ = best_settings(trials)
        return [Job(seed, settings) for seed in seeds]
    tried = {_text(run.settings): run.settings for run in trials}
    done = {(_text(run.settings), run.seed) for run in trials}
    jobs = _trials(experiment, tried.values())
    jobs = [job for job in jobs if (_text(job.settings), job.seed) not in done]
    draw = zlib.crc32(arm.encode()) // 2  # Each arm tries settings of its own.
    if experiment.sampler == "gp":
        return jobs or _trials(experiment, [next_settings(space, trials, draw)])
    points = random_settings(space, grid_size(space), draw)
    jobs += _trials(experiment, [p for p in points if _text(p) not in tried])
    return jobs[:num_trials]


def _trials(experiment, points):
    """Every trial of some settings."""
    runs = range(experiment.trial_runs)
    return [Job(TRIAL_SEED + run, settings) for settings in points for run in runs]


def _text(settings):
    """Settings as they are in a file, where lists and tuples are the same."""
    return json.dumps(settings, sort_keys=True)


def lacking(experiment, results, arm):
    """The number of trials, and the list of seeds, that an arm lacks."""
    space, wanted = experiment.space(arm), experiment.trials
    if not space:
        wanted = 0
    elif experiment.sampler == "grid":
        wanted = grid_size(space)
    elif experiment.sampler == "random":
        wanted = min(wanted, grid_size(space))
    done = {run.seed for run in results.of(arm)}
    seeds = [seed for seed in range(experiment.seeds) if seed not in done]
    num_trials = wanted * experiment.trial_runs - len(results.of(arm, tuning=True))
    return max(0, num_trials), seeds


class _Clock:
    """Prints the present run, and estimates the time left."""

    def __init__(self, results, show):
        self._results = results
        self._show = show
        self._began = time.perf_counter()
        self._done_before = len(results.runs)

    def begin(self, arm, jobs):
        """Print the next run."""
        if not self._show:
            return
        runs, experiment = self._results.runs, self._results.experiment
        what, first = "seed", jobs[0].seed
        if jobs[0].is_trial:
            what, first = "trial", len(self._results.of(arm, tuning=True))
        last = first + len(jobs) - 1
        numbers = f"{what} {first}" + (f" to {last}" if last > first else "")
        total, seconds = len(runs), 0.0
        for each in experiment.arms:
            num_trials, seeds = lacking(experiment, self._results, each)
            own = [run.seconds for run in runs if run.arm == each]
            times = own or [run.seconds for run in runs]
            total += num_trials + len(seeds)
            seconds += (num_trials + len(seeds)) * sum(times) / max(len(times), 1)
        left = f" · about {in_words(seconds)} left" if runs else ""
        self._say(f"[{len(runs) + 1}/{total}] {arm}, {numbers}{left}")

    def end(self):
        """Print the total time."""
        if self._show:
            ran = len(self._results.runs) - self._done_before
            seconds = time.perf_counter() - self._began
            self._say(f"{ran} runs in {in_words(seconds)}.", last=True)

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
