"""Table 2 on small generated tasks: routers of adapters in a frozen text encoder."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.replicate import replicate
from dselectk_keras.schedules import Ramp
from experiments import Experiment, preset
from experiments.scores import accuracy, f1, matthews, pearson, spearman
from papers import citations
from papers.data import sentences
from papers.data.sentences import GLUE, LENGTH, NUM_ANSWERS, SHARES, WORDS
from papers.smear._claims import (
    ONE,
    distance,
    draw_routing,
    entropy,
    in_use,
    routing_of,
)
from papers.smear._routers import (
    ROUTED_BY,
    Adapters,
    compiled,
    look_at_copies,
    mean_routing,
)

ESTIMATORS = ("Top-k", "ST-Gumbel", "REINFORCE")
WORSE = ("Top-k", "ST-Gumbel")  # Than tag routing, and than REINFORCE.
BEHIND, BASIC = ("Tag", *WORSE), ("Hash", "1x compute")  # Behind REINFORCE.
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


@dataclasses.dataclass(frozen=True)
class Table2Small(Experiment):
    """Routers of adapters in a frozen text encoder, on eight generated tasks."""

    name = "smear-table2-small"
    title = "routers of adapters in a text encoder on eight tasks"
    paper = citations.SMEAR
    where = "Table 2, and Table 1 and Figure 3 on T5-GLUE"

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
        x = inputs_of(arm, train, 0)
        runs = replicate(
            lambda _: self._model(arm),
            (x, train.answers),
            seeds=[job.seed for job in jobs],
            epochs=self.epochs,
            batch_size=self.batch_size,
            verbose=0,
        )
        given = inputs_of(arm, test, len(train.tasks))
        found = []
        for predicted, weights in look_at_copies(runs.copies, given):
            tasks = test.tasks[:, 0]
            routing = [mean_routing(each, tasks, len(GLUE)) for each in weights]
            found.append({**scores_of(predicted, test), "routing": routing})
        return found

    def _model(self, arm):
        shared = Adapters(len(GLUE), self.units, self.num_steps, tags=TAGS)
        sizes = self.depth, self.model_dim
        weights = _pretrained(*sizes, self.num_pretrain, self.pretrain_epochs)
        return build_encoder(arm, *sizes, shared, weights, self.rate)

    def guessed(self, results):
        """The tasks of two answers that are little more than guessed."""
        means = [results.values(a, "scores").mean(axis=0) for a in self.arms]
        scores = dict(zip(SCORES, np.mean(means, axis=0), strict=True))
        tasks = ("RTE", "SST-2", "MRPC", "QQP", "QNLI")
        return [task for task in tasks if scores[task] < GUESSED]

    def draw_routing(self, results):
        return draw_routing(results, GLUE)


def by_task(results, arm):
    """The scores of an arm in percent, as cells."""
    return [f"{100 * x:.1f}" for x in results.values(arm, "scores").mean(axis=0)]


def apart(results, arm):
    """How far a router tells the tasks apart, by layer, as cells."""
    pairs = distance(routing_of(results, arm))[..., ~np.eye(len(GLUE), dtype=bool)]
    return [f"{value:.2f}" for value in pairs.mean(axis=-1).mean(axis=0)]


def _favourites(weights):
    """The favourite expert of each task by seed and layer, and how many differ."""
    found = weights.argmax(axis=-1)
    counts = [[len(set(layer)) for layer in seed] for seed in found.tolist()]
    return found, np.array(counts)


def _of_layers(values, layers):
    """The values of one layer of each seed."""
    return values[np.arange(len(values)), layers]


def layers_differ(weights):
    """Whether the tasks share experts in one layer, and not in another."""
    _, counts = _favourites(weights)
    most, least = counts.max(axis=1).mean(), counts.min(axis=1).mean()
    text = (
        f"the favourite experts of the 8 tasks are {most:.1f} different ones in one "
        f"layer, and {least:.1f} in another; 5 or more and 3 or fewer count"
    )
    return text, most >= 5 and least <= 3


def alike_share(weights):
    """Whether tasks that are alike share an expert where most do not."""
    favourites, counts = _favourites(weights)
    found = _of_layers(favourites, counts.argmax(axis=1))
    alike = found[:, [GLUE.index(task) for task in ("rte", "mrpc", "mnli")]]
    share = (alike == alike[:, :1]).all(axis=1).mean()
    text = f"their favourite is the same in {share:.0%} of the runs; half counts"
    return text, share >= 0.5


def some_stand_apart(weights):
    """Whether two tasks stand apart where most share experts."""
    favourites, counts = _favourites(weights)
    layers = counts.argmin(axis=1)
    found = _of_layers(favourites, layers)
    both = found[:, [GLUE.index(task) for task in ("stsb", "sst2")]]
    share = ((both[..., None] == found[:, None]).sum(axis=-1) == 1).all(axis=1).mean()
    mnli = _of_layers(weights, layers)[:, GLUE.index("mnli")]
    used = (2.0 ** entropy(mnli)).mean()
    text = (
        f"both have in {share:.0%} of the runs (half counts), and MNLI has {used:.1f} "
        f"of 8 experts in use ({MANY:g} or more count)"
    )
    return text, share >= 0.5 and used >= MANY


def is_sparse(weights):
    """Whether a task uses few experts."""
    used = (2.0 ** entropy(weights)).mean()
    text = f"a task has {used:.1f} of 8 experts in use; fewer than {MANY:g} count"
    return text, used < MANY


def from_one_to_few(weights):
    """Whether layers use from one expert to few."""
    used = in_use(weights)
    least, most = used.min(axis=1).mean(), used.max(axis=1).mean()
    text = (
        f"{least:.1f} experts in use in one layer, {most:.1f} in another; {ONE:g} or "
        f"fewer and 2 to {MANY:g} count"
    )
    return text, least <= ONE and 2 <= most <= MANY


def uses_most(weights):
    """Whether most experts are used."""
    used = in_use(weights).mean()
    return f"{used:.1f} of 8 experts in use; more than {MANY:g} count", used > MANY


def inputs_of(router, texts, first):
    """What a router's model sees; the ids of the examples begin with `first`."""
    found = {"words": texts.words}
    if key := ROUTED_BY.get(router):
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


def frozen_parts(depth, model_dim):
    """New layers of an encoder: embeddings, and pairs of a norm and a sub-layer."""
    words = keras.layers.Embedding(len(WORDS), model_dim)
    places = keras.layers.Embedding(LENGTH, model_dim)
    pairs = []
    for _ in range(depth):
        heads = max(2, model_dim // 64)
        attention = keras.layers.MultiHeadAttention(heads, model_dim // heads)
        hidden = keras.layers.Dense(4 * model_dim, "gelu")
        dense = keras.Sequential([hidden, keras.layers.Dense(model_dim)])
        norms = (keras.layers.LayerNormalization() for _ in range(2))
        pairs += list(zip(norms, (attention, dense), strict=True))
    return words, places, pairs


def encoded(parts, inputs, adapt=lambda y, _: y):
    """Apply an encoder; `adapt` gets each sub-layer's output and its number."""
    words, places, pairs = parts
    # Not a constant, which Keras would embed once, before any training.
    positions = keras.ops.cumsum(keras.ops.ones_like(inputs), axis=1) - 1
    x = words(inputs) + places(positions)
    for number, (norm, layer) in enumerate(pairs):
        normal = norm(x)
        attention = isinstance(layer, keras.layers.MultiHeadAttention)
        y = layer(normal, normal) if attention else layer(normal)
        x = x + adapt(y, number)
    return x


def build_encoder(router, depth, model_dim, shared, weights, learning_rate):
    """A compiled classifier: a frozen encoder with routed adapters."""
    inputs = {"words": keras.Input((LENGTH,), dtype="int32", name="words")}
    if key := ROUTED_BY.get(router):
        inputs[key] = keras.Input((1,), dtype="int32", name=key)
    parts = frozen_parts(depth, model_dim)

    def adapt(y, number):
        layer = shared.layer(router, model_dim, number)
        adapted = layer((y, inputs[key]) if key else y)
        return y + keras.layers.LayerNormalization()(adapted)

    x = encoded(parts, inputs["words"], adapt)
    x = keras.layers.GlobalAveragePooling1D()(x)
    outputs = keras.layers.Dense(NUM_ANSWERS, "softmax")(x)
    for layer, values in zip(_flat(parts), weights, strict=True):
        layer.set_weights(values)
        # As in the paper, only the encoder's layer normalizations are trained.
        layer.trainable = isinstance(layer, keras.layers.LayerNormalization)
    return compiled(router, inputs, outputs, keras.optimizers.AdamW(learning_rate))


@functools.lru_cache(maxsize=1)
def _pretrained(depth, model_dim, count, epochs):
    """The weights of an encoder that guesses masked words; one for all seeds."""
    keras.utils.set_random_seed(0)
    words, places, answers = sentences.masked(count, seed=2)
    parts = frozen_parts(depth, model_dim)
    inputs = {
        "words": keras.Input((LENGTH,), dtype="int32", name="words"),
        "place": keras.Input((1,), dtype="int32", name="place"),
    }
    x = encoded(parts, inputs["words"])
    x = keras.ops.take_along_axis(x, inputs["place"][..., None], axis=1)[:, 0]
    outputs = keras.layers.Dense(len(WORDS), "softmax")(x)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    data = Batches(({"words": words, "place": places}, answers), batch_size=64, seed=0)
    model.fit(data, epochs=epochs, shuffle=False, verbose=0)
    return [layer.get_weights() for layer in _flat(parts)]


def _flat(parts):
    words, places, pairs = parts
    return [words, places, *(layer for pair in pairs for layer in pair)]
