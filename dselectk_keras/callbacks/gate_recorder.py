"""Record the gates of a model while it trains."""

import functools
import importlib.util
import warnings

import keras
import numpy as np

from dselectk_keras.callbacks.gate_history import GateHistory
from dselectk_keras.gates import Gate
from dselectk_keras.layers import MMoE
from dselectk_keras.layers.routed import RoutedExperts


class GateRecorder(keras.callbacks.Callback):
    """Keeps what every gate of a model does over training, in `history`.

    It records once before training, then every so many steps or epochs, and at the
    end; see `GateHistory` for what. It warns of a selector that sits on a code that
    belongs to no expert, where it has weight but no gradient.

    Args:
        every: How many steps, or epochs, lie between records.
        unit: `"steps"` or `"epochs"`.
        probe: For per-example gates: inputs of the model (of a functional one) on
            which to look at them; for a model of another kind, routing inputs. A
            batch of a few hundred examples will do.
        log_dir: Where to write for TensorBoard as well. Needs `tensorflow` and
            `tensorboard`, on any backend.

    Example:
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.ones((8, 2))
        >>> recorder = GateRecorder(every=1, unit="epochs")
        >>> log = model.fit(x, y, epochs=3, verbose=0, callbacks=[recorder])
        >>> recorder.history["mmoe"]["weights"].shape
        (4, 2, 8)
    """

    def __init__(self, every=100, unit="steps", probe=None, log_dir=None):
        super().__init__()
        if unit not in {"steps", "epochs"} or not every >= 1:
            raise ValueError(
                '`every` must be 1 or more, and `unit` "steps" or "epochs". '
                f"Received: every={every}, unit={unit!r}."
            )
        self.every = every
        self.unit = unit
        self.probe = probe
        self.log_dir = log_dir
        self.history = GateHistory()
        self._layers = None
        self._writer = None
        self._warned = set()
        self._step = self._before = self._epoch_start = self._next = 0

    def on_train_begin(self, logs=None):
        """Find the gates, and record how they start."""
        self._layers = _gated_layers(self.model)
        if not self._layers:
            raise ValueError(
                "The model has no gates to record. Use a layer such as `MMoE`, `MoE` "
                "or `DSelectKGate` in it."
            )
        if self.log_dir is not None and self._writer is None:
            self._writer = _summary_writer(self.log_dir)
        self._before = self._iterations() - self._step
        self._epoch_start = self._step
        if all(gate.built for _, gate, _ in self._layers) and not len(self.history):
            self._prepare()
            self._record()
        self._next = self._step + self.every

    # At the begin of a batch rather than at its end: with a hook at the end Keras
    # brings the logs of every step to the host, and the device waits for that.
    def on_train_batch_begin(self, batch, logs=None):
        """Record what the last step left, if it is time."""
        self._step = self._epoch_start + batch
        if self.unit == "steps" and self._step >= self._next:
            self._record()
            self._next = self._step + self.every

    def on_epoch_end(self, epoch, logs=None):
        """Record, if it is time."""
        self._step = self._iterations() - self._before
        self._epoch_start = self._step
        if self.unit == "epochs" and (epoch + 1) % self.every == 0:
            self._record()

    def on_train_end(self, logs=None):
        """Record how the gates end, unless that is done."""
        if not len(self.history) or self.history.steps[-1] != self._step:
            self._record()

    def _iterations(self):
        # Under `tf.distribute` a variable is no number.
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))

    def _prepare(self):
        """Compute once what the per-example gates of the model look at."""
        self.history.tasks = {}
        self._routing, self._report = {}, {}
        for layer, gate, tasks in self._layers:
            self.history.tasks[layer.name] = tasks
            if gate.per_example and self.probe is None:
                raise ValueError(
                    f"The gates of {layer.name!r} are per-example: give the recorder "
                    "a `probe`, a batch of inputs on which to look at them."
                )
            self._report[layer.name] = _compiled_report(gate)
            self._routing[layer.name] = (
                _routing_model(self.model, layer) if gate.per_example else None
            )

    def _record(self):
        # On JAX asking for the model brings its variables up to date.
        layers = _gated_layers(self.model)
        if not self.history.tasks or [g for _, g, _ in layers] != [
            g for _, g, _ in self._layers
        ]:
            # The first time, or gates have been replaced (see `CondenseWhenBinary`).
            self._layers = layers
            self._prepare()
        records = {}
        for layer, gate, tasks in self._layers:
            routing = self._routing[layer.name]
            inputs = () if routing is None else (routing(self.probe),)
            report = keras.tree.map_structure(
                keras.ops.convert_to_numpy, self._report[layer.name](*inputs)
            )
            records[layer.name] = _summarize(report, gate)
            self._warn(layer.name, tasks, records[layer.name])
        self.history.append(self._step, records)
        if self._writer is not None:
            _write_summaries(self._writer, self._step, records)

    def _warn(self, layer, tasks, record):
        reachable = record.get("reachable")
        if reachable is None:
            return
        for task, selector in np.argwhere(reachable < 1e-3):
            if (layer, task, selector) not in self._warned:
                self._warned.add((layer, task, selector))
                warnings.warn(
                    f"Selector {selector} of task {tasks[task]!r} in {layer!r} sits on "
                    "a code that belongs to no expert: its weight is lost, and no "
                    "gradient brings it back. Use unreachable='assign', or a number "
                    "of experts that is a power of two.",
                    stacklevel=2,
                )


def _gated_layers(model):
    """Layers with gates: the layer, the gate and the names of the tasks."""
    # Keras has no public way to see the layers inside layers.
    layers = list(model._flatten_layers())  # noqa: SLF001
    owned, found = set(), []
    for layer in layers:
        is_routed = isinstance(layer, (MMoE, RoutedExperts))
        if is_routed and id(layer.gate) not in owned:
            gate, names = layer.gate, getattr(layer, "task_names", None)
            owned.update({id(gate), id(getattr(layer, "moe", None))})
            if names is None or gate.num_gates == 1:
                names = ["all tasks"] if names else _gate_names(gate)
            found.append((layer, gate, names))
            shared_gate = getattr(layer, "shared_gate", None)
            if shared_gate is not None:
                owned.add(id(shared_gate))
                found.append((_SharedGate(layer), shared_gate, ["shared"]))
    found.extend(
        (layer, layer, _gate_names(layer))
        for layer in layers
        if isinstance(layer, Gate) and id(layer) not in owned
    )
    return found


class _SharedGate:
    """The gate of a CGC that mixes for the next level, as a layer of its own."""

    def __init__(self, layer):
        self.layer = layer
        self.name = f"{layer.name}_shared"
        self.routing_inputs = layer.shared_routing_inputs

    @property
    def input(self):
        return self.layer.input


def _gate_names(gate):
    return [f"gate_{i}" for i in range(gate.num_gates or 1)]


def _routing_model(model, layer):
    """A function from the model's inputs to what the layer's gates look at."""
    try:
        inputs, source = layer.input, model.input
    except (AttributeError, ValueError):
        return lambda probe: probe
    routing = inputs[-1] if isinstance(layer, Gate) else layer.routing_inputs(inputs)
    try:
        return keras.Model(source, routing)
    except ValueError as error:
        raise ValueError(
            f"The gates of {layer.name!r} are per-example and sit in a model inside "
            "the model: what they look at cannot be computed from the probe. Use the "
            "layer in the outer model itself."
        ) from error


def _compiled_report(gate):
    """`gate.report`, compiled where running it op by op is slow."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        # TensorFlow logs a warning of functions that are made often and called
        # rarely, but not of their traces.
        # A gate may look at several tensors, which come as a list.
        @functools.cache
        def trace(*specs):
            def report(*tensors):
                return gate.report(*_packed(tensors))

            return tf.function(report).get_concrete_function(*specs)

        def traced(*inputs):
            tensors = [
                keras.ops.convert_to_tensor(x) for x in keras.tree.flatten(inputs)
            ]
            return trace(*(tf.TensorSpec(x.shape, x.dtype) for x in tensors))(*tensors)

        return traced
    if backend != "jax":
        return gate.report
    import jax  # pyright: ignore[reportMissingImports]

    @jax.jit
    def report(values, *inputs):
        state = zip(gate.variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(state)):
            return gate.report(*inputs)

    return lambda *inputs: report([v.value for v in gate.variables], *inputs)


def _packed(tensors):
    """The routing inputs of a gate: none, one tensor, or a list of several."""
    return [list(tensors)] if len(tensors) > 1 else tensors


def _summarize(report, gate):
    """The arrays of one record: a task axis everywhere, and none for the batch."""

    def tidy(value):
        if gate.num_gates is None:
            value = np.expand_dims(value, int(gate.per_example))
        return value.mean(axis=0) if gate.per_example else value

    weights = report["weights"]
    if getattr(gate, "num_before", None) is not None:
        # A condensed gate: its experts keep the places that they had.
        places = np.zeros((*weights.shape[:-1], gate.num_before), weights.dtype)
        places[..., gate.kept] = weights
        weights = places
    return {
        "weights": tidy(weights),
        "active": tidy((weights > 0).sum(axis=-1).astype("float32")),
        **{name: tidy(value) for name, value in report["selectors"].items()},
        **{f"penalty_{name}": value for name, value in report["penalties"].items()},
    }


def _summary_writer(log_dir):
    modules = ("tensorflow", "tensorboard")
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"`log_dir` needs {' and '.join(modules)} on any backend: "
            f"pip install {' '.join(missing)}."
        )
    import tensorflow as tf

    return tf.summary.create_file_writer(str(log_dir))


def _write_summaries(writer, step, records):
    import tensorflow as tf

    with writer.as_default(step=step):
        for layer, record in records.items():
            for name, value in record.items():
                if name == "weights":
                    tf.summary.histogram(f"{layer}/{name}", value)
                else:
                    tf.summary.scalar(f"{layer}/{name}", np.mean(value))
    writer.flush()
