"""Train the jobs of an arm as copies of one model."""

import keras

from dselectk_keras.callbacks import ChooseExperts, DecideGates, GateRecorder
from dselectk_keras.replicate import replicate


def train_jobs(
    build,
    data,
    jobs,
    *,
    record=False,
    decide=False,
    choose=False,
    best=None,
    callbacks=(),
    epochs=1,
    **options,
):
    """Train a model for each job, all on the same data; return a `Replicas`.

    Args:
        build: A function of a seed, and of the settings by name, that returns a
            compiled model.
        data: A `Dataset`; its validation part is evaluated after every epoch.
        jobs: A list of `Job`.
        record: Whether static gates are recorded (see `gate_history`), every step; on
            JAX, where callbacks see only epochs, every epoch.
        decide: Whether the gates decide, by `DecideGates`.
        choose: Whether experts are chosen by fit, by `ChooseExperts`.
        best: Arguments of `EarlyStopping`, which restores the best epoch (see
            `best_epoch`); `None` keeps the last. With `decide`, only epochs count at
            whose end the gates have decided.
        callbacks: Functions that make further callbacks of a copy.
        epochs: The number of epochs.
        **options: Further arguments of `replicate`.
    """

    def make_callbacks():
        made = [make() for make in callbacks]
        made += [DecideGates()] * decide + [ChooseExperts()] * choose
        if record:
            unit = "epochs" if keras.backend.backend() == "jax" else "steps"
            made.append(GateRecorder(every=1, unit=unit))
        if best:
            first = max(best.get("start_from_epoch", 0), epochs // 2 if decide else 0)
            never = {"mode": "min", "patience": epochs}
            arguments = {**never, **best, "start_from_epoch": first}
            stopping = keras.callbacks.EarlyStopping
            made.append(stopping(**arguments, restore_best_weights=True))
        return made

    return replicate(
        build,
        tuple(data.train),
        validation_data=tuple(data.validation),
        seeds=[job.seed for job in jobs],
        settings={
            name: [job.settings[name] for job in jobs] for name in jobs[0].settings
        },
        callbacks=make_callbacks,
        epochs=epochs,
        verbose=0,
        **options,
    )


def by_group(jobs, key, train):
    """Train the jobs of each group; return what is found in the order of the jobs.

    Args:
        jobs: A list of `Job`.
        key: A function of a job; those with the same key are one group.
        train: A function of the key and a list of jobs that returns a list.
    """
    groups, found = {}, {}
    for place, job in enumerate(jobs):
        groups.setdefault(key(job), []).append(place)
    for each, places in groups.items():
        own = train(each, [jobs[place] for place in places])
        found |= dict(zip(places, own, strict=True))
    return [found[place] for place in range(len(jobs))]


def gate_history(copy):
    """The `GateHistory` of a copy of `train_jobs` with `record=True`."""
    return _callback(copy, GateRecorder).history


def best_epoch(copy):
    """The epoch whose weights a copy of `train_jobs` with `best` has."""
    return _callback(copy, keras.callbacks.EarlyStopping).best_epoch


def _callback(copy, kind):
    return next(each for each in copy.callbacks if isinstance(each, kind))
