"""Copies trained by JAX, an epoch at each call of one program."""

import collections
import concurrent.futures
import functools
import itertools
import json
import re

import numpy as np

from dselectk_keras._keras import all_layers, free_variables
from dselectk_keras.training.copies import checked_models, different
from dselectk_keras.training.group import Group, Member
from dselectk_keras.training.lanes import Lanes
from dselectk_keras.training.memory import check_memory, free_memory
from dselectk_keras.training.traced_epoch import (
    TracedEpoch,
    num_samples,
    spec,
    state_of,
)
from dselectk_keras.utils import num_cores

COMPILER = 100e6  # What compiling leaves in a host's memory, about.


class ScannedRuns:
    """The runs of all copies, prepared and then carried out.

    Args:
        build: The function that makes the models.
        copies: A list of `Copy`.
        data: A `Data`.
        recorded: The numbers of the copies whose gates are recorded.
    """

    def __init__(self, build, copies, data, recorded):
        self.data = data
        self.groups = []
        self._cancelled = False
        known, by_settings = {}, {}
        for copy, model in checked_models(build, copies, data, recorded):
            *state, _ = state_of(model)
            settings = tuple(copy.settings.values())
            key = settings, _fingerprint(model)
            if key not in known:
                epoch = TracedEpoch(model, data)
                known[key] = self._group(epoch), epoch.numbers, epoch.reader
            group, numbers, copy.reader = known[key]
            other = by_settings.setdefault(settings, (group, copy))
            if other[0] is not group:
                raise _different_steps(copy, group, *other)
            group.members.append(Member(copy, tuple(state), numbers))
            if copy.recorder is None:
                free_variables(model)

    def _group(self, epoch):
        """The group of an epoch, a new one if none has its form."""
        form = epoch.form
        for group in self.groups:
            if group.form == form:
                return group
        self.groups.append(Group(epoch))
        return self.groups[-1]

    def plan(self, vectorize, memory_limit):
        """Compile the programs, for as many copies at once as memory allows.

        Args:
            vectorize: How many copies a program trains at once, or `"auto"`.
            memory_limit: In bytes; `None` is what is free.

        Returns:
            The estimate of the memory needed, in bytes.
        """
        import jax  # pyright: ignore[reportMissingImports]

        device = jax.devices()[0]
        on_host = device.platform == "cpu"
        limit = free_memory(device) if memory_limit is None else memory_limit
        estimates = []
        for group in self.groups:
            count = len(group.members)
            # A program of its own for each is as fast on a processor's cores.
            lanes = (1 if on_host else count) if vectorize == "auto" else vectorize
            lanes = min(lanes, count)
            while True:
                group.compile(self.data, lanes)
                workers = min(num_cores(), -(-count // lanes)) if on_host else 1
                needed = self._estimate(group, workers, on_host)
                while limit is not None and needed > limit and workers > 1:
                    workers -= 1
                    needed = self._estimate(group, workers, on_host)
                if limit is None or needed <= limit or lanes == 1:
                    break
                lanes //= 2
            check_memory(needed, limit, f"{count} copies, {lanes} at a time,")
            group.workers = workers
            estimates.append(needed)
        return max(estimates)

    def _estimate(self, group, workers, on_host):
        """The bytes that the device needs; on a host, those of waiting copies too."""
        import jax  # pyright: ignore[reportMissingImports]

        parts = group.program.memory_analysis()
        shared = sum(
            spec(array).dtype.itemsize * array.size
            for array in jax.tree.leaves((self.data.train, self.data.validation))
        )
        own = (
            parts.argument_size_in_bytes
            + parts.output_size_in_bytes
            - parts.alias_size_in_bytes
            + parts.temp_size_in_bytes
            + parts.generated_code_size_in_bytes
            - shared
        )
        held = 0
        if on_host:
            own += 3 * 8 * num_samples(self.data.train)  # Orders, and drawing them.
            members = [member for group in self.groups for member in group.members]
            arrays = jax.tree.leaves([(m.state, m.state[:2]) for m in members])
            held = COMPILER + sum(array.nbytes for array in arrays)
        return held + shared + workers * own

    def run(self, progress):
        """Train all copies.

        Args:
            progress: A `Progress`.
        """
        import jax  # pyright: ignore[reportMissingImports]

        shared = jax.device_put((self.data.train, self.data.validation))
        for group in self.groups:
            queue = collections.deque(group.members)
            group.members = group.members[:1]
            work = functools.partial(self._work, group, queue, shared, progress)
            if group.workers == 1:
                work()
                continue
            # JAX computes outside of Python's lock, so that threads share the cores.
            with concurrent.futures.ThreadPoolExecutor(group.workers) as pool:
                futures = [pool.submit(work) for _ in range(group.workers)]
                try:
                    for future in concurrent.futures.as_completed(futures):
                        future.result()
                except BaseException:
                    self._cancelled = True
                    raise

    def _work(self, group, queue, shared, progress):
        """Train copies from the queue until it is empty."""
        import jax  # pyright: ignore[reportMissingImports]

        lanes = Lanes(group, self.data)
        while not self._cancelled:
            lanes.fill(queue)
            if not lanes.running:
                return
            state, found = group.program(*lanes.arguments(), *shared)
            lanes.state = state
            found = jax.device_get(found)
            for lane, copy in list(lanes.running.items()):
                own = jax.tree.map(lambda a, lane=lane: a[lane], found)
                ended = copy.end_epoch(
                    _logs(own, copy.reader), functools.partial(lanes.weights, lane)
                )
                if copy.recorder is not None:
                    lanes.load(lane, copy.recorder.model)
                    copy.recorder.on_epoch_end(len(copy.logs) - 1)
                if ended:
                    del lanes.running[lane]
                progress.end_epoch(copy)


def _logs(found, reader):
    """What a copy reports of an epoch, from what the program gave.

    Args:
        found: A pair, of the training and of the validation.
        reader: The reader of its epoch, or `None`.
    """
    results = found if reader is None else map(reader, found)
    return {
        prefix + name: float(value)
        for prefix, values in zip(("", "val_"), results, strict=True)
        for name, value in values.items()
    }


def _fingerprint(model):
    """Equal for models with the same numbers, as far as configs and constants tell."""
    constants = [
        value.tobytes()
        for layer in all_layers(model)
        for value in vars(layer).values()
        if isinstance(value, np.ndarray)
    ]
    try:
        config = model.get_config(), model.get_compile_config()
    except (NotImplementedError, TypeError, ValueError):
        return object()  # Equal to nothing else.
    text = json.dumps([type(model).__name__, *config], default=repr)
    # Names that Keras has counted up, and addresses.
    return re.sub(r"_\d+\b|0x[0-9a-f]+", "", text), *constants


def _different_steps(copy, group, its_group, first):
    """The error for steps of one architecture that compute something else."""
    pairs = itertools.zip_longest(group.form, its_group.form, fillvalue="nothing")
    mine, its = next((a, b) for a, b in pairs if a != b)
    return different(copy, f"a step with {mine}", first, its)
