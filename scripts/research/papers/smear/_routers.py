"""The routers of the paper's tables, each as a layer between frozen blocks."""

import dataclasses
from functools import partial
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.papers.smear._backbone import copies

DROPOUT = 0.1  # Of experts, where the paper found it beneficial (Appendix C).
WITH_DROPOUT = ("SMEAR", "SMEAR 2x", "Top-k", "top-2")
# Single experts, by what they match of all experts together.
SINGLE = {"1x compute": "compute", "1x parameters": "parameters"}

# The rows of Table 3: final accuracy on DomainNet, and its standard deviation over
# five runs.
DOMAINNET = {
    "SMEAR": "62.0 ± 0.1",
    "1x parameters": "60.8 ± 0.1",
    "1x compute": "59.0 ± 0.1",
    "Adamix": "58.0 ± 0.2",
    "Hash": "52.4 ± 0.1",
    "Tag": "61.4 ± 0.1",
    "Latent Skills": "61.9 ± 0.2",
    "Top-k": "60.0 ± 0.1",
    "ST-Gumbel": "58.5 ± 0.2",
    "REINFORCE": "60.0 ± 0.1",
    "DSelect-k": "59.3 ± 0.2",
    "Soft MoE": "60.5 ± 0.1",
    "Ensemble": "62.9 ± 0.1",
    "SMEAR 2x": "62.8 ± 0.1",
}
ROUTERS = tuple(DOMAINNET)
# The other rows of Table 1.
ABLATED = (
    "SMEAR, no dropout",
    "Top-k, no dropout",
    "ST-Gumbel, dropout",
    "REINFORCE, dropout",
)
OURS = ("top-2",)  # Not in the paper.
# Of a GPU, for one experiment of the paper (Appendix A).
HOURS = {"GLUE": 108, "DomainNet": 11}
# Routers that merge the parameters of experts; the others mix their outputs.
MERGING = ("SMEAR", "SMEAR 2x", "Latent Skills", "Adamix")
# Inputs of routers that do not see the features.
ROUTED_BY = {"Tag": "domain", "Latent Skills": "domain", "Hash": "id"}


def base_of(router):
    """The name of a router without what is changed in it, such as its dropout."""
    return router.split(", ", maxsplit=1)[0]


def num_experts_of(router, num_experts):
    """The number of experts of a router, if that of the others is `num_experts`."""
    return 2 * num_experts if router == "SMEAR 2x" else num_experts


class CopiedExperts(keras.layers.Layer):
    """An `MoE` that chooses one expert, for inference, as in Appendix B of the paper.

    The parameters of the chosen expert are copied for each example, and all examples
    are evaluated in one batched product.
    """

    def __init__(self, moe):
        super().__init__()
        self.moe = moe

    def build(self, inputs_shape):
        several = isinstance(inputs_shape[0], (tuple, list))
        self.moe.build(*(inputs_shape if several else [inputs_shape]))

    def call(self, inputs):
        x = inputs[0] if isinstance(inputs, (tuple, list)) else inputs
        weights = self.moe.expert_weights(inputs)
        chosen = keras.ops.argmax(weights, axis=-1)
        shares = keras.ops.max(weights, axis=-1)[:, None, None]
        first, bias, second, last_bias = (
            keras.ops.take(each, chosen, axis=0)
            for each in self.moe.experts.parameters()
        )
        x = keras.ops.swish(keras.ops.matmul(x, first) + bias[:, None])
        return shares * (keras.ops.matmul(x, second) + last_bias[:, None])


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Experts and their routers."""

    num_experts: int
    units: int
    num_steps: int
    dispatch: bool = False
    tags: tuple[int, ...] | None = None
    copied: bool = False  # The parameters of a chosen expert, for each example.

    def bank(self, features, router=""):
        """The experts: adapters from and to so many features."""
        return dk.DenseExperts(
            num_experts_of(router, self.num_experts),
            [self.units, features],
            ["swish", None],
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        )

    def gate(self, router, number):
        """The gate of a router, in the layer of that number."""
        # The paper's rate takes 0.3 of its 100,000 steps from 10 down to 0.5.
        temperature = dk.Ramp(10.0, 0.5, end=0.3, num_steps=self.num_steps)
        base = base_of(router)
        dropped = base in WITH_DROPOUT if base == router else "no " not in router
        rate = DROPOUT if dropped else 0.0
        learned: dict[str, Any] = {"normalize": True, "expert_dropout": rate}
        # Both weights are 0.1 in the release, on means over the batch.
        smooth: dict[str, Any] = {
            "entropy_reg": 0.1,
            "unreachable": 0.1,
            "reduction": "mean",
            "z_initializer": keras.initializers.RandomNormal(stddev=0.01),
        }
        gates = {
            "SMEAR": partial(dk.SoftmaxGate, **learned),
            "SMEAR 2x": partial(dk.SoftmaxGate, **learned),
            "Tag": partial(dk.baselines.TagGate, self.tags),
            "Hash": partial(dk.baselines.HashGate, salt=number),
            "top-2": partial(dk.TopKGate, 2, **learned),
            "Top-k": partial(dk.SwitchGate, **learned),
            "ST-Gumbel": partial(dk.baselines.STGumbelGate, temperature, **learned),
            "REINFORCE": partial(dk.baselines.ReinforceGate, **learned),
            "DSelect-k": partial(dk.DSelectKGate, 1, **smooth),
            "Latent Skills": partial(
                dk.baselines.LatentSkillsGate, num_tasks=self.num_experts
            ),
            "Adamix": dk.RandomGate,
            "Ensemble": partial(dk.SoftmaxGate, **learned),
        }
        return gates[base]()

    def routing_network(self, router, features):
        """The layers between the layer's input and the gate, or `None`."""
        if router in ROUTED_BY:
            return None
        pooling = keras.layers.GlobalAveragePooling1D()
        if router != "DSelect-k":
            return pooling
        # The other gates normalize their inputs themselves.
        normal = keras.layers.LayerNormalization(epsilon=1e-5)
        return keras.Sequential([keras.Input((None, features)), pooling, normal])

    def layer(self, router, features, number):
        """The routed layer."""
        bank = self.bank(features, router)
        if router == "Soft MoE":
            return dk.baselines.SoftMoE(bank)
        if router in SINGLE:
            one = dk.baselines.single_expert(bank, SINGLE[router], features)
            return dk.MoE(one, dk.SoftmaxGate())
        gate = self.gate(router, number)
        if base_of(router) in MERGING:
            return dk.SmearExperts(bank, gate, per_layer=router == "Adamix")
        dispatch = self.dispatch and not self.copied
        moe = dk.MoE(
            bank,
            gate,
            per_example=True,
            routing_network=self.routing_network(router, features),
            # Nothing can be left out by a gate that may have weights everywhere.
            dispatch=dispatch and gate.max_experts() is not None,
        )
        return CopiedExperts(moe) if self.copied else moe

    def apply(self, router, inputs, x, number):
        """Apply the routed layer of that number to `x`; see `inputs_of`."""
        layer, key = self.layer(router, x.shape[-1], number), ROUTED_BY.get(router)
        return layer((x, inputs[key]) if key else x)

    def flops(self, router, positions, features, used=None):
        """Operations of adapters, their merge and the router for one image.

        An addition and a multiplication are two.
        """
        n, units = num_experts_of(router, self.num_experts), self.units
        scores = 2 * n * features
        if router == "Soft MoE":
            # Adapters see n slots. Scores of all positions, into slots, and back.
            return 4 * n * features * units + 3 * positions * scores
        if router in SINGLE:
            bank = dk.baselines.single_expert(
                self.bank(features), SINGLE[router], features
            )
            return 4 * positions * features * bank.units[0]
        passes = {"top-2": 2, "Ensemble": n, "DSelect-k": used or n}.get(router, 1)
        total = passes * 4 * positions * features * units
        if base_of(router) in ("SMEAR", "SMEAR 2x"):
            # The merge does not depend on the image, and is done once.
            total += 4 * n * features * units
        if router == "DSelect-k":
            # One selector: its bits, and its share, which is always one.
            scores = 2 * features * ((n - 1).bit_length() + 1)
        return total + (0 if router in {*ROUTED_BY, "Adamix"} else scores)


def inputs_of(router, name, shape, dtype="float32"):
    """The inputs of a model: one of that name, and what the router looks at."""
    inputs = {name: keras.Input(shape, dtype=dtype, name=name)}
    if key := ROUTED_BY.get(router):
        inputs[key] = keras.Input((1,), dtype="int32", name=key)
    return inputs


def build_model(router, blocks, shared, num_classes, learning_rate):
    """A compiled classifier: frozen blocks with routed adapters before each of them."""
    inputs = inputs_of(router, "features", blocks[0].inputs[0].shape[1:])
    x = inputs["features"]
    for number, block in enumerate(copies(blocks)):
        height, width, channels = x.shape[1:]
        normal = keras.layers.BatchNormalization(momentum=0.9)(x)
        normal = keras.layers.Reshape((height * width, channels))(normal)
        adapted = shared.apply(router, inputs, normal, number)
        adapted = keras.layers.Reshape((height, width, channels))(adapted)
        x = block(keras.layers.Add()([x, adapted]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(num_classes, "softmax")(x)
    return compiled(router, inputs, outputs, keras.optimizers.Adam(learning_rate))


def compiled(router, inputs, outputs, optimizer):
    """A compiled classifier; Adamix has a consistency loss."""
    consistency = 1.0 if router == "Adamix" else 0.0
    model = dk.baselines.RoutedModel(inputs, outputs, consistency=consistency)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def trained(experiment, build, jobs, examples):
    """Copies of a model, one for each job, trained on inputs and labels."""
    return dk.replicate(
        lambda _: build(),
        examples,
        seeds=[job.seed for job in jobs],
        epochs=experiment.epochs,
        batch_size=experiment.batch_size,
        verbose=0,
    ).copies


def whole(features, rest):
    """A model from images to predictions."""
    images = keras.Input(features.inputs[0].shape[1:], name="image")
    others = {name: each for name, each in rest.input.items() if name != "features"}
    outputs = rest({"features": features(images), **others})
    return keras.Model({"image": images, **others}, outputs)


def look_at_copies(copies, inputs):
    """For each copy of a model: its predictions, and `_weights` by routed layer."""
    model = copies[0].model
    layers = [layer for layer in model.layers if hasattr(layer, "experts")]
    look = keras.Model(model.inputs, [model.output, [each.input for each in layers]])
    # In the order of the model's inputs.
    given = [inputs[tensor.name] for tensor in model.inputs]
    for copy in copies:
        model.set_weights(copy.model.get_weights())
        predictions, seen = look.predict(given, batch_size=256, verbose=0)
        weights = [_weights(*each) for each in zip(layers, seen, strict=True)]
        yield predictions.argmax(-1), weights


def _weights(layer, inputs):
    """The weights over the experts of each example; `None` of a single expert."""
    if not isinstance(layer, dk.baselines.SoftMoE) and not layer.per_example:
        return None
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    tensors = tuple(tensors) if isinstance(tensors, list) else tensors
    weights = keras.ops.convert_to_numpy(layer.expert_weights(tensors))
    # Text has several positions, Adamix a gate for each layer of the adapters; Soft
    # MoE has weights for each position.
    return weights.reshape(len(weights), -1, weights.shape[-1]).mean(axis=1)


def mean_routing(weights, groups, count):
    """The mean weights by group, in thousandths, as lists; none without weights."""
    if weights is None:
        return []
    means = [weights[groups == number].mean(axis=0) for number in range(count)]
    return np.round(means, 3).tolist()
