"""Figure 2: the speed of inference, at the sizes of the paper's adapters."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import keras
import numpy as np

from common.timing import medians_in_turns
from dselectk_keras.plots import plot_runs
from research.engine import (
    Claim,
    Experiment,
    Fact,
    Results,
    all_hold,
    drawing,
    gap_of,
    not_run,
    preset,
)
from research.engine.plan import price
from research.papers import citations
from research.papers.smear import _backbone, _routers
from research.papers.smear._routers import ROUTERS

T5, RESNET = "T5-GLUE", "ResNet-DomainNet"
BASE = "SMEAR"  # What times are relative to.
UNROUTED = ("1x compute", "1x parameters", "Adamix", "Hash", "Tag")
# Trained by estimated gradients in the paper; DSelect-k was not stable on texts.
DISCRETE = {
    T5: ("Top-k", "ST-Gumbel", "REINFORCE"),
    RESNET: ("Top-k", "ST-Gumbel", "REINFORCE", "DSelect-k"),
}
SLOWER = {T5: "1.2 times", RESNET: "1.3 times"}  # The ensemble, in the paper.
CHOOSING = ("Hash", "Tag", "Top-k", "ST-Gumbel", "REINFORCE")  # One expert.
NOT_SHOWN = {T5: ("SMEAR 2x", "DSelect-k"), RESNET: ("SMEAR 2x",)}
SAME = 0.1  # Numbers that differ by a smaller share are almost identical.
FORM = "Choosing sorts examples here, where the paper copies parameters."
CPU = "These times are of a processor core; random weights on one GPU decide."


@dataclasses.dataclass(frozen=True)
class Fig2(Experiment):
    """The time of inference of each router, relative to SMEAR's."""

    name = "smear-fig2"
    title = "speed of inference"
    paper = citations.SMEAR
    where = "Figure 2"
    trains = False

    scales = ("batch_size", "turns")

    seeds: int = preset(5, smoke=1)
    stand_in: bool = preset(False, smoke=True)
    batch_size: int = preset(4, paper=128, smoke=2)
    turns: int = preset(5, paper=51, smoke=1)  # Calls, in turns with SMEAR's.
    length: int = preset(128, smoke=4)  # Positions of a text.
    model_dim: int = preset(768, smoke=12)
    image_size: int = preset(56, smoke=8)
    width: int = preset(64, smoke=4)  # Channels in the first stack of the network.
    units: tuple[int, int] = preset((24, 32), smoke=(2, 2))  # Of texts, of images.
    num_experts: tuple[int, int] = (8, 6)

    @property
    def arms(self):
        return {
            f"{setting}, {router}": (setting, router)
            for setting in (T5, RESNET)
            for router in _routers.ROUTERS
            if (setting, router) != (T5, "Soft MoE")
        }

    def run(self, arm, jobs):
        setting, router = self.arms[arm]
        keras.utils.set_random_seed(0)
        models = [self._model(setting, name) for name in (router, BASE)]
        return [self._times(models, job.seed) for job in jobs]

    def shared(self, setting, router=""):
        """The adapters of a setting."""
        place = (T5, RESNET).index(setting)
        size = self.num_experts[place], self.units[place]
        return _routers.Adapters(*size, num_steps=1, dispatch=True)

    def flops(self, setting, router):
        """Operations of one layer of adapters and its router for one example."""
        place = self.length if setting == T5 else self.image_size**2
        width = self.model_dim if setting == T5 else self.width
        return self.shared(setting).flops(router, place, width)

    def _model(self, setting, router):
        shared = self.shared(setting, router)
        if setting == T5:
            return encoder_layer(router, self.length, self.model_dim, shared)
        features, blocks = _cut(self.image_size, self.width)
        model = _routers.build_model(router, blocks, shared, 345, 1e-3)
        return _routers.whole(features, model)

    def _times(self, models, seed):
        rng = np.random.default_rng(seed)

        def drawn(tensor):
            shape = (self.batch_size, *tensor.shape[1:])
            if tensor.dtype == "int32":
                return rng.integers(6, size=shape).astype("int32")
            return rng.normal(size=shape).astype("float32")

        batches = [{n: drawn(each) for n, each in m.input.items()} for m in models]
        pairs = zip(models, batches, strict=True)
        calls = [functools.partial(m.predict_on_batch, batch) for m, batch in pairs]
        seconds, base = medians_in_turns(calls, self.turns)
        return {"ratio": seconds / base, "speed": self.batch_size / seconds}

    def first(self, results, setting, without):
        """The first of `by_time`, as text."""
        router, *_ = self.by_time(results, setting, without)
        return ratios(results, setting, [router])

    def last(self, results, setting):
        """The last of `by_time` before the ensemble, as text."""
        *_, router = self.by_time(results, setting, ["Ensemble"])
        return ratios(results, setting, [router])

    def by_time(self, results, setting, without):
        """The routers that the paper shows, but for some, from the fastest on."""
        left_out = (*NOT_SHOWN[setting], *without)
        here = [router for place, router in self.arms.values() if place == setting]
        shown = [router for router in here if router not in left_out]
        return sorted(shown, key=lambda router: ratio(results, setting, router))

    @property
    def claims(self):
        size = self.num_experts[0], self.length
        law = math.prod(size) / sum(size)
        for setting, slower in SLOWER.items():
            names: Any = {"setting": setting, "slower": slower}
            names["discrete"] = discrete = DISCRETE[setting]
            names["ensemble"] = lambda r, s=setting: r.text(f"{s}, Ensemble", "ratio")
            for name, test in self._tests(setting, discrete).items():
                yield Claim(name, test, names)
        more = self.times_flops(BASE, "1x compute") - 1
        times = self.times_flops("Ensemble", BASE)
        yield Claim("operations", Fact(more <= SAME), {"more": more})
        near = abs(times / law - 1) <= SAME
        yield Claim("ensemble-operations", Fact(near), {"times": times})

    def _tests(self, setting, discrete):
        """The tests on the speed in a setting, by claim."""

        def all_faster(results, routers, others):
            pairs = itertools.product(routers, others)
            return all_hold(faster(results, setting, *pair) for pair in pairs)

        def but_for(results, *routers):
            return self.by_time(results, setting, routers)

        def extras(results):
            return [extra(results, setting, router) for router in discrete]

        return {
            "fastest": not_run(
                CPU, lambda r: all_faster(r, UNROUTED, but_for(r, *UNROUTED))
            ),
            "almost-equal": not_run(
                f"{CPU} {FORM}",
                lambda r: all_hold(gap.is_zero(SAME) for gap in extras(r)),
            ),
            "no-more": not_run(
                f"{CPU} {FORM}",
                lambda r: all_hold(gap.is_positive(-SAME) for gap in extras(r)),
            ),
            "slowest": not_run(
                CPU, lambda r: all_faster(r, but_for(r, "Ensemble"), ["Ensemble"])
            ),
            "slower": not_run(
                CPU, lambda r: extra(r, setting, "Ensemble").is_positive(SAME)
            ),
        }

    def table_costs(self, results):
        yield (
            "router | T5-GLUE: operations | T5-GLUE: time | T5-GLUE: examples per "
            "second | ResNet-DomainNet: operations | ResNet-DomainNet: time | "
            "ResNet-DomainNet: examples per second"
        )
        for router in ROUTERS:
            costs = (self.costs(results, network, router) for network in (T5, RESNET))
            yield [router, *itertools.chain(*costs)]

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "price": lambda r: price(r, batch_size=128),
        }

    def draw_times(self, results):
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

    def costs(self, results, setting, router):
        """Operations, time and speed of a router, as cells."""
        arm = f"{setting}, {router}"
        if arm not in self.arms:
            return ["", "", ""]
        ops = self.flops(setting, router) / self.flops(setting, BASE)
        return [f"{ops:.2f}", results.text(arm, "ratio"), results.text(arm, "speed")]

    def copied(self, results, setting):
        """Times in the form of Appendix B, as text; nothing if they were not run."""
        found = Results(Copied(), "cpu", results.path.parent if results.path else None)
        times = ratios(found, setting, CHOOSING) if found.complete else ""
        return times and f" Copied for each example (Appendix B): {times}."

    def times_flops(self, router, other):
        """The operations of a router relative to another's, on texts."""
        return self.flops(T5, router) / self.flops(T5, other)


@dataclasses.dataclass(frozen=True)
class Copied(Fig2):
    r"""Routers that choose one expert, in the form of Appendix B.

    The parameters of the expert are copied for each example:

        python scripts/reproduce.py smear-copied --backend jax

    The page of Figure 2 shows the results. Run it on a machine without other work; with
    `--set batch_size=128` it has batches of the paper's training, and other files.
    """

    name = "smear-copied"
    title = "speed of inference where parameters are copied for each example"
    page = "{table_times}"

    @property
    def arms(self):
        return {
            f"{setting}, {router}": (setting, router)
            for setting in (T5, RESNET)
            for router in CHOOSING
        }

    def table_times(self, results):
        return ["router | time", *([a, results.text(a, "ratio")] for a in self.arms)]

    def shared(self, setting, router=""):
        # The base of the ratios, SMEAR, merges experts, and has no other form.
        copied = router in CHOOSING
        return dataclasses.replace(super().shared(setting), copied=copied)


def ratio(results, setting, router):
    """The mean time of a router, relative to SMEAR's."""
    return results.mean(f"{setting}, {router}", "ratio")


def ratios(results, setting, routers):
    """Those times of routers, as text."""
    return ", ".join(f"{r} {ratio(results, setting, r):.2f}" for r in routers)


def least(results, setting, routers):
    """The least of those times of routers."""
    return min(ratio(results, setting, router) for router in routers)


def faster(results, setting, router, other):
    """Judge whether a router is faster than another."""
    arms = f"{setting}, {other}", f"{setting}, {router}"
    return results.gap(*arms, "ratio").is_positive()


def extra(results, setting, router):
    """The extra time of a router, relative to SMEAR."""
    return gap_of(results.values(f"{setting}, {router}", "ratio") - 1)


def encoder_layer(router, length, features, shared):
    """One layer of a text encoder, with routed adapters after both sub-layers."""
    inputs = _routers.inputs_of(router, "features", (length, features))

    def adapted(x, number):
        return x + shared.apply(router, inputs, x, number)

    x = inputs["features"]
    attention = keras.layers.MultiHeadAttention(12, features // 12)
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
