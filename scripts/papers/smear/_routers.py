"""The routers of the paper's tables, each as a layer between frozen blocks."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras

from dselectk_keras.experts import DenseExperts, single_expert
from dselectk_keras.gates import (
    DSelectKGate,
    HashGate,
    LatentSkillsGate,
    RandomGate,
    ReinforceGate,
    SoftmaxGate,
    STGumbelGate,
    SwitchGate,
    TagGate,
    TopKGate,
)
from dselectk_keras.layers import MoE, SmearExperts, SoftMoE
from dselectk_keras.models import RoutedModel
from dselectk_keras.schedules import Ramp
from papers.smear._backbone import copies

DROPOUT = 0.1  # Of experts, for the routers that have it in the release.
# Single experts, and what of all experts together they match.
SINGLE = {"1x compute": "compute", "1x parameters": "parameters"}


ROUTERS = (
    "SMEAR",
    "tag",
    "hash",
    "1x compute",
    "1x parameters",
    "top-1",
    "top-2",
    "switch",
    "ST-Gumbel",
    "REINFORCE",
    "DSelect-k",
    "latent skills",
    "AdaMix",
    "ensemble",
    "Soft MoE",
)
# What merges the parameters of experts; the others mix their outputs.
MERGING = ("SMEAR", "latent skills", "AdaMix")
# What routers look at that do not look at the features.
ROUTED_BY = {"tag": "domain", "latent skills": "domain", "hash": "id"}


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Experts and their routers.

    Args:
        num_experts: Experts in each layer.
        units: Width of an adapter.
        num_steps: Training steps, for what changes over training.
        dispatch: Whether routers that choose evaluate only what they chose.
        gates: Gates of further routers, as in an `Experiment`.
    """

    num_experts: int
    units: int
    num_steps: int
    dispatch: bool = False
    gates: Mapping[str, Callable] = dataclasses.field(default_factory=dict)

    def bank(self, features):
        """The experts: adapters from and to so many features."""
        return DenseExperts(
            self.num_experts,
            [self.units, features],
            ["swish", None],
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        )

    def gate(self, router, number):
        """The gate of a router, in the layer of that number."""
        # The release comes down to 0.5 after 0.3 of its 100,000 steps.
        temperature = Ramp(10.0, 0.5, end=0.3, num_steps=self.num_steps)
        entropy = Ramp(1e-4, 1e-1, end=1.0, num_steps=self.num_steps)
        learned: dict[str, Any] = {"normalize": True}
        dropping = {**learned, "expert_dropout": DROPOUT}
        smooth: dict[str, Any] = {
            "entropy_reg": entropy,
            "unreachable": "assign",
            "reduction": "mean",
        }
        gates = {
            "SMEAR": partial(SoftmaxGate, **dropping),
            "tag": TagGate,
            "hash": partial(HashGate, salt=number),
            "top-1": partial(TopKGate, 1, **learned),
            "top-2": partial(TopKGate, 2, **dropping),
            "switch": partial(SwitchGate, **dropping),
            "ST-Gumbel": partial(STGumbelGate, temperature, **learned),
            "REINFORCE": partial(ReinforceGate, **learned),
            "DSelect-k": partial(DSelectKGate, 1, **smooth),
            "latent skills": partial(LatentSkillsGate, num_tasks=self.num_experts),
            "AdaMix": RandomGate,
            "ensemble": partial(SoftmaxGate, **learned),
        }
        if router in self.gates:
            return self.gates[router](1, self.num_steps)
        return gates[router]()

    def layer(self, router, features, number):
        """The routed layer.

        Args:
            router: A name in `ROUTERS`.
            features: The width of what it sees.
            number: Of the layer, from 0 on.

        Returns:
            A Keras layer, called on `(batch, positions, features)`, or on a pair of
            that and what the router looks at by `ROUTED_BY`.
        """
        bank = self.bank(features)
        if router == "Soft MoE":
            return SoftMoE(bank)
        if router in SINGLE:
            return MoE(single_expert(bank, SINGLE[router], features), SoftmaxGate())
        gate = self.gate(router, number)
        if router in MERGING:
            return SmearExperts(bank, gate, per_layer=router == "AdaMix")
        pooling = keras.layers.GlobalAveragePooling1D()
        return MoE(
            bank,
            gate,
            per_example=True,
            routing=None if router in ROUTED_BY else pooling,
            # Nothing can be left out by a gate that may have weights everywhere.
            dispatch=self.dispatch and gate.sparse_at_once,
        )

    def flops(self, router, positions, features):
        """Operations of a routed layer for one image, at inference.

        Counted are products of matrices, an addition and a multiplication being two
        operations: adapters, the merge of their parameters, and the router.

        Args:
            router: A name in `ROUTERS`.
            positions: How many positions the layer sees.
            features: How wide they are.

        Returns:
            A number.
        """
        n, units = self.num_experts, self.units
        scores = 2 * n * features
        if router == "Soft MoE":
            # Adapters see n slots. Scores of all positions, into slots, and back.
            return 4 * n * features * units + 3 * positions * scores
        if router in SINGLE:
            bank = single_expert(self.bank(features), SINGLE[router], features)
            return 4 * positions * features * bank.units[0]
        passes = {"top-2": 2, "ensemble": n}.get(router, 1)
        if router in self.gates:
            passes = self.gate(router, 0).max_experts or n
        total = passes * 4 * positions * features * units
        if router == "SMEAR":
            # What does not depend on the image is merged once for all.
            total += 4 * n * features * units
        return total + (0 if router in {*ROUTED_BY, "AdaMix"} else scores)


def build_model(router, blocks, shared, num_classes, learning_rate):
    """A compiled classifier: frozen blocks with routed adapters before each of them.

    Args:
        router: A name in `ROUTERS`.
        blocks: The blocks of a `Backbone`, which are copied.
        shared: An `Adapters`.
        num_classes: How many classes.
        learning_rate: Of Adam.

    Returns:
        A `RoutedModel`. Its inputs are a dict of `features` and, for some routers, of
        what they look at.
    """
    key = ROUTED_BY.get(router)
    shape = blocks[0].inputs[0].shape[1:]
    inputs = {"features": keras.Input(shape, name="features")}
    if key:
        inputs[key] = keras.Input((1,), dtype="int32", name=key)
    x = inputs["features"]
    for number, block in enumerate(copies(blocks)):
        height, width, channels = x.shape[1:]
        normal = keras.layers.BatchNormalization(momentum=0.9)(x)
        normal = keras.layers.Reshape((height * width, channels))(normal)
        layer = shared.layer(router, channels, number)
        adapted = layer((normal, inputs[key]) if key else normal)
        adapted = keras.layers.Reshape((height, width, channels))(adapted)
        x = block(keras.layers.Add()([x, adapted]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(num_classes, "softmax")(x)
    consistency = 1.0 if router == "AdaMix" else 0.0
    model = RoutedModel(inputs, outputs, consistency=consistency)
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def routed_layers(model):
    """The layers of a model that have experts, in order."""
    return [layer for layer in model.layers if hasattr(layer, "experts")]
