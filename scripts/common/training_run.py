"""Train one architecture with one gate on one data set."""

import dataclasses
import inspect
import json
import shutil
import time
from typing import Any

import keras
import numpy as np

from common.backup import Backup
from common.environment import environment
from common.files import numbers, read_json, whole, write_json
from common.run_folder import CHECKPOINTS, CONFIG, RESULT, prepare_folder
from common.training_fields import TrainingFields
from dselectk_keras import datasets, gates
from dselectk_keras.batches import Batches
from dselectk_keras.callbacks import ChooseExperts, DecideGates, GateRecorder
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates.registry import check_settings
from dselectk_keras.gates.selector_gate import SelectorGate, selector_gates
from dselectk_keras.layers import CGC
from dselectk_keras.metrics import active_experts, jaccard_index
from dselectk_keras.models import ARCHITECTURES, Task, build_multitask_model
from dselectk_keras.plots import plot_expert_heatmap, plot_gate_weights
from dselectk_keras.plots.style import save_figure
from dselectk_keras.schedules import Ramp
from dselectk_keras.utils import (
    argument_names,
    check_choice,
    check_count,
    check_number,
    num_trained,
)

__all__ = ["TrainingRun"]

MODEL, HISTORY = "model.keras", "gate_history.npz"
CURVES, HEATMAP = "gate_weights.png", "expert_heatmap.png"
BACKUP, CURVE = "backup", "curve.json"  # Of an unfinished run.
# What a progress bar shows: sums over the tasks, and of the gates.
SHOWN = "task_loss", "val_task_loss", "binary", "experts"
EMBEDDING = 16  # The width of an id's embedding.
# Fields that only architectures with gates read.
OF_GATES = (
    *("gate", "gate_options", "num_nonzeros", "gamma", "entropy"),
    *("decide_by", "per_example"),
)


@dataclasses.dataclass(frozen=True)
class TrainingRun(TrainingFields):
    """One training run; `run` trains the model and writes the results into a folder.

    Its fields are options of `scripts/train.py`, whose `--help` says what each is.
    DSelect-k has `unreachable="assign"`, which is better if the number of experts is
    not a power of two. `"tag"` and `"hash"` get the signs of the first features.
    """

    def __post_init__(self):
        """Raise an error for unknown names and settings before any work."""
        check_choice("data", self.data, datasets.NAMES)
        ARCHITECTURES.find(self.architecture)
        gates.GATES.find(self.gate)
        if self.decide_by:
            DecideGates(self.decide_by)
        counts = {"epochs": self.epochs, "batch_size": self.batch_size}
        if self.num_experts is not None:
            counts["num_experts"] = self.num_experts
        for name, count in counts.items():
            check_count(name, count)
        check_number("learning_rate", self.learning_rate, above=0)
        if self.has_gate:
            check_settings(self.gate, self.gate_options)
            fields = {"num_nonzeros": "num_nonzeros"}
            if self.gate == "dselect_k":
                fields |= {"gamma": "gamma", "entropy_reg": "entropy"}
            if twice := [fields[name] for name in self.gate_options if name in fields]:
                raise ValueError(
                    "`gate_options` must not have what is a field of its own. "
                    f"Received: {', '.join(twice)}. Set the fields in its place."
                )
        if self.has_gate and self.gate == "reinforce":
            raise ValueError(
                "A `ReinforceGate` learns from the losses of the examples, in a "
                "`RoutedModel`. Received: gate='reinforce'. Choose another gate."
            )

    @property
    def config(self):
        """The fields by name, as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @property
    def has_gate(self):
        """True if the architecture has gates."""
        return "gate" in inspect.signature(ARCHITECTURES[self.architecture]).parameters

    @property
    def unused(self):
        """The names of fields that the architecture, or the gate, does not read."""
        if not self.has_gate:
            # A shared bottom for synthetic data is as wide as so many experts.
            bottom = self.data, self.architecture, self.units
            reads_number = bottom == ("synthetic_moe", "shared_bottom", None)
            return OF_GATES if reads_number else (*OF_GATES, "num_experts")
        kind = gates.GATES[self.gate]
        reads = {
            "num_nonzeros": "num_nonzeros" in argument_names(kind),
            "gamma": self.gate == "dselect_k",
            "entropy": self.gate == "dselect_k",
            "decide_by": issubclass(kind, (gates.ChosenGate, SelectorGate)),
        }
        return [name for name, is_read in reads.items() if not is_read]

    @property
    def gates_see_examples(self):
        """True if the gates are per-example."""
        return self.per_example or gates.GATES[self.gate].per_example_only

    @property
    def label(self):
        """The names of the architecture and the gate."""
        gate = f" {self.gate}" if self.has_gate else ""
        return f"{self.architecture}{gate}"

    def run(self, out, overwrite=False, progress=True, resume=False, log_dir=None):
        """Train, evaluate, and write model, gate history, metrics and pictures.

        Args:
            out: The folder to write into. The metrics are written last: a folder
                with metrics has a finished run.
            overwrite: Whether to replace a run.
            progress: Whether to show a progress bar.
            resume: Whether to go on with an unfinished run of the same settings. Of a
                finished run, the metrics are returned.
            log_dir: A folder for the TensorBoard logs of gates and losses; `None`
                writes none.

        Returns:
            The metrics, as a dict.
        """
        out, finished = prepare_folder(out, self.config, overwrite, resume)
        if finished is not None:
            shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
            return {
                name: each if name in ("config", "versions") else numbers(each)
                for name, each in finished.items()
            }
        keras.utils.set_random_seed(self.seed)
        data: Any = datasets.load(self.data, seed=self.seed, **self.data_options)
        model = self.build(data)
        # From here on the folder does not hold a finished run, nor a part of another.
        config = out / CHECKPOINTS / CONFIG
        if not (resume and config.exists()):
            # The results first: with them, a run is finished.
            for name in (RESULT, MODEL, HISTORY, CURVES, HEATMAP):
                (out / name).unlink(missing_ok=True)
            # Without its config, what a kill leaves of the folder is not resumed.
            config.unlink(missing_ok=True)
            shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        model.compile(keras.optimizers.Adam(self.learning_rate))
        watching: list = [_epoch_progress(self.epochs)] if progress else []
        if log_dir is not None:
            watching.append(keras.callbacks.TensorBoard(log_dir, write_graph=False))
        began = time.perf_counter()
        curve, history = self._fit(model, data, out, watching)
        seconds = time.perf_counter() - began
        test = model.evaluate(*data.test, batch_size=4096, verbose=0, return_dict=True)
        names = ("loss", "task_loss", "val_task_loss")
        results = {
            "label": self.label,
            "config": self.config,
            "num_params": num_trained(model),
            "test_task_loss": test["task_loss"] / len(data.task_names),
            "test": test,
            "curve": {name: curve[name] for name in names},
            "seconds": round(seconds, 2),
            "versions": environment(),
        }
        with whole(out / MODEL) as part:
            model.save(part)
        if self.has_gate:
            results["gates"] = self._draw_gates(history, model, data, out)
        write_json(out / RESULT, results)
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        return results

    def _fit(self, model, data, out, others):
        """Train, or go on with it. Return the curves and the history of the gates."""
        folder = out / CHECKPOINTS
        write_json(folder / CONFIG, self.config)
        batches = Batches(data.train, self.batch_size, self.seed)
        recorder = GateRecorder(
            every=max(1, self._num_steps(data) // 200),
            probe=data.validation.x[:512] if self.gates_see_examples else None,
            path=out / HISTORY,
        )
        curve = Curve(folder / CURVE, batches)
        backup = Backup(folder / BACKUP)
        saved = [recorder, curve] if self.has_gate else [curve]
        model.fit(
            batches,
            validation_data=tuple(data.validation),
            epochs=self.epochs,
            initial_epoch=backup.restore(model),
            shuffle=False,
            # A callback before the backup has saved each epoch that is backed up.
            callbacks=[*saved, *self.make_decide(model), backup, *others],
            verbose=0,
        )
        return curve.logs, recorder.history

    def build(self, data):
        """Build the model for a `Dataset`; it is not compiled yet."""
        # The synthetic experts are sums of 4 ReLU units, and so are the model's. A
        # shared bottom is as wide as all of them, with a linear head for each task.
        synthetic = self.data == "synthetic_moe"
        num_experts = self._num_experts(len(data.task_names))
        width = 4 * num_experts if self.architecture == "shared_bottom" else 4
        units = self.units or ((width,) if synthetic else (64,))
        if self.architecture == "attentive" and len(units) == 1:
            units = (2 * units[0], *units)
        tasks = make_tasks(data, "sum" if synthetic and self.has_gate else ())
        return build_multitask_model(
            encode_inputs(data, num_experts if self.gate in ("tag", "hash") else None),
            tasks,
            self.architecture,
            experts=DenseExperts(num_experts, units),
            gate=self.make_gate(self._num_steps(data)) if self.has_gate else "softmax",
            per_example=self.gates_see_examples,
            **self.architecture_options,
        )

    def make_decide(self, model):
        """List the callback that decides on the experts, if the gates need one."""
        if not self.decide_by:
            return []
        if self.has_gate and self.gate == "chosen":
            given = self.gate_options.get("initial_choices") is not None
            return [] if given else [ChooseExperts(by=self.decide_by)]
        return [DecideGates(self.decide_by)] if selector_gates(model) else []

    def _num_experts(self, num_tasks):
        return self.num_experts or (
            num_tasks // 4 if self.data == "synthetic_moe" else 8
        )

    def _num_steps(self, data):
        return self.epochs * -(-len(data.train.x) // self.batch_size)

    def make_gate(self, steps):
        """Create the gate, for a training of this many steps."""
        settings = {}
        if "num_nonzeros" in argument_names(gates.GATES[self.gate]):
            settings["num_nonzeros"] = self.num_nonzeros
        if self.gate == "dselect_k":
            settings["gamma"] = self.gamma
            settings["unreachable"] = "assign"
            if self.entropy:
                settings["entropy_reg"] = Ramp(*self.entropy, end=steps)
        return gates.get(self.gate, **{**settings, **self.gate_options})

    def _draw_gates(self, history, model, data, out):
        """Draw the history of the gates, and summarize its last record."""
        # The last layer with gates: in stacked ones the towers' own.
        layer = list(history.tasks)[-1]
        weights, tasks = history[layer]["weights"], history.tasks[layer]
        shown = min(4, weights.shape[1])
        figure = plot_gate_weights(
            history.steps,
            weights[:, :shown],
            task_names=tasks[:shown],
            events=history.events[layer],
        )
        save_figure(figure, out / CURVES, dpi=200)
        figure = plot_expert_heatmap(
            weights[-1],
            task_names=tasks,
            groups=data.groups if weights.shape[1] > 1 else None,
            title=self.label,
        )
        save_figure(figure, out / HEATMAP, dpi=200)
        shared = not isinstance(model.get_layer(layer), CGC)
        return summarize_gates(history[layer], data.groups, shared)


class Curve(keras.callbacks.Callback):
    """Keeps the logs of all epochs in a file, and the order of the batches.

    After an interruption, the logs of Keras' `History` begin anew, and so does the
    order of the batches.
    """

    def __init__(self, path, batches):
        super().__init__()
        self.path, self.batches = path, batches
        self.logs = numbers(read_json(path)) if path.exists() else {}
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Shuffle the batches as often as in a whole training."""
        for _ in range(epoch - self._epoch):
            self.batches.shuffle()
        self._epoch = epoch + 1

    def on_epoch_end(self, epoch, logs=None):
        """Keep the logs of an epoch."""
        for name, value in (logs or {}).items():
            before = self.logs.get(name, [])[:epoch]
            self.logs[name] = [*before, float(value)]
        write_json(self.path, self.logs)


def _epoch_progress(epochs):
    """A callback with a progress bar for the whole run that shows no single tasks."""
    bar = keras.utils.Progbar(epochs, unit_name="epoch", stateful_metrics=SHOWN)

    def update(epoch, logs):
        bar.update(epoch + 1, [(name, logs[name]) for name in SHOWN if name in logs])

    return keras.callbacks.LambdaCallback(on_epoch_end=update)


def summarize_gates(record, groups=None, shared=True):
    """Summarize the last record of the gates."""
    weights = record["weights"][-1]
    active = record["active"][-1]
    summary = {
        "experts_per_task": float(active.mean()),
        "most_experts": float(active.max()),
    }
    if shared:
        summary["experts_used"] = int(active_experts(weights.sum(axis=0)))
    if "binary" in record:
        summary["binary_selectors"] = float(record["binary"][-1].mean())
    if shared and groups is not None and len(weights) == len(groups):
        related, unrelated = jaccard_index(weights, groups)
        summary["jaccard_related"] = float(related)
        summary["jaccard_unrelated"] = float(unrelated)
    return summary


def encode_inputs(data, num_tags=None, width=EMBEDDING):
    """Make the inputs of a model: embeddings of ids, flat images, or the features.

    With `num_tags`, the model also outputs a tag below this number per example.
    """
    x = data.train.x
    if not isinstance(x, np.ndarray):
        raise ValueError(
            "A training run takes inputs in one array. Received: "
            f"{', '.join(x)}. Build a model with an encoder of your own: see "
            "`build_multitask_model`."
        )
    inputs = keras.Input(x.shape[1:], dtype=str(x.dtype), name="features")
    features = inputs
    sizes = data.info.get("vocabulary_sizes")
    if sizes is not None:
        embedded = [
            keras.layers.Embedding(size, width)(inputs[:, column])
            for column, size in enumerate(sizes)
        ]
        features = keras.layers.Concatenate()(embedded)
    elif x.ndim > 2:
        features = keras.layers.Flatten()(inputs)
    if num_tags is None:
        return inputs if features is inputs else keras.Model(inputs, features)
    return keras.Model(inputs, [features, _tags(features, num_tags)], name="tagged")


def make_tasks(data, tower=()):
    """List a `Task` for each column of labels."""
    columns = zip(data.task_names, data.task_kinds, data.num_classes, strict=True)
    return [Task(name, kind, count, tower) for name, kind, count in columns]


def _tags(features, num_experts):
    """A tag for each example: the signs of the first features."""
    num_bits = min(features.shape[-1], (num_experts - 1).bit_length())
    bits = keras.ops.cast(features[:, :num_bits] > 0, "int32")
    code = keras.ops.sum(bits * 2 ** np.arange(num_bits), axis=1, keepdims=True)
    return keras.ops.mod(code, num_experts)
