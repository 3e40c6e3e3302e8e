"""Table 2 on small generated tasks: routers of adapters in a frozen text encoder."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np

from common.scores import accuracy, f1, matthews, pearson, spearman
from dselectk_keras import Ramp
from dselectk_keras.batches import Batches
from research.engine import (
    Claim,
    Equal,
    Experiment,
    Higher,
    Untestable,
    all_hold,
    preset,
)
from research.papers import citations
from research.papers.data import sentences
from research.papers.data.sentences import GLUE, LENGTH, NUM_ANSWERS, SHARES, WORDS
from research.papers.smear import _claims, _routers
from research.papers.smear._claims import (
    HEURISTICS,
    ONE,
    WIDE,
    differences,
    has_routing,
    in_use,
)
from research.papers.smear._routers import HOURS

ESTIMATORS = ("Top-k", "ST-Gumbel", "REINFORCE")
WORSE = ("Top-k", "ST-Gumbel")  # Than tag routing, and than REINFORCE.
BEHIND, BASIC = ("Tag", *WORSE), ("Hash", "1x compute")  # Behind REINFORCE.
TINY = "A small encoder on made-up sentences is neither T5 nor GLUE."
MANY = 4.0  # Experts in use, of eight.
GUESSED = 0.6  # A lower share of right answers, of two, is little more than guessed.
# RTE has the expert of MNLI, as the paper's tag routing has.
TAGS = tuple(GLUE.index("mnli" if task == "rte" else task) for task in GLUE)
SCORES = {
    "RTE": ("rte", accuracy),
    "SST-2": ("sst2", accuracy),
    "MRPC f1": ("mrpc", f1),
    "MRPC": ("mrpc", accuracy),
    "STS-B pearson": ("stsb", pearson),
    "STS-B spearman": ("stsb", spearman),
    "QQP f1": ("qqp", f1),
    "QQP": ("qqp", accuracy),
    "MNLI": ("mnli", accuracy),
    "QNLI": ("qnli", accuracy),
    "CoLA": ("cola", matthews),
}
# The column Average of Table 2, and its standard deviation; of hash, Figure 2. The
# paper leaves out Soft MoE, which cannot be used, and DSelect-k, which was not stable.
PAPER = {
    "SMEAR": "81.6 ± 1.0",
    "1x parameters": "80.2 ± 0.8",
    "1x compute": "78.4 ± 1.1",
    "Adamix": "78.4 ± 0.4",
    "Hash": "66.9",
    "Tag": "78.5 ± 1.2",
    "Latent Skills": "81.0 ± 1.6",
    "Top-k": "78.2 ± 0.9",
    "ST-Gumbel": "77.9 ± 0.4",
    "REINFORCE": "80.0 ± 0.8",
    "Ensemble": "81.7 ± 1.0",
    "SMEAR 2x": "81.3 ± 1.1",
    "SMEAR, no dropout": "80.2 (one seed)",
    "Top-k, no dropout": "77.2 (one seed)",
    "ST-Gumbel, dropout": "77.2 (one seed)",
    "REINFORCE, dropout": "78.2 (one seed)",
}


def above(arms, others, within=0.0):
    """The test that arms have a higher score than others."""
    return Higher(arms, others, "average", within=within)


def same(arm, other):
    """The test that two arms have about the same score."""
    return Equal(arm, other, "average", 0.01)


TESTS = {
    "best-estimator": above("REINFORCE", BEHIND),
    "often-worse": above("Tag", WORSE),
    "some-better": above("REINFORCE", BASIC),
    "estimators": above("SMEAR", ESTIMATORS, within=0.01),
    "heuristics": above("SMEAR", HEURISTICS, within=0.01),
    "tag": above("SMEAR", "Tag"),
    "parameters": above("SMEAR", "1x parameters"),
    "ensemble": same("SMEAR", "Ensemble"),
    "adamix": above("SMEAR", "Adamix"),
    "latent-skills": above("SMEAR", "Latent Skills"),
    "twice": same("SMEAR 2x", "SMEAR"),
}
DROPOUT = {
    "dropout-smear": above("SMEAR", "SMEAR, no dropout"),
    "dropout-top-k": above("Top-k", "Top-k, no dropout"),
    "dropout-st-gumbel": above("ST-Gumbel", "ST-Gumbel, dropout"),
    "dropout-reinforce": above("REINFORCE", "REINFORCE, dropout"),
}


@dataclasses.dataclass(frozen=True)
class Table2Small(Experiment):
    """Routers of adapters in a frozen text encoder, on eight generated tasks."""

    name = "smear-table2-small"
    title = "routers of adapters in a text encoder on eight tasks"
    paper = citations.SMEAR
    where = "Table 2, and Table 1 and Figure 3 on T5-GLUE"
    stands_in_for = "T5 on GLUE"

    seeds: int = preset(5, smoke=1)
    routers: tuple[str, ...] = preset(
        tuple(PAPER), smoke=("1x compute", "Tag", "SMEAR")
    )
    num_train: int = preset(2_000, paper=400_000, smoke=25)  # Of the largest task.
    num_test: int = preset(300, paper=2_000, smoke=6)  # Of each task.
    epochs: int = preset(10, paper=63, smoke=1)  # 63 are 600,000 steps.
    batch_size: int = preset(64, paper=128)
    learning_rate: float = preset(1e-3, paper=3e-4)  # Of AdamW.
    warm_up: int = preset(0, paper=2_000)  # Steps.
    num_pretrain: int = preset(20_000, paper=1_000_000, smoke=16)  # Of sentences.
    pretrain_epochs: int = preset(4, smoke=1)
    depth: int = preset(2, paper=12, smoke=1)  # Layers of the encoder.
    model_dim: int = preset(32, paper=768, smoke=8)
    units: int = preset(4, paper=24, smoke=2)  # Of an adapter.

    @property
    def arms(self):
        return {router: router for router in self.routers}

    @property
    def sizes(self):
        """Training examples by task."""
        return {task: max(1, int(self.num_train * SHARES[task])) for task in GLUE}

    @property
    def num_steps(self):
        """Training steps."""
        return -(-sum(self.sizes.values()) // self.batch_size) * self.epochs

    @property
    def rate(self) -> Any:
        """The learning rate, or its schedule."""
        if not self.warm_up:
            return self.learning_rate
        return Ramp(0.0, self.learning_rate, end=self.warm_up, kind="linear")

    def run(self, arm, jobs):
        train = sentences.texts(self.sizes, seed=0)
        test = sentences.texts(dict.fromkeys(GLUE, self.num_test), seed=1)
        examples = seen_by(arm, train, 0), train.answers
        sizes = self.depth, self.model_dim
        weights = _pretrained(*sizes, self.num_pretrain, self.pretrain_epochs)
        build = functools.partial(self._model, arm, weights)
        copies = _routers.trained(self, build, jobs, examples)
        given, tasks = seen_by(arm, test, len(train.tasks)), test.tasks[:, 0]
        found = []
        for predicted, weights in _routers.look_at_copies(copies, given):
            means = (_routers.mean_routing(each, tasks, len(GLUE)) for each in weights)
            found.append({**scores_of(predicted, test), "routing": list(means)})
        return found

    def _model(self, arm, weights):
        """A compiled classifier: a frozen encoder with routed adapters."""
        shared = _routers.Adapters(len(GLUE), self.units, self.num_steps, tags=TAGS)
        inputs = _routers.inputs_of(arm, "words", (LENGTH,), "int32")
        layers = encoder_layers(self.depth, self.model_dim)

        def adapt(y, number):
            adapted = shared.apply(arm, inputs, y, number)
            return y + keras.layers.LayerNormalization()(adapted)

        x = encoded(layers, inputs["words"], adapt)
        x = keras.layers.GlobalAveragePooling1D()(x)
        outputs = keras.layers.Dense(NUM_ANSWERS, "softmax")(x)
        for layer, values in zip(layers, weights, strict=True):
            layer.set_weights(values)
            # As in the paper, only the encoder's layer normalizations are trained.
            layer.trainable = isinstance(layer, keras.layers.LayerNormalization)
        optimizer = keras.optimizers.AdamW(self.rate)
        return _routers.compiled(arm, inputs, outputs, optimizer)

    @property
    def claims(self):
        small = (
            f"{self.num_steps:,} steps in place of 600,000, and {2 * self.depth} "
            "routing blocks in place of 60."
        )
        yield from differences(TESTS, TINY)
        yield from differences(DROPOUT, f"{TINY} The paper has one seed.")
        why = "Made-up RTE and MNLI, and no run with an expert of RTE's own."
        yield Claim("tag-shares", Untestable(why))
        yield Claim("one-or-some", Untestable(TINY, use_one_or_some))
        tests = {
            "two-kinds": lambda n: n["most"] >= 5 and n["least"] <= 3,
            "alike": lambda n: n["alike"] >= 0.5,
            "apart": lambda n: n["apart"] >= 0.5 and n["mnli"] >= MANY,
            "sparse": lambda n: n["used"] < MANY,
        }
        for name, test in tests.items():
            yield Claim(name, Untestable(small, lambda r, t=test: t(numbers(r))))
        yield Claim("most", Untestable(small, use_most))

    def table_scores(self, results):
        yield ["router", "paper, GLUE", "here", *SCORES]
        for arm in self.arms:
            scores = results.values(arm, "scores").mean(axis=0)
            average = results.text(arm, "average", scale=100)
            yield [arm, PAPER[arm], average, *(f"{100 * x:.1f}" for x in scores)]

    def table_apart(self, results):
        yield ["router", *(f"layer {i + 1}" for i in range(2 * self.depth))]
        for arm in filter(functools.partial(has_routing, results), self.arms):
            yield [arm, *apart(results, arm)]

    @property
    def fields(self) -> dict[str, Any]:
        sizes = self.sizes.values()
        return {
            "examples": [f"{task} {count:,}" for task, count in self.sizes.items()],
            "blocks": 2 * self.depth,
            "largest_to_smallest": max(sizes) // min(sizes),
            "hours": HOURS["GLUE"],
            "num_arms": len(self.arms),
            "all_hours": len(self.arms) * self.presets()["paper"].seeds * HOURS["GLUE"],
        }

    def draw_routing(self, results):
        return _claims.draw_routing(results, GLUE)


def apart(results, arm):
    """The mean distance of the tasks' routing, by layer, as cells."""
    found = _claims.distance(_claims.routing_of(results, arm))
    pairs = found[..., ~np.eye(len(GLUE), dtype=bool)]
    return [f"{value:.2f}" for value in pairs.mean(axis=-1).mean(axis=0)]


def fewest_and_most(results, arm):
    """Numbers of experts in use in two layers, as text."""
    used = in_use(results, arm)
    few, many = used.min(axis=1).mean(), used.max(axis=1).mean()
    return f"{few:.1f} experts in use in one layer, {many:.1f} in another"


def use_one_or_some(results):
    """Test that estimators use one expert in a layer, and some in another."""
    used = [in_use(results, arm) for arm in ESTIMATORS]
    few = (each.min(axis=1).mean() <= ONE for each in used)
    some = (2 <= each.max(axis=1).mean() <= MANY for each in used)
    return all_hold([*few, *some])


def use_most(results):
    """Test that some routers use most experts."""
    return all_hold(in_use(results, arm).mean() > MANY for arm in WIDE)


def used(results, arm):
    """Number of experts in use, as text."""
    return f"{in_use(results, arm).mean():.1f} of 8 experts in use"


def rte(results):
    """The score of tag routing on RTE, in percent."""
    return 100 * results.values("Tag", "scores")[:, 0].mean()


def numbers(results, arm="SMEAR"):
    """What a router does with the tasks."""
    own = distinct(results, arm)
    return {
        "most": own.max(axis=1).mean(),
        "least": own.min(axis=1).mean(),
        "alike": share_alike(results, arm),
        "apart": share_apart(results, arm),
        "mnli": used_by_mnli(results, arm),
        "used": used_by_task(results, arm).mean(),
    }


def guessed(results):
    """The tasks of two answers that are little more than guessed."""
    means = [results.values(a, "scores").mean(axis=0) for a in results.experiment.arms]
    scores = dict(zip(SCORES, np.mean(means, axis=0), strict=True))
    tasks = ("RTE", "SST-2", "MRPC", "QQP", "QNLI")
    return [task for task in tasks if scores[task] < GUESSED] or None


def favourites(results, arm):
    """The favourite expert of each task, `(seeds, layers, tasks)`."""
    return _claims.routing_of(results, arm).argmax(axis=-1)


def distinct(results, arm):
    """The number of experts that are the favourite of a task, `(seeds, layers)`."""
    found = favourites(results, arm)
    return np.apply_along_axis(lambda tasks: len(set(tasks)), -1, found)


def used_by_task(results, arm):
    """The number of experts that each task has in use, `(seeds, layers, tasks)`."""
    return 2.0 ** _claims.entropy(_claims.routing_of(results, arm))


def of_tasks(values, layers, *tasks):
    """The values of some tasks in one layer of each seed, `(seeds, tasks)`."""
    places = [GLUE.index(task) for task in tasks]
    return values[np.arange(len(values)), layers][:, places]


def share_alike(results, arm):
    """The share of runs in which tasks that are alike share a favourite.

    By the layer in which most tasks have one of their own.
    """
    layers = distinct(results, arm).argmax(axis=1)
    found = of_tasks(favourites(results, arm), layers, "rte", "mrpc", "mnli")
    return (found == found[:, :1]).all(axis=1).mean()


def share_apart(results, arm):
    """The share of runs in which two tasks have their own favourites.

    By the layer in which most tasks share one.
    """
    layers = distinct(results, arm).argmin(axis=1)
    every = of_tasks(favourites(results, arm), layers, *GLUE)
    both = of_tasks(favourites(results, arm), layers, "stsb", "sst2")
    return ((both[..., None] == every[:, None]).sum(axis=-1) == 1).all(axis=1).mean()


def used_by_mnli(results, arm):
    """The number of experts that MNLI has in use where most tasks share one."""
    layers = distinct(results, arm).argmin(axis=1)
    return of_tasks(used_by_task(results, arm), layers, "mnli").mean()


def seen_by(router, texts, first):
    """The inputs of a router's model; the ids of the examples begin with `first`."""
    found = {"words": texts.words}
    if key := _routers.ROUTED_BY.get(router):
        ids = np.arange(len(texts.tasks), dtype="int32")[:, None] + first
        found[key] = ids if key == "id" else texts.tasks
    return found


def scores_of(predicted, texts):
    """The scores of the tasks, and their average."""
    tasks, answers = texts.tasks[:, 0], texts.answers[:, 0]
    found = []
    for task, score in SCORES.values():
        mine = tasks == GLUE.index(task)
        found.append(score(answers[mine], predicted[mine]))
    return {"average": float(np.mean(found)), "scores": found}


def encoder_layers(depth, model_dim):
    """New layers of an encoder: two embeddings; norms and sub-layers, in turn."""
    layers = [keras.layers.Embedding(size, model_dim) for size in (len(WORDS), LENGTH)]
    for _ in range(depth):
        heads = max(2, model_dim // 64)
        attention = keras.layers.MultiHeadAttention(heads, model_dim // heads)
        hidden = keras.layers.Dense(4 * model_dim, "gelu")
        dense = keras.Sequential([hidden, keras.layers.Dense(model_dim)])
        for layer in (attention, dense):
            layers += [keras.layers.LayerNormalization(), layer]
    return layers


def encoded(layers, inputs, adapt=lambda y, _: y):
    """Apply an encoder; `adapt` gets each sub-layer's output and its number."""
    words, places, *pairs = layers
    # Not a constant, which Keras would embed once, before any training.
    positions = keras.ops.cumsum(keras.ops.ones_like(inputs), axis=1) - 1
    x = words(inputs) + places(positions)
    for number, (norm, layer) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        normal = norm(x)
        attention = isinstance(layer, keras.layers.MultiHeadAttention)
        y = layer(normal, normal) if attention else layer(normal)
        x = x + adapt(y, number)
    return x


@functools.lru_cache(maxsize=1)
def _pretrained(depth, model_dim, count, epochs):
    """The weights of an encoder that guesses masked words; one for all seeds."""
    keras.utils.set_random_seed(0)
    words, places, answers = sentences.masked(count, seed=2)
    layers = encoder_layers(depth, model_dim)
    inputs = {
        "words": keras.Input((LENGTH,), dtype="int32", name="words"),
        "place": keras.Input((1,), dtype="int32", name="place"),
    }
    x = encoded(layers, inputs["words"])
    x = keras.ops.take_along_axis(x, inputs["place"][..., None], axis=1)[:, 0]
    outputs = keras.layers.Dense(len(WORDS), "softmax")(x)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    data = Batches(({"words": words, "place": places}, answers), batch_size=64, seed=0)
    model.fit(data, epochs=epochs, shuffle=False, verbose=0)
    return [layer.get_weights() for layer in layers]
