"""Train the copies on JAX, where one call of a program is an epoch.

Each copy's epoch is traced. Copies whose programs differ only in constants are a
`Group`, with one compiled program. Its workers take copies from a queue, each as many
at once as the program has `Lanes`.
"""

import collections
import concurrent.futures
import functools
import json
import re

import numpy as np

from dselectk_keras._keras import all_layers, free_variables
from dselectk_keras.training.copies import build_models, check_same
from dselectk_keras.training.group import Group, Member
from dselectk_keras.training.lanes import Lanes
from dselectk_keras.training.memory import check_memory, free_memory
from dselectk_keras.training.traced_epoch import (
    TracedEpoch,
    array_spec,
    num_samples,
    variable_values,
)
from dselectk_keras.utils import num_cores

_COMPILER_BYTES = 100e6  # What compiling leaves in the host's memory, roughly.


class ScannedRuns:
    """The training of all copies, first planned and then run (see `FitRuns`)."""

    def __init__(self, build, copies, data, recorded, decide=None):
        self.data = data
        self.decide = decide
        epochs = copies[0].stopping.epochs
        self._length = epochs, -(-num_samples(data.train) // data.batch_size)
        self.groups = []
        self._cancelled = False
        # Models with equal fingerprints are traced once.
        traced, by_settings = {}, {}
        for copy, model in build_models(build, copies, data, recorded):
            if decide is not None:
                decide.check_model(model)
                decide.begin_epoch(model, 0, *self._length)
            *state, _ = variable_values(model)
            settings = tuple(copy.settings.values())
            key = settings, _fingerprint(model)
            if key not in traced:
                epoch = TracedEpoch(model, data)
                traced[key] = self._find_group(epoch), epoch.constants, epoch.reader
            group, constants, copy.reader = traced[key]
            other_group, other = by_settings.setdefault(settings, (group, copy))
            if group is not other_group:
                steps = group.epoch.signature, other_group.epoch.signature
                mine, others = ([f"a step with {line}" for line in s] for s in steps)
                check_same(mine, copy, others, other)
            group.members.append(Member(copy, tuple(state), constants))
            if decide is not None and group.model is None:
                group.model = model
            elif copy.recorder is None:
                free_variables(model)

    def _find_group(self, epoch):
        """The group of an epoch: a new one if none has its signature."""
        for group in self.groups:
            if group.epoch.signature == epoch.signature:
                return group
        self.groups.append(Group(epoch))
        return self.groups[-1]

    def plan(self, vectorize, memory_limit):
        """Compile the programs for as many copies at once as fit in memory.

        The arguments are those of `replicate`. Returns the estimated number of bytes.
        """
        import jax  # pyright: ignore[reportMissingImports]

        device = jax.devices()[0]
        on_host = device.platform == "cpu"
        limit = free_memory(device) if memory_limit is None else memory_limit
        estimates = []
        for group in self.groups:
            count = len(group.members)
            # On a CPU, one program per core is as fast as a vectorized one.
            lanes = (1 if on_host else count) if vectorize == "auto" else vectorize
            lanes = min(lanes, count)
            needed = self._compile(group, lanes, limit, on_host)
            while needed > limit and lanes > 1:
                lanes //= 2
                needed = self._compile(group, lanes, limit, on_host)
            check_memory(needed, limit, f"{count} copies, {lanes} at a time,")
            estimates.append(needed)
        return max(estimates)

    def _compile(self, group, lanes, limit, on_host):
        """Compile a program, and return the bytes for as many workers as fit."""
        group.compile(self.data, lanes)
        count = -(-len(group.members) // lanes)
        group.workers = min(num_cores(), count) if on_host else 1
        while (needed := self._estimate(group, on_host)) > limit and group.workers > 1:
            group.workers -= 1
        return needed

    def _estimate(self, group, on_host):
        """The bytes that the device needs; on a CPU also those of waiting copies."""
        import jax  # pyright: ignore[reportMissingImports]

        parts = group.program.memory_analysis()
        shared = sum(
            array_spec(array).dtype.itemsize * array.size
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
            own += 3 * 8 * num_samples(self.data.train)  # Orders of the data.
            members = [member for group in self.groups for member in group.members]
            arrays = jax.tree.leaves([(m.state, m.state[:2]) for m in members])
            held = _COMPILER_BYTES + sum(array.nbytes for array in arrays)
        return held + shared + group.workers * own

    def run(self, progress):
        """Train all copies."""
        import jax  # pyright: ignore[reportMissingImports]

        shared = jax.device_put((self.data.train, self.data.validation))
        for group in self.groups:
            queue = collections.deque(group.members)
            group.members = group.members[:1]
            work = functools.partial(self._work, group, queue, shared, progress)
            if group.workers == 1:
                work()
                continue
            # JAX releases Python's lock while it computes, so threads use all cores.
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
            lanes.start_copies(queue)
            if not lanes.running:
                return
            self._decide_gates(lanes)
            state, found = group.program(*lanes.next_arguments(), *shared)
            lanes.state = state
            found = jax.device_get(found)
            for lane, copy in list(lanes.running.items()):
                own = jax.tree.map(lambda a, lane=lane: a[lane], found)
                read_weights = functools.partial(lanes.read_weights, lane)
                ended = copy.end_epoch(_logs(own, copy.reader), read_weights)
                if copy.recorder is not None:
                    # Its model may be that of the group, which other workers use.
                    with group.lock:
                        lanes.update_model(lane, copy.recorder.model)
                        copy.recorder.on_epoch_end(len(copy.logs) - 1)
                if ended:
                    del lanes.running[lane]
                progress.end_epoch(copy)

    def _decide_gates(self, lanes):
        """Let the gates of copies decide, where it is time."""
        decide = self.decide
        if decide is None:
            return
        epochs, _ = self._length
        times = {decide.decision_epoch(epochs), decide.first_narrow_epoch(epochs)}
        for lane, copy in lanes.running.items():
            if (epoch := len(copy.logs)) in times:
                with lanes.group.lock:
                    model = lanes.group.model
                    lanes.update_model(lane, model)
                    decide.begin_epoch(model, epoch, *self._length)
                    lanes.set_state(lane, variable_values(model)[:3])


def _logs(found, reader):
    """The logs of an epoch, from the metrics of the training and of the validation."""
    results = found if reader is None else map(reader, found)
    return {
        prefix + name: float(value)
        for prefix, values in zip(("", "val_"), results, strict=True)
        for name, value in values.items()
    }


def _fingerprint(model):
    """A key that is equal for models with equal configs and constants."""
    constants = [
        value.tobytes()
        for layer in all_layers(model)
        for value in vars(layer).values()
        if isinstance(value, np.ndarray)
    ]
    try:
        config = model.get_config(), model.get_compile_config()
    except (NotImplementedError, TypeError, ValueError):
        return object()  # Not equal to any other key.
    text = json.dumps([type(model).__name__, *config], default=repr)
    # Without the counters in Keras' names, and without addresses.
    return re.sub(r"_\d+\b|0x[0-9a-f]+", "", text), *constants
