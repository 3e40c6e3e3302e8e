"""Run the trials and the seeds that an experiment still lacks."""

import contextlib
import math
import sys
import time
import zlib

from common.environment import environment
from common.files import locked
from dselectk_keras.utils import check_choice, check_count
from research.engine.experiment import TRIAL_SEED, Job
from research.engine.results import Results, Run, results_path, text_of
from research.engine.search import (
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
    together=None,
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
            program if the experiment can; `None` is the experiment's own number. An
            interrupted call loses these.
        fresh: Whether to discard runs that are in the file already.
        command: The command line, which is saved with the results.
        progress: Whether to print the present run, and an estimate of the time left.
    """
    check_choice("sampler", experiment.sampler, SAMPLERS)
    together = experiment.together if together is None else together
    check_count("together", together)
    check_count("trial_runs", experiment.trial_runs)
    path = results_path(experiment, preset, folder)
    with locked(path) if path else contextlib.nullcontext():
        results = Results(experiment, preset, folder, fresh)
        all_began, done_before = time.perf_counter(), len(results.runs)
        around = {**environment(), "command": command}
        for arm in experiment.arms:
            while jobs := _next_jobs(experiment, results, arm)[:together]:
                if progress:
                    _say(_present(results, arm, jobs))
                began = time.perf_counter()
                found = experiment.run(arm, jobs)
                seconds = (time.perf_counter() - began) / len(jobs)
                for job, numbers in zip(jobs, found, strict=True):
                    settings = job.settings or numbers.pop("settings", {})
                    of = {"seconds": seconds, "tuning": job.is_trial}
                    run = Run(arm, job.seed, settings, numbers, **of)
                    results.add(run, around)
        if progress:
            ran, seconds = (
                len(results.runs) - done_before,
                time.perf_counter() - all_began,
            )
            _say(f"{ran} runs in {in_words(seconds)}.", end="\n")
    return results


def _next_jobs(experiment, results, arm):
    """The trials that an arm lacks; after them, the seeds, with the best settings."""
    space, trials = experiment.space(arm), results.of(arm, tuning=True)
    num_trials, seeds = lacking(experiment, results, arm)
    if not num_trials:
        settings, _ = best_settings(trials)
        return [Job(seed, settings) for seed in seeds]
    tried = {text_of(run.settings): run.settings for run in trials}
    done = {(text_of(run.settings), run.seed) for run in trials}
    jobs = _trials(experiment, tried.values())
    jobs = [job for job in jobs if (text_of(job.settings), job.seed) not in done]
    draw = zlib.crc32(arm.encode()) // 2  # Each arm tries settings of its own.
    if experiment.sampler == "gp":
        return jobs or _trials(experiment, [next_settings(space, trials, draw)])
    points = random_settings(space, grid_size(space), draw)
    jobs += _trials(experiment, [p for p in points if text_of(p) not in tried])
    return jobs[:num_trials]


def _trials(experiment, points):
    """Every trial of some settings."""
    runs = range(experiment.trial_runs)
    return [Job(TRIAL_SEED + run, settings) for settings in points for run in runs]


def lacking(experiment, results, arm):
    """The number of trials, and the list of seeds, that an arm lacks.

    If its grid has grown, it lacks trials. Seeds that have been run with settings that
    are no longer the best are lacking, too.
    """
    space, wanted = experiment.space(arm), experiment.trials
    if not space:
        wanted = 0
    elif experiment.sampler == "grid":
        wanted = grid_size(space)
    elif experiment.sampler == "random":
        wanted = min(wanted, grid_size(space))
    trials, reported = results.of(arm, tuning=True), results.of(arm)

    def missing():
        done = {run.seed for run in reported}
        return [seed for seed in range(experiment.seeds) if seed not in done]

    if reported and not trials and not missing():
        wanted = 0  # Its settings are known, also if its file has no trials.
    num_trials = max(0, wanted * experiment.trial_runs - len(trials))
    if trials and not num_trials:
        best = text_of(best_settings(trials)[0])
        reported = [run for run in reported if text_of(run.settings) == best]
    return num_trials, missing()


def _present(results, arm, jobs):
    """The present runs, and an estimate of the time left, as text."""
    runs, experiment = results.runs, results.experiment
    what, first = "seed", jobs[0].seed
    if jobs[0].is_trial:
        what, first = "trial", len(results.of(arm, tuning=True))
    last = f" to {first + len(jobs) - 1}" if len(jobs) > 1 else ""
    total, seconds = len(runs), 0.0
    timed = [run for run in runs if not math.isnan(run.seconds)]
    for each in experiment.arms:
        num_trials, seeds = lacking(experiment, results, each)
        own = [run.seconds for run in timed if run.arm == each]
        times = own or [run.seconds for run in timed]
        total += num_trials + len(seeds)
        seconds += (num_trials + len(seeds)) * sum(times) / max(len(times), 1)
    left = f" · about {in_words(seconds)} left" if timed else ""
    return f"[{len(runs) + 1}/{total}] {arm}, {what} {first}{last}{left}"


def _say(text, end=""):
    """Print a line, over the one before on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:79s}", end=end, file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def in_words(seconds):
    """A time in seconds, minutes or hours, as text."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
