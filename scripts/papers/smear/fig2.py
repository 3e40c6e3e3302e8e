"""Figure 2: the speed of inference, at the sizes of the paper's adapters."""

import dataclasses
import functools
import statistics
import time

import keras
import numpy as np

from dselectk_keras.plots import plot_runs
from experiments import (
    Claim,
    Experiment,
    Fact,
    Picture,
    Report,
    Table,
    all_hold,
    difference,
    is_positive,
)
from experiments.compare import mean_and_error
from papers import citations, drawing
from papers.smear import _backbone
from papers.smear._claims import RESULTS
from papers.smear._routers import ROUTED_BY, ROUTERS, Adapters, build_model, whole

T5, RESNET = "T5-GLUE", "ResNet-DomainNet"
BASE = "SMEAR"  # What times are relative to.
UNROUTED = ("1x compute", "1x parameters", "Adamix", "Hash", "Tag")
# What the paper trains by estimated gradients; DSelect-k was not stable on texts.
DISCRETE = {
    T5: ("Top-k", "ST-Gumbel", "REINFORCE"),
    RESNET: ("Top-k", "ST-Gumbel", "REINFORCE", "DSelect-k"),
}
NOT_SHOWN = {T5: ("SMEAR 2x", "DSelect-k"), RESNET: ("SMEAR 2x",)}
SAME = 0.1  # Times that differ by a smaller share are almost identical.
SLOWDOWN = {T5: 1.2, RESNET: 1.3}


@dataclasses.dataclass(frozen=True)
class Fig2(Experiment):
    """The time of inference of each router, relative to SMEAR's.

    Args:
        batch_size: Examples in a call.
        turns: How many calls are timed, in turns with SMEAR's.
        length: Positions of a text.
        model_dim: Features of a position, in the text encoder.
        image_size: Height and width of an image.
        width: Channels in the first stack of the residual network.
        units: Widths of the adapters of texts and of images.
        num_experts: Experts for texts and for images.
    """

    name = "smear-fig2"
    title = "speed of inference"
    paper = citations.SMEAR
    where = "Figure 2"
    about = (
        "How long inference takes with each router, as a multiple of SMEAR's time, "
        "with random weights and inputs of the paper's sizes: one encoder layer of the "
        "shape of T5.1.1 Base with adapters after its two sub-layers, and a network of "
        "the shape of ResNet18 with adapters after its eight blocks. The figure's "
        "accuracies are those of [Table 2](smear-table2-small.md) and "
        "[Table 3](smear-table3-small.md)."
    )

    batch_size: int = 4
    turns: int = 5
    length: int = 128
    model_dim: int = 768
    image_size: int = 56
    width: int = 64
    units: tuple[int, int] = (24, 32)
    num_experts: tuple[int, int] = (8, 6)

    @classmethod
    def presets(cls):
        smoke = {
            "batch_size": 2,
            "turns": 1,
            "length": 4,
            "model_dim": 12,
            "image_size": 8,
            "width": 4,
            "units": (2, 2),
            "stand_in": True,
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5),
            "paper": cls(seeds=5, batch_size=128, turns=51),
        }

    @property
    def arms(self):
        return {
            f"{setting}, {router}": (setting, router)
            for setting in (T5, RESNET)
            for router in ROUTERS
            if (setting, router) != (T5, "Soft MoE")
        }

    def run(self, arm, jobs):
        setting, router = self.arms[arm]
        keras.utils.set_random_seed(0)
        models = [self._model(setting, name) for name in (router, BASE)]
        return [self._times(models, job.seed) for job in jobs]

    def shared(self, setting):
        """The adapters of a setting."""
        place = (T5, RESNET).index(setting)
        return Adapters(self.num_experts[place], self.units[place], 1, dispatch=True)

    def flops(self, setting, router):
        """Operations of one layer of adapters and its router for one example."""
        place = self.length if setting == T5 else self.image_size**2
        width = self.model_dim if setting == T5 else self.width
        return self.shared(setting).flops(router, place, width)

    def _model(self, setting, router):
        shared = self.shared(setting)
        if setting == T5:
            return encoder_layer(router, self.length, self.model_dim, shared)
        features, blocks = _cut(self.image_size, self.width)
        return whole(features, build_model(router, blocks, shared, 345, 1e-3))

    def _times(self, models, seed):
        rng = np.random.default_rng(seed)
        batches = []
        for model in models:
            batch = {}
            for name, tensor in model.input.items():
                shape = (self.batch_size, *tensor.shape[1:])
                batch[name] = (
                    rng.integers(6, size=shape).astype("int32")
                    if tensor.dtype == "int32"
                    else rng.normal(size=shape).astype("float32")
                )
            batches.append(batch)
        times = [[], []]
        for _ in range(self.turns + 1):
            for model, batch, taken in zip(models, batches, times, strict=True):
                began = time.perf_counter()
                model.predict_on_batch(batch)
                taken.append(time.perf_counter() - began)
        # The first turn compiles.
        seconds, base = (statistics.median(taken[1:]) for taken in times)
        return {"ratio": seconds / base, "speed": self.batch_size / seconds}

    def report(self, results):
        return Report(
            self._claims(results),
            [self._table(results)],
            [self._picture(results)],
            protocol=self._protocol(),
        )

    def _claims(self, results):
        def ratios(setting, routers):
            return {r: results.mean(f"{setting}, {r}", "ratio") for r in routers}

        def text(found):
            return ", ".join(f"{router} {value:.2f}" for router, value in found.items())

        def faster(setting, router, other):
            arms = f"{setting}, {other}", f"{setting}, {router}"
            return is_positive(*difference(results, "ratio", *arms))

        def gap(setting, router):
            values = results.values(f"{setting}, {router}", "ratio")
            return mean_and_error(values - 1)

        def almost_equal(setting, router):
            mean, error = gap(setting, router)
            return is_positive(SAME - abs(mean), error)

        claims = []
        for setting in (T5, RESNET):
            unrouted = ratios(setting, UNROUTED)
            discrete = ratios(setting, DISCRETE[setting])
            here = [router for s, router in self.arms.values() if s == setting]
            times = ratios(setting, [r for r in here if r not in NOT_SHOWN[setting]])
            by_time = sorted(times, key=times.__getitem__)
            routed = [r for r in by_time if r not in UNROUTED]
            others = [r for r in by_time if r != "Ensemble"]
            found = {r: gap(setting, r) for r in ("Ensemble", *discrete)}
            source = f"{RESULTS}, speed; Figure 2"
            claims += [
                Claim(
                    f"{setting}: single experts, Adamix, hash and tag routing, which "
                    "have no routing network, are the fastest.",
                    f"Times SMEAR's: {text(unrouted)}; of the others "
                    f"{text(ratios(setting, routed[:1]))} is the fastest.",
                    all_hold(
                        faster(setting, router, other)
                        for router in UNROUTED
                        for other in routed
                    ),
                    source,
                ),
                Claim(
                    f"{setting}: SMEAR and discrete adaptive routing are almost "
                    "equally fast.",
                    f"Times SMEAR's: {text(discrete)}. Up to {SAME:.0%} more or less "
                    "counts as almost equal.",
                    all_hold(almost_equal(setting, r) for r in discrete),
                    f"{source}; Section 3, Computational Costs",
                ),
                Claim(
                    f"{setting}: SMEAR does not cost significantly more time than "
                    "discrete adaptive routing.",
                    f"The fastest of these takes {min(discrete.values()):.2f} times "
                    f"SMEAR's time; {1 - SAME:g} or more counts.",
                    all_hold(
                        is_positive(found[r][0] + SAME, found[r][1]) for r in discrete
                    ),
                    source,
                ),
                Claim(
                    f"{setting}: the ensemble is the slowest.",
                    f"{times['Ensemble']:.2f} times SMEAR's; of the others "
                    f"{text(ratios(setting, others[-1:]))} is the slowest.",
                    all_hold(faster(setting, other, "Ensemble") for other in others),
                    source,
                ),
                Claim(
                    f"{setting}: the ensemble is significantly slower than SMEAR.",
                    f"{results.text(f'{setting}, Ensemble', 'ratio')} times; more than "
                    f"{1 + SAME:g} counts.",
                    is_positive(found["Ensemble"][0] - SAME, found["Ensemble"][1]),
                    f"{source}; Section 3, Computational Costs",
                    f"{SLOWDOWN[setting]} times",
                ),
            ]
        n, length = self.num_experts[0], self.length
        one = self.flops(T5, "1x compute")
        smear, ensemble = (self.flops(T5, r) for r in (BASE, "Ensemble"))
        return [
            *claims,
            Claim(
                "SMEAR takes about as many operations as one expert, with 8 experts "
                "and 128 positions: merging adds few.",
                f"{smear / one - 1:.1%} more, the router included; up to {SAME:.0%} "
                "counts.",
                smear / one - 1 <= SAME,
                "Section 3, Computational Costs",
                f"2 N / 4 L, which is {2 * 8 / (4 * 128):.1%} more",
            ),
            Claim(
                "The ensemble takes about N L / (N + L) times as many operations as "
                "SMEAR.",
                f"{ensemble / smear:.2f} times.",
                bool(abs(ensemble / smear / (n * length / (n + length)) - 1) <= SAME),
                "Section 3, Computational Costs",
                f"N L / (N + L), which is {8 * 128 / (8 + 128):.2f} times",
            ),
        ]

    def _table(self, results):
        rows = []
        for router in ROUTERS:
            row = [router]
            for setting in (T5, RESNET):
                arm = f"{setting}, {router}"
                if arm not in self.arms:
                    row += [None, None, None]
                    continue
                ops = self.flops(setting, router) / self.flops(setting, BASE)
                ratio, speed = (results.text(arm, x) for x in ("ratio", "speed"))
                row += [f"{ops:.2f}", ratio, speed]
            rows.append(row)
        columns = ["operations", "time", "examples per second"]
        return Table(
            "Cost of inference; operations and times relative to SMEAR's",
            ["router", *(f"{s}: {c}" for s in (T5, RESNET) for c in columns)],
            rows,
            "Operations are those of the first adapters and their router, not of the "
            "frozen network. SMEAR's own row compares two copies of it: it shows how "
            "exact the times are. DSelect-k is not trained here, so that all of its "
            "experts have a weight and are evaluated; the paper has no DSelect-k on "
            "T5-GLUE, and SMEAR 2x and hash routing are not in its figure. The paper "
            "plots its speeds, and gives no numbers for them besides the two "
            "slowdowns. What counts as almost equal is ours.",
        )

    def _picture(self, results):
        def draw():
            figure, axes = drawing.panels(1, 2, 4.2)
            for ax, setting in zip(axes[0], (T5, RESNET), strict=True):
                times = {
                    router: results.values(arm, "ratio")
                    for arm, (place, router) in self.arms.items()
                    if place == setting
                }
                plot_runs(times, title=setting, highlight=BASE, ax=ax)
                drawing.label(ax, x="time relative to SMEAR's")
            return figure

        return Picture(
            "times",
            "The time of inference relative to SMEAR's: a dot for each run, a line and "
            "a number for their mean.",
            draw,
        )

    def _protocol(self):
        cpu, paper = (self.presets()[name] for name in ("cpu", "paper"))
        return [
            Fact(
                "texts",
                "128 positions (Section 3) in T5.1.1 Base, 24 layers with 60 routing "
                "blocks (Section 4)",
                f"{cpu.length} positions of {cpu.model_dim} features, one encoder "
                "layer with 2 routing blocks; attention with biases, and without "
                "relative positions",
                "The other layers have nearly the same ratio of adapters to frozen "
                "operations. Embeddings, and the prediction of words, are left out.",
            ),
            Fact(
                "images",
                "ResNet18; the release has images of 224 x 224",
                f"the same stacks on {cpu.image_size} x {cpu.image_size} positions, "
                "without the strides of the first layer",
                "The first stack of ResNet18 sees as many positions.",
            ),
            Fact(
                "adapters",
                "8 and 6 experts (Section 4); widths 24 and 32 in the release; layer "
                "normalization of the output on texts, batch normalization of the "
                "input on images (Section 4)",
                f"{cpu.num_experts[0]} and {cpu.num_experts[1]} experts of widths "
                f"{cpu.units[0]} and {cpu.units[1]}; on texts without normalization",
                "Next to a layer of the encoder it takes little time.",
            ),
            Fact(
                "a chosen expert",
                "its parameters are copied for each example, and all examples are "
                "evaluated in parallel (Appendix B)",
                "`MoE(dispatch=True)`: examples are sorted by their expert, which has "
                "a fixed number of places",
                "It saves memory. Sorting and unused places take time, for hash, tag "
                "and discrete adaptive routing.",
            ),
            Fact(
                "timing",
                "examples per second; how they were measured is not said",
                f"the median of cpu: {cpu.turns}; paper: {paper.turns} batches, in "
                f"turns with SMEAR's; {cpu.seeds} times, with other inputs",
            ),
            Fact(
                "batch",
                "the paper does not say",
                f"cpu: {cpu.batch_size}; paper: {paper.batch_size}",
                "cpu: time.",
            ),
            Fact(
                "machine",
                "not given; trained on A6000s of 48 GB, the ensemble on A100s of 80 GB "
                "(Appendix A)",
                "cpu: a CPU; paper: a GPU",
                "cpu: no GPU. A GPU that is not busy hides differences in operations.",
            ),
            Fact(
                "weights",
                "trained models",
                "random weights",
                "Time does not depend on them, except for DSelect-k's, which uses all "
                "of its experts until it is trained.",
            ),
            Fact(
                "operations of a merge",
                "2 N d m (Section 3)",
                "4 N d m",
                "A product and a sum for each of the 2 d m parameters of N experts. "
                "The paper's N L / (N + L) follows from that.",
            ),
        ]


def encoder_layer(router, length, features, shared):
    """One layer of a text encoder, with routed adapters after both sub-layers.

    Args:
        router: A name in `ROUTERS`.
        length: How many positions.
        features: How wide they are.
        shared: An `Adapters`.

    Returns:
        A Keras model.
    """
    inputs = {"features": keras.Input((length, features), name="features")}
    key = ROUTED_BY.get(router)
    if key:
        inputs[key] = keras.Input((1,), dtype="int32", name=key)

    def adapted(x, number):
        layer = shared.layer(router, features, number)
        return x + layer((x, inputs[key]) if key else x)

    x = inputs["features"]
    heads = 12
    attention = keras.layers.MultiHeadAttention(heads, features // heads)
    normal = keras.layers.LayerNormalization()(x)
    x = x + adapted(attention(normal, normal), 0)
    normal = keras.layers.LayerNormalization()(x)
    # T5.1.1 has a gated hidden layer of 8/3 of the width.
    hidden = [
        keras.layers.Dense(8 * features // 3, activation, use_bias=False)(normal)
        for activation in ("gelu", None)
    ]
    output = keras.layers.Dense(features, use_bias=False)(hidden[0] * hidden[1])
    return keras.Model(inputs, x + adapted(output, 1))


@functools.lru_cache(maxsize=1)
def _cut(image_size, width):
    network = _backbone.resnet18((image_size, image_size, 3), width)
    return _backbone.cut(network, 8)
