"""Train the jobs of an arm as copies of one model."""

from dselectk_keras.training import replicate


def train_jobs(build, data, jobs, *, histories=False, **options):
    """Train a model for each job, all on the same data; return a `Replicas`.

    Args:
        build: A function of a seed, and of the settings by name, that returns a
            compiled model. Settings must be numbers.
        data: A `Dataset`; its validation part is evaluated after every epoch.
        jobs: A list of `Job`.
        histories: Whether the gates of all jobs are recorded, once an epoch.
        **options: Further arguments of `replicate`, such as `epochs`, `batch_size`,
            `monitor` and `patience`.
    """
    return replicate(
        build,
        tuple(data.train),
        validation_data=tuple(data.validation),
        seeds=[job.seed for job in jobs],
        settings={
            name: [job.settings[name] for job in jobs] for name in jobs[0].settings
        },
        histories=range(len(jobs)) if histories else (),
        verbose=0,
        **options,
    )
