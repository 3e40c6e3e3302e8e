"""Other people's code at the same work: the original release, LibMTL, transformers.

Nothing of it is in this project; a user names the path of a copy.
"""

import functools
import importlib.util
import pathlib
import sys
import types
from typing import Any

import keras

from research.speed.measure import measure
from research.speed.tokens import TOKEN_WORKLOADS, TokenWorkload
from research.speed.workload import WORKLOADS

# With a backend, and the workloads that the code can compute.
_PER_EXAMPLE = ("W1-per-example-128", "W4-dselect-k")
SAME_LOOP = "dispatched, same loop"
OTHERS = {
    "release": ("tensorflow", ("W1-static-128", "W2", *_PER_EXAMPLE)),
    "libmtl": ("torch", _PER_EXAMPLE),
    "transformers": ("torch", tuple(TOKEN_WORKLOADS)),
}


def measure_other(name, path, workload, rounds, progress=lambda _: None):
    """Time a workload in the package and in other code, in turns; return the numbers.

    The path is that of the release's file, or of the folder with the package.
    """
    code = {"release": _release, "libmtl": _libmtl, "transformers": _transformers}
    work = WORKLOADS[workload]
    makers: dict[str, Any] = {name: lambda: code[name](work, pathlib.Path(path))}
    tokens = isinstance(work, TokenWorkload)
    for form in ("dispatched",) if tokens else ("XLA", "bank", "stacked"):
        if form in work.forms:
            makers[form] = functools.partial(work.model, form)
    if tokens:
        makers[SAME_LOOP] = lambda: _in_loop_of_torch(work)
    return measure(work, makers, rounds, progress)["forms"]


def _release(workload, path):
    """The layer of the original release, in a model of Keras 2."""
    import tensorflow as tf

    if issubclass(tf.keras.layers.Layer, keras.layers.Layer):
        raise RuntimeError(
            "The original release needs Keras 2: pip install tf_keras, and set "
            f"TF_USE_LEGACY_KERAS=1. Received: Keras {keras.__version__}."
        )
    spec: Any = importlib.util.spec_from_file_location("dselect_k_moe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    layers = tf.keras.layers
    inputs = layers.Input(workload.input_shape, name="features")
    experts = [
        layers.Dense(workload.units, activation="relu")(inputs)
        for _ in range(workload.num_experts)
    ]
    outputs = {}
    for task in workload.new_tasks():
        gate = module.DSelectKGate(workload.num_nonzeros)
        x = gate((experts, inputs) if workload.per_example else experts)
        if task.tower == "sum":
            x = tf.reduce_sum(x, axis=-1, keepdims=True)
        else:
            for width in task.tower:
                x = layers.Dense(width, activation="relu")(x)
            x = layers.Dense(1)(x)
        outputs[task.name] = layers.Activation("linear", name=task.name)(x)

    class Model(tf.keras.Model):
        def fit(self, *args, callbacks=(), **kwargs):
            hooks: Any = [
                tf.keras.callbacks.LambdaCallback(
                    on_batch_begin=callback.on_train_batch_begin,
                    on_epoch_end=callback.on_epoch_end,
                )
                for callback in callbacks
            ]
            return super().fit(*args, callbacks=hooks, **kwargs)

    model = Model(inputs, outputs)
    model.compile("adam", loss=dict.fromkeys(outputs, "mse"))
    return model


def _libmtl(workload, path):
    """The architecture of LibMTL, trained with the sum of the tasks' losses."""
    import torch
    from torch import nn

    # LibMTL's own `__init__` imports solvers that its architectures do not need.
    package = types.ModuleType("LibMTL")
    package.__path__ = [str(path / "LibMTL")]
    sys.modules["LibMTL"] = package
    architecture = importlib.import_module("LibMTL.architecture.DSelect_k")

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(workload.num_features, workload.units)

        def forward(self, x):
            return torch.relu(self.dense(x))

    def tower(widths):
        layers, width = [], workload.units
        for units in widths:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, 1))

    tasks = {task.name: tower(task.tower) for task in workload.new_tasks()}
    network = architecture.DSelect_k(
        list(tasks),
        Encoder,
        nn.ModuleDict(tasks),
        rep_grad=False,
        multi_input=False,
        device=torch.device("cpu"),
        img_size=list(workload.input_shape),
        num_experts=[workload.num_experts],
        num_nonzeros=workload.num_nonzeros,
        kgamma=1.0,
    )
    return _TorchModel(network)


def _transformers(workload, path):
    """The experts of Mixtral, in the implementation that the library chooses.

    Its experts have three kernels where ours have two, and so fewer units.
    """
    import torch

    sys.path.append(str(path))
    library: Any = importlib.import_module("transformers")
    mixtral = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    config = library.MixtralConfig(
        hidden_size=workload.width,
        intermediate_size=8 * round(workload.units / 12),
        num_local_experts=workload.num_experts,
        num_experts_per_tok=workload.num_nonzeros,
        num_hidden_layers=1,
        vocab_size=8,
    )
    decoder = library.MixtralModel(config).layers[0]
    (block,) = (
        module
        for module in decoder.modules()
        if isinstance(module, mixtral.MixtralSparseMoeBlock)
    )

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.task_name = block, ["task_0"]

        def forward(self, x):
            return {"task_0": self.block(x)}

    return _TorchModel(Network())


def _in_loop_of_torch(workload):
    """The package's layer, trained by the loop that trains the other code."""
    model = workload.model("dispatched")
    model.task_name = ["task_0"]
    return _TorchModel(model)


class _TorchModel:
    """The methods of a Keras model that the benchmark calls, for a module of torch."""

    def __init__(self, network):
        import torch

        self.torch, self.network = torch, network
        self.optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
        self.trainable_variables = list(network.parameters())
        self.output = dict.fromkeys(network.task_name)

    def __call__(self, x):
        return self.network.eval()(x)

    def predict_on_batch(self, x):
        with self.torch.no_grad():
            found = self(self.torch.from_numpy(x))
        return {name: value.numpy() for name, value in found.items()}

    def fit(self, x, y, batch_size, callbacks=(), **_):
        """One epoch, in order."""
        self.network.train()
        x = self.torch.from_numpy(x)
        y = {name: self.torch.from_numpy(value) for name, value in y.items()}
        for batch, start in enumerate(range(0, len(x), batch_size)):
            for callback in callbacks:
                callback.on_train_batch_begin(batch)
            rows = slice(start, start + batch_size)
            self.optimizer.zero_grad()
            found = self.network(x[rows])
            wanted = {name: labels[rows] for name, labels in y.items()}
            losses = [
                ((found[name].reshape(labels.shape) - labels) ** 2).mean()
                for name, labels in wanted.items()
            ]
            loss = self.torch.stack(losses).sum()
            loss.backward()
            self.optimizer.step()
            float(loss.detach())  # As a progress bar shows it.
        for callback in callbacks:
            callback.on_epoch_end(0)
