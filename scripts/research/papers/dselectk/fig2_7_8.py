"""Figures 2, 7 and 8: which experts a gate finds, and how its weights get there."""

import dataclasses
import functools
import itertools
from typing import Any

import keras
import numpy as np
from keras import ops

import dselectk_keras as dk
from dselectk_keras.utils import num_trained
from research.engine import (
    Claim,
    Experiment,
    Fact,
    Higher,
    WithinRules,
    all_hold,
    all_positive,
    drawing,
    gap_of,
    most,
    preset,
)
from research.engine.results import how_many
from research.papers import citations
from research.papers.dselectk._gates import movement, within_rules, words

K = 4  # The experts that made the labels, and as many may a gate use.
USED = 0.01  # A smaller weight is none.
POINTS = 60  # Of a trajectory that is drawn.
TOP_K, DSELECT_K = "Top-k", "DSelect-k"
KERAS = "Top-k, Keras' start"  # Uniform in ±sqrt(3 / n), as in COMET's repository.
STARTS = {TOP_K: "Top-k starts in ±0.05", KERAS: "Top-k has Keras' start"}
NOISY, WIDE = "noisy Top-k", "Top-k, wide start"
SIZES = ((2, 8), (4, 16), (4, 32), (4, 128), (2, 1024))  # k and n.


@dataclasses.dataclass(frozen=True)
class Fig278(Experiment):
    """Recovery of four experts among sixteen, tuned for each problem."""

    name = "dselectk-fig2-7-8"
    title = "expert weights during training, and which experts a gate finds"
    paper = citations.DSELECT_K
    where = "Figures 2, 7 and 8"
    needs = ("data that are drawn", 16 * 4)

    seeds: int = preset(10, paper=100, smoke=1)
    num_train: int = preset(10_000, smoke=300)  # Of a problem.
    num_validation: int = preset(10_000, smoke=100)
    epochs: int = preset(50, smoke=1)
    batch_size: int = preset(256, smoke=100)
    learning_rates: tuple[float, ...] = preset(
        (1e-1, 1e-2, 1e-3, 1e-4, 1e-5), smoke=(0.01,)
    )
    gammas: tuple[float, ...] = preset((5.0, 10.0, 15.0), smoke=(5.0,))
    entropies: tuple[float, ...] = preset((0.001, 0.005, 0.01, 0.1), smoke=(0.1,))

    @property
    def arms(self):
        return {
            # arm: the model of `Problems`, and its fixed settings
            TOP_K: (Problems.top_k, {}),
            DSELECT_K: (Problems.dselect_k, {}),
            KERAS: (Problems.top_k, {"start": (3 / 16) ** 0.5}),
            NOISY: (Problems.top_k, {"noise": True}),
            WIDE: (Problems.top_k, {"start": 2.0}),
        }

    def run(self, arm, jobs):
        make, fixed = self.arms[arm]
        settings, seeds = self.settings(arm), [job.seed for job in jobs]
        length = {"epochs": self.epochs, "batch_size": self.batch_size}
        problems = self._problems(seeds)
        build = functools.partial(make, problems, **fixed)
        tried = problems.search(build, settings, **length)
        best = [each.index(min(each, key=_rank)) for each in tried]
        found = [{}] * len(jobs)
        for number in sorted(set(best)):  # Those that take it are followed together.
            own = [i for i, each in enumerate(best) if each == number]
            keras.utils.set_random_seed(0)  # Of the noise.
            several = self._problems([seeds[i] for i in own])
            model = make(several, **settings[number], **fixed)
            for i, each in zip(own, several.follow(model, **length), strict=True):
                found[i] = each | {
                    "setting": words(settings[number]),
                    "tried": [one["found"] for one in tried[i]],
                }
        return found

    def _problems(self, seeds):
        return Problems(seeds, self.num_train, self.num_validation)

    def settings(self, arm):
        """All settings of an arm: the grid."""
        grid = {"learning_rate": self.learning_rates}
        if arm == DSELECT_K:
            grid |= {"gamma": self.gammas, "entropy": self.entropies}
        every = itertools.product(*grid.values())
        return [dict(zip(grid, values, strict=True)) for values in every]

    @property
    def claims(self):
        yield Claim("all-four", WithinRules(lambda r: most(all_four(r, DSELECT_K))))
        for start, begins in STARTS.items():
            names = {"start": start, "begins": begins}
            for name, test in tests_of(start).items():
                yield Claim(name, test, names)
        smooth = WithinRules(lambda r: (r.values(DSELECT_K, "jumps") == 0).all())
        yield Claim("smooth", smooth)
        found = {size: parameters(*size) for size in SIZES}
        fewer = sum(ours < theirs for ours, theirs in found.values())
        log = all(found[k, n] == (k + k * (n - 1).bit_length(), n) for k, n in SIZES)
        names = {"fewer": fewer, "sizes": len(SIZES), "counts": parameters(K, 16)}
        ours, theirs = found[SIZES[-1]]
        yield Claim("parameters", Fact(log and ours < theirs), names)

    def table_every_setting(self, results):
        yield ["gate", "setting", "true experts found", "problems that take it"]
        for arm in self.arms:
            taken = [run.numbers["setting"] for run in results.of(arm)]
            means = results.values(arm, "tried").mean(axis=0)
            for setting, mean in zip(self.settings(arm), means, strict=True):
                text = words(setting)
                yield [arm, text, float(mean), taken.count(text)]

    def table_parameters(self, results):
        yield ["k", "experts n", "DSelect-k: k + k log n", "Top-k: n"]
        for k, n in SIZES:
            yield [k, n, *parameters(k, n)]

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "settings_top_k": len(self.settings(TOP_K)),
            "settings_dselect_k": len(self.settings(DSELECT_K)),
            "kept_rule": outside_of_rules,
            "runs": lambda r: len(r.of(DSELECT_K)),
            "kept_and_found": lambda r: (
                all_four(r, DSELECT_K) & within_rules(r, DSELECT_K)
            ).sum(),
        }

    def draw_weights(self, results):
        arms, shared = (TOP_K, KERAS, DSELECT_K), {"sharex": True, "sharey": True}
        figure, axes = drawing.panels(len(arms), 1, 1.7 * len(arms), 0.8, **shared)
        for ax, arm in zip(axes.flat, arms, strict=True):
            numbers = results.of(arm)[0].numbers
            look = {"title": f"{arm}: {numbers['found']} of {K} found", "ax": ax}
            look["highlight"] = numbers["true_experts"]
            dk.plots.plot_gate_weights(numbers["steps"], numbers["weights"], **look)
            ax.label_outer()
        return figure


class Problems:
    """A problem of expert recovery for each seed, all trained in one model.

    The experts and the logistic unit are frozen: the experts' outputs are computed
    once, and are the model's input. A seed decides experts, labels and the start.
    """

    def __init__(self, seeds, num_train, num_validation):
        self.seeds = list(seeds)
        sizes = {"num_train": num_train, "num_validation": num_validation}
        each = [
            dk.datasets.expert_recovery(num_test=1, seed=seed, **sizes)
            for seed in seeds
        ]
        self.train = _beside([_seen(data.train, data.info) for data in each])
        self.validation = _beside([_seen(data.validation, data.info) for data in each])
        self.true_experts = [data.info["true_experts"] for data in each]
        self.kernel = np.stack([data.info["logistic_kernel"][:, 0] for data in each])
        self.bias = np.concatenate([data.info["logistic_bias"] for data in each])

    def top_k(self, learning_rate, start=0.05, noise=False):
        """A compiled model with Top-k gates, whose logits start in ±`start`."""
        gate = dk.TopKGate(K, noise=noise, num_gates=len(self.seeds))
        return self._model(gate, [start, 0.0] if noise else [start], learning_rate)

    def dselect_k(self, learning_rate, gamma, entropy):
        """A compiled model with DSelect-k gates."""
        count = len(self.seeds)
        gate = dk.DSelectKGate(K, gamma=gamma, entropy_reg=entropy, num_gates=count)
        return self._model(gate, [gamma / 100, 0.05], learning_rate)

    def search(self, build, settings, **length):
        """For each problem what `_judge` gives for each of a list of settings."""
        runs = dk.replicate(
            lambda _, **setting: build(**setting),
            self.train,
            seeds=[0] * len(settings),
            settings={name: [s[name] for s in settings] for name in settings[0]},
            verbose=0,
            **length,
        )
        judged = [self._judge(copy.model) for copy in runs.copies]
        return list(zip(*judged, strict=True))

    def follow(self, model, *, epochs, batch_size):
        """Train, and return the numbers of `_judge` and of `movement`."""
        recorder = dk.GateRecorder(every=1)
        batches = dk.batches.Batches(self.train, batch_size)
        options = {"epochs": epochs, "shuffle": False, "verbose": 0}
        model.fit(batches, callbacks=[recorder], **options)
        (name,) = recorder.history.tasks
        weights, steps = recorder.history[name]["weights"], recorder.history.steps
        return [
            judged | movement(steps, weights[:, i], self.seeds[i], POINTS)
            for i, judged in enumerate(self._judge(model))
        ]

    def _model(self, gate, limits, learning_rate):
        """A model that starts in the same place whatever is trained beside it."""
        layer = Recover(gate)
        inputs = keras.Input(self.train[0].shape[1:])
        model = keras.Model(inputs, layer(inputs))
        pairs = zip(gate.trainable_weights, limits, strict=True)
        for i, (variable, limit) in enumerate(pairs):
            rngs = [np.random.default_rng((seed, i)) for seed in self.seeds]
            shape = tuple(variable.shape[1:])
            starts = [rng.uniform(-limit, limit, shape) for rng in rngs]
            variable.assign(np.stack(starts))
        layer.kernel.assign(self.kernel)
        layer.bias.assign(self.bias)
        layer.kernel.trainable = layer.bias.trainable = False
        model.compile(keras.optimizers.Adam(learning_rate), _summed)
        return model

    def _judge(self, model):
        """The numbers of each gate: experts found, validation loss, admissible."""
        gate = model.get_layer("recover").gate
        weights = ops.convert_to_numpy(gate.expert_weights())
        x, y = self.validation
        # With NumPy: a program for each setting would take longer to compile.
        logits = np.einsum("bngu,gn,gu->bg", x, weights, self.kernel, optimize=True)
        logits += self.bias
        # The cross-entropy of logits, without overflow.
        losses = (np.logaddexp(0.0, logits) - y * logits).mean(axis=0)
        decided = (gate.chosen_experts().distance == 0).all(axis=1)
        return [
            {
                **recovered(weights[i], true),
                "loss": float(f"{losses[i]:.4g}"),
                "admissible": bool(decided[i]),
                "true_experts": list(true),
            }
            for i, true in enumerate(self.true_experts)
        ]


class Recover(keras.layers.Layer):
    """For each problem a gate over its experts, and a logistic unit on the mixture."""

    def __init__(self, gate):
        super().__init__(name="recover")
        self.gate = gate

    def build(self, shape):
        """Create the variables, for inputs (batch, experts, problems, units)."""
        self.gate.build(shape)
        self.kernel = self.add_weight(shape[2:], name="unit_kernel")
        self.bias = self.add_weight(shape[2:3], "zeros", name="unit_bias")

    def call(self, experts, training=None):
        """The logits of each problem's labels."""
        weights = self.gate.route(training=training).weights
        mixtures = ops.einsum("bngu,gn->bgu", experts, weights)
        return ops.sum(mixtures * self.kernel, axis=-1) + self.bias


def recovered(weights, true_experts):
    """The numbers of true experts that a gate has `"found"`, and of `"others"` used.

    An expert is used if its weight exceeds `USED`. A true expert is found if it is used
    and has one of the `K` largest weights.
    """
    used = {int(expert) for expert in np.flatnonzero(weights > USED)}
    largest = {int(expert) for expert in np.argsort(-weights, kind="stable")[:K]}
    true = set(true_experts)
    return {"found": len(used & largest & true), "others": len(used - true)}


def _seen(split, info):
    """The outputs of the frozen experts, and the labels."""
    hidden = np.einsum("bd,ndu->bnu", split.x, info["kernels"]) + info["biases"]
    return np.maximum(hidden, 0.0).astype("float32"), split.y


def _beside(pairs):
    """Experts' outputs (batch, experts, problems, units), labels (batch, problems)."""
    x, y = zip(*pairs, strict=True)
    return np.stack(x, axis=2), np.concatenate(y, axis=1)


def _summed(y, logits):
    """The sum of the problems' losses, for each example."""
    losses = ops.binary_crossentropy(y, logits, from_logits=True)
    return ops.sum(losses, axis=-1)


def all_four(results, arm):
    """For each problem, whether all four experts are found and no other is used."""
    found, others = (results.values(arm, name) for name in ("found", "others"))
    return (found == K) & (others == 0)


def complete(results, arm):
    """The share of these problems."""
    return all_four(results, arm).mean()


def tests_of(start):
    """The tests that are made with each start of Top-k, by claim."""
    return {
        "one-of-four": lambda r: all_positive([gap_of(1.5 - r.values(start, "found"))]),
        "recovers": WithinRules(
            lambda r: all_hold(
                [most(all_four(r, DSELECT_K)), most(~all_four(r, start))]
            )
        ),
        "oscillates": Higher(start, DSELECT_K, by="jumps"),
    }


def recovery(results, arm):
    """The experts that an arm has found, as text."""
    every = all_four(results, arm)
    return (
        f"{results.text(arm, 'found', 2)} of {K} on average over {len(every)} "
        f"problems; all four, and no other, in {every.mean():.0%}."
    )


def kept(results):
    """In how many problems DSelect-k's gate is binary, as text."""
    return f"S(Z) is binary on {how_many(within_rules(results, DSELECT_K))} problems."


def outside_of_rules(results):
    """In how many problems DSelect-k's gate is binary; `None` if in all."""
    flags = within_rules(results, DSELECT_K)
    return None if flags.all() else flags.sum()


def parameters(k, n):
    """The parameters of a static DSelect-k gate and of a static Top-k gate."""
    gates = dk.DSelectKGate(k), dk.TopKGate(k)
    for gate in gates:
        gate.build((None, n))
    return tuple(map(num_trained, gates))


def _rank(found):
    """First the lowest validation loss, if possible of an admissible run."""
    return not found["admissible"], np.nan_to_num(found["loss"], nan=np.inf)
