"""Table 2 on small generated tasks: routers of adapters in a frozen text encoder."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np

from dselectk_keras.baselines import RoutedModel
from dselectk_keras.batches import Batches
from dselectk_keras.replicate import replicate
from dselectk_keras.schedules import Ramp
from experiments import Experiment, Fact, Report, Table
from papers import citations
from papers.smear import _sentences
from papers.smear._claims import (
    RESULTS,
    as_good,
    better,
    compare,
    of_each,
    unchanged,
    worse,
)
from papers.smear._protocol import LATENT_SKILLS
from papers.smear._routers import ABLATED, ROUTED_BY, ROUTERS, Adapters, routed_layers
from papers.smear._scores import accuracy, f1, matthews, pearson, spearman
from papers.smear._sentences import GLUE, LENGTH, NUM_ANSWERS, SHARES, WORDS
from papers.smear.fig3 import (
    ONE,
    TEXT,
    distance,
    entropy,
    picture_of_routing,
    routing_of,
)

# The paper leaves these out: Soft MoE cannot be used, DSelect-k was not stable.
ARMS = tuple(r for r in ROUTERS if r not in ("Soft MoE", "DSelect-k")) + ABLATED
ESTIMATORS = ("Top-k", "ST-Gumbel", "REINFORCE")
HEURISTICS = ("Tag", "Hash", "1x compute", "1x parameters")
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
# The column Average of Table 2, and its standard deviation; of hash, Figure 2.
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
    """Routers of adapters in a frozen text encoder, on eight generated tasks.

    Args:
        routers: Names of the routers that are compared.
        num_train: Training examples of the largest task.
        num_test: Test examples of each task.
        epochs: Passes over them.
        batch_size: Examples in a step.
        learning_rate: Of AdamW.
        warm_up: Steps in which the learning rate grows from 0 to that.
        num_pretrain: Pairs of sentences that train the encoder, one word masked.
        pretrain_epochs: Passes over them.
        depth: Layers of the encoder.
        model_dim: Features of a position.
        units: Width of the adapters.
    """

    name = "smear-table2-small"
    title = "routers of adapters in a text encoder on eight tasks"
    paper = citations.SMEAR
    where = "Table 2, and Table 1 and Figure 3 on T5-GLUE"
    about = (
        f"Eight tasks on generated sentences, from a vocabulary of {len(WORDS)} words "
        "and signs, one in the place of each data set of GLUE: acceptability, "
        "sentiment, paraphrase, similarity, entailment, answers to questions. A small "
        "text encoder is trained to guess masked words and then frozen, with adapters "
        "and their routers after each of its sub-layers. This is far from T5 and GLUE "
        "in size and difficulty: it tests the methods on sequences, not the paper's "
        "numbers."
    )

    routers: tuple[str, ...] = ARMS
    num_train: int = 2_000
    num_test: int = 300
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-3
    warm_up: int = 0
    num_pretrain: int = 20_000
    pretrain_epochs: int = 4
    depth: int = 2
    model_dim: int = 32
    units: int = 4

    @classmethod
    def presets(cls):
        smoke = {
            "routers": ("1x compute", "Tag", "SMEAR"),
            "num_train": 25,
            "num_test": 6,
            "epochs": 1,
            "num_pretrain": 16,
            "pretrain_epochs": 1,
            "depth": 1,
            "model_dim": 8,
            "units": 2,
        }
        paper = {
            "num_train": 400_000,
            "num_test": 2_000,
            "epochs": 63,  # 600,000 steps.
            "batch_size": 128,
            "learning_rate": 3e-4,
            "warm_up": 2_000,
            "num_pretrain": 1_000_000,
            "depth": 12,
            "model_dim": 768,
            "units": 24,
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5),
            "paper": cls(seeds=5, **paper),
        }

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
        train = _sentences.texts(self.sizes, seed=0)
        test = _sentences.texts(dict.fromkeys(GLUE, self.num_test), seed=1)
        x = inputs_of(arm, train, 0)
        runs = replicate(
            lambda _: self._model(arm),
            (x, train.answers),
            seeds=[job.seed for job in jobs],
            epochs=self.epochs,
            batch_size=self.batch_size,
            verbose=0,
        )
        model = runs.model(0)
        layers = routed_layers(model)
        look = keras.Model(model.inputs, [model.output, [e.input for e in layers]])
        given = inputs_of(arm, test, len(train.tasks))
        given = [given[tensor.name] for tensor in model.inputs]
        found = []
        for copy in runs.copies:
            model.set_weights(copy.model.get_weights())
            predictions, seen = look.predict(given, batch_size=256, verbose=0)
            numbers = scores_of(predictions.argmax(-1), test)
            routing = [_routing(*each, test) for each in zip(layers, seen, strict=True)]
            found.append({**numbers, "routing": routing})
        return found

    def _model(self, arm):
        shared = Adapters(len(GLUE), self.units, self.num_steps, tags=TAGS)
        sizes = self.depth, self.model_dim
        weights = _pretrained(*sizes, self.num_pretrain, self.pretrain_epochs)
        return build_encoder(arm, *sizes, shared, weights, self.rate)

    def report(self, results):
        return Report(
            self._claims(results),
            [self._scores(results), self._routing(results)],
            [picture_of_routing(results, "task", GLUE)],
            notes=[*NOTES, *self._remark(results)],
            protocol=self._protocol(),
        )

    def _claims(self, results):
        def claim(says, arm, others, judge, source, paper):
            return compare(results, says, arm, others, judge, source, paper, "average")

        def smear(says, others, judge, paper):
            return claim(says, "SMEAR", others, judge, RESULTS, paper)

        def dropout(does, arm, other, judge, paper):
            says = f"Expert dropout {does} {arm.split(',')[0]}."
            return claim(
                says, arm, (other,), judge, "Appendix C; Table 1, T5-GLUE", paper
            )

        return [
            claim(
                "REINFORCE is the best estimator, and better than tag routing.",
                "REINFORCE",
                ("Tag", "Top-k", "ST-Gumbel"),
                better,
                f"{RESULTS}, first result",
                "+1.5, +1.8, +2.1",
            ),
            claim(
                "Estimators are often worse than heuristic routing: Top-k and "
                "ST-Gumbel are worse than tag routing.",
                "Tag",
                ("Top-k", "ST-Gumbel"),
                better,
                f"{RESULTS}, first result",
                "+0.3, +0.6",
            ),
            claim(
                "In some cases an estimator is better than hash routing or a single "
                "expert: REINFORCE is better than hash routing and 1x compute.",
                "REINFORCE",
                ("Hash", "1x compute"),
                better,
                f"{RESULTS}, second result",
                "+13.1, +1.6",
            ),
            smear(
                "SMEAR is as good as all routers that are learned by gradient "
                "estimation, or better.",
                ESTIMATORS,
                as_good,
                "+3.4, +3.7, +1.6",
            ),
            smear(
                "SMEAR is as good as all heuristic routing strategies, or better.",
                HEURISTICS,
                as_good,
                "+3.1, +14.7, +3.2, +1.4",
            ),
            smear(
                "SMEAR is better than tag routing.",
                ("Tag",),
                better,
                "+2.7; +3.1 by Table 2",
            ),
            smear(
                "SMEAR is better than one expert with as many parameters.",
                ("1x parameters",),
                better,
                "+1.4",
            ),
            smear("SMEAR matches the ensemble.", ("Ensemble",), unchanged, "-0.1"),
            smear("SMEAR is better than Adamix.", ("Adamix",), better, "+3.2"),
            smear(
                "SMEAR is slightly better than Latent Skills.",
                ("Latent Skills",),
                better,
                "+0.6",
            ),
            claim(
                "Twice as many experts do not change SMEAR's score.",
                "SMEAR 2x",
                ("SMEAR",),
                unchanged,
                "Section 4, Scaling",
                "-0.3",
            ),
            dropout("improves", "SMEAR", "SMEAR, no dropout", better, "+2.9"),
            dropout("improves", "Top-k", "Top-k, no dropout", better, "+1.2"),
            dropout("harms", "ST-Gumbel, dropout", "ST-Gumbel", worse, "-1.1"),
            dropout("harms", "REINFORCE, dropout", "REINFORCE", worse, "-1.6"),
            *self._claims_on_routing(results),
        ]

    def _claims_on_routing(self, results):
        """What the text says of the pictures on T5-GLUE; the limits are ours."""
        run = [arm for arm in self.arms if results.of(arm)]

        def claim(says, arms, judge, figures):
            def judged(arm):
                return judge(routing_of(results, arm))

            return of_each(says, arms, judged, f"{TEXT}; {figures}", run)

        return [
            claim(
                "Of SMEAR's routers, one gives most tasks experts of their own, "
                "another sends most tasks to one expert.",
                ["SMEAR"],
                _layers_differ,
                "Figure 3",
            ),
            claim(
                "In the router of the first kind, RTE, MRPC and MNLI share experts.",
                ["SMEAR"],
                _alike_share,
                "Figure 3",
            ),
            claim(
                "In the router of the second kind, STS-B and SST-2 have experts of "
                "their own, and MNLI uses many.",
                ["SMEAR"],
                _some_stand_apart,
                "Figure 3",
            ),
            claim(
                "SMEAR's routing is sparse.",
                ["SMEAR"],
                _is_sparse,
                "Figures 3 and 5 to 7",
            ),
            claim(
                "Estimators use a single expert in some layers, and about 3 of 8 in "
                "others.",
                ESTIMATORS,
                _from_one_to_few,
                "Figures 13 to 15, 17 to 19 and 21 to 23",
            ),
            claim(
                "Latent Skills and the ensemble use most experts, as SMEAR does.",
                ["SMEAR", "Latent Skills", "Ensemble"],
                _uses_most,
                "Figures 5 to 7, 9 to 11 and 26 to 28",
            ),
        ]

    def _scores(self, results):
        rows = []
        for arm in self.arms:
            each = results.values(arm, "scores").mean(axis=0)
            average = results.text(arm, "average", scale=100)
            rows.append(
                [arm, PAPER[arm], average, *(f"{100 * value:.1f}" for value in each)]
            )
        return Table(
            "Scores in percent",
            ["router", "paper, GLUE", "here", *SCORES],
            rows,
            "The paper's column is the average of its Table 2 (Appendix F), with "
            "standard deviations; for hash routing that of Figure 2's caption; of one "
            "seed, that of Table 1. The scores of its data sets and of our tasks "
            "cannot be compared. CoLA's score is Matthews' correlation. Guessing gives "
            "about 50 for RTE, SST-2, MRPC, QQP and QNLI, 33 for MNLI, and 0 for a "
            "correlation.",
        )

    def _remark(self, results):
        """A note on the tasks of two answers that are little more than guessed."""
        scores = np.mean(
            [results.values(arm, "scores").mean(axis=0) for arm in self.arms], axis=0
        )
        columns = dict(zip(SCORES, scores, strict=True))
        guessed = [
            task
            for task in ("RTE", "SST-2", "MRPC", "QQP", "QNLI")
            if columns[task] < GUESSED
        ]
        if not guessed:
            return []
        text = (
            f"**Little is learned of {', '.join(guessed)}:** less than {GUESSED:.0%} "
            "are right on average over the routers, and guessing gives 50%. What "
            "routers differ in is mostly the other tasks."
        )
        return [text]

    def _routing(self, results):
        rows = []
        for arm in self.arms:
            runs = [run.numbers["routing"] for run in results.of(arm)]
            if not all(runs[0]):
                continue
            found = np.array(runs)
            found = found / found.sum(axis=-1, keepdims=True)
            pairs = distance(found)[..., ~np.eye(len(GLUE), dtype=bool)].mean(axis=-1)
            rows.append([arm, *(f"{value:.2f}" for value in pairs.mean(axis=0))])
        layers = range(1, 2 * self.depth + 1)
        return Table(
            "How far routers tell the tasks apart, by layer",
            ["router", *(f"layer {layer}" for layer in layers)],
            rows,
            "The mean total variation distance of two tasks' mean distributions over "
            "the experts: 0 for the same, 1 for no expert in common.",
        )

    def _protocol(self):
        cpu, paper = (self.presets()[name] for name in ("cpu", "paper"))

        def here(template):
            texts = [template(preset) for preset in (cpu, paper)]
            return (
                texts[0]
                if len(set(texts)) == 1
                else "cpu: {}; paper: {}".format(*texts)
            )

        return [
            Fact(
                "data",
                "GLUE without WNLI: eight data sets (Appendix B.1)",
                "eight generated tasks in their place",
                "No pretrained text model is used, without which GLUE cannot be "
                "learned. `papers.data.glue` reads GLUE.",
            ),
            Fact(
                "format",
                "prompts of PromptSource, one drawn for each training example, all of "
                "them in evaluation; answers are text (Appendix B.1)",
                "the task's name and the words; answers are 6 classes that all tasks "
                "share, from a dense layer that is trained with the adapters; unlike "
                "in the paper, STS-B is no regression and SST-2 has no answers of its "
                "own",
                "The encoder generates no text. `papers.data.glue` has one fixed "
                "format for each data set, not PromptSource's.",
            ),
            Fact(
                "training examples",
                "they vary by three orders of magnitude between data sets (Section 4)",
                here(lambda p: ", ".join(f"{t} {n:,}" for t, n in p.sizes.items())),
                "25 to 1: with fewer, the small tasks could not be learned.",
            ),
            Fact(
                "test examples",
                "splits of each data set after Mahabadi et al. (Section 4)",
                here(lambda p: f"{p.num_test:,} generated ones of each task"),
                "They are drawn as the training examples are.",
            ),
            Fact(
                "frozen network",
                "T5.1.1 Base: 12 encoder and 12 decoder layers, of which only the "
                "layer normalizations are trained (Section 4)",
                here(
                    lambda p: (
                        f"an encoder of {p.depth} layers of {p.model_dim} "
                        "features, trained to guess masked words in "
                        f"{p.num_pretrain:,} pairs of generated sentences; only its "
                        "layer normalizations are trained further"
                    )
                ),
                "The generated sentences need no model of real text. cpu: time.",
            ),
            Fact(
                "routing blocks",
                "60: after self-attention, feed-forward and cross-attention (Section "
                "4)",
                here(lambda p: f"{2 * p.depth}: after self-attention and feed-forward"),
                "The answers are classes, so that there is no decoder.",
            ),
            Fact(
                "experts",
                "8 adapters (Section 4) with swish (Appendix B.1); 16 for SMEAR 2x; "
                "width 24 in the release",
                here(lambda p: f"the same, of width {p.units}"),
                "cpu: narrow as the encoder is. Kernels start from N(0, 0.01^2), as in "
                "the release. The second layer has a bias here, and none in the "
                "release.",
            ),
            Fact(
                "layer normalization",
                "of the experts' output (Section 4)",
                "one in each block, of the mixed output of its experts",
                "As in the release. The paper does not say whether experts share it.",
            ),
            Fact(
                "router",
                "linear without bias, with layer normalization of its input, the mean "
                "over the sequence, and of the kernel; in the decoder, of the "
                "encoder's final states (Section 4)",
                "the same, without a decoder; the mean includes padding, as in the "
                "release",
                "The answers are classes, so that there is no decoder.",
            ),
            Fact(
                "expert dropout",
                "0.1 for SMEAR and Top-k, none for ST-Gumbel and REINFORCE (Appendix "
                "C); not given for the others",
                "the same; 0.1 for SMEAR 2x; none for the others",
            ),
            Fact("load balancing", "none (Section 4)", "none"),
            Fact(
                "tag routing",
                "RTE and MNLI share an expert (Section 4)",
                "the same",
                "In the release they do so in the encoder alone.",
            ),
            Fact(
                "routers left out",
                "Soft MoE, which averages tokens, of which a decoder does not know the "
                "later ones; DSelect-k, whose training was unstable despite tuning "
                "(Section 4)",
                "the same",
                "Our encoder could use them; the paper has no numbers to compare with.",
            ),
            Fact(
                "optimizer",
                "AdamW with its defaults, learning rate 3e-4, 2,000 steps of warm-up "
                "(Appendix B.1)",
                here(
                    lambda p: (
                        f"AdamW with Keras' defaults, learning rate "
                        f"{p.learning_rate:g}, {p.warm_up:,} steps of warm-up"
                    )
                ),
                "cpu: few steps. The default weight decay is 0.004 in Keras, 0.01 in "
                "PyTorch, and 0 in the release, which also smooths the labels.",
            ),
            Fact(
                "steps and batch",
                "600,000 steps of 128 examples (Appendix B.1)",
                here(lambda p: f"{p.num_steps:,} steps of {p.batch_size} examples"),
                "cpu: time.",
            ),
            Fact(
                "ST-Gumbel",
                "temperature 10, annealed at a rate of 1e-6; both are the best of a "
                "sweep, of the rates {1e-4, 1e-5, 1e-6} (Appendix B.1; in our copy the "
                "temperatures cannot be read)",
                "from 10 to 0.5, the release's minimum, in 0.3 of the steps; not tuned",
                "By an exponential decay at that rate the temperature would still be "
                "5.5 after 600,000 steps. In the release each evaluation multiplies it "
                "by the decay since the first step, so that it is 0.5 after 0.29 of "
                "the steps.",
            ),
            Fact(
                "REINFORCE",
                "weights 0.01, 0.0005 and 0.01 of policy, entropy and value (Appendix "
                "B.1)",
                "the same",
            ),
            LATENT_SKILLS,
            Fact(
                "Adamix",
                "random routing, a consistency loss (Section 2), the general settings "
                "of Appendix B.1",
                "the same; weight 1 of the consistency loss, as in the release",
            ),
            Fact(
                "which step is reported",
                "not in the paper; the release takes the best validation score",
                "the last step",
                "No validation examples are set aside.",
            ),
            Fact(
                "seeds",
                "5, with standard deviations (Figure 2); 1 in Table 1",
                f"{cpu.seeds}, with standard errors",
            ),
            Fact(
                "metrics",
                "accuracy, f1, correlations; their average over 11 columns (Table 2)",
                "the same",
            ),
        ]


def _favourites(weights):
    """The favourite expert of each task, `(seeds, layers, tasks)`, and how many differ.

    Args:
        weights: Array `(seeds, layers, tasks, experts)`.
    """
    found = weights.argmax(axis=-1)
    counts = [[len(set(layer)) for layer in seed] for seed in found.tolist()]
    return found, np.array(counts)


def _of_layers(values, layers):
    """The values of one layer of each seed."""
    return values[np.arange(len(values)), layers]


def _layers_differ(weights):
    _, counts = _favourites(weights)
    most, least = counts.max(axis=1).mean(), counts.min(axis=1).mean()
    text = (
        f"the favourite experts of the 8 tasks are {most:.1f} different ones in one "
        f"layer, and {least:.1f} in another; 5 or more and 3 or fewer count"
    )
    return text, bool(most >= 5 and least <= 3)


def _alike_share(weights):
    favourites, counts = _favourites(weights)
    found = _of_layers(favourites, counts.argmax(axis=1))
    alike = found[:, [GLUE.index(task) for task in ("rte", "mrpc", "mnli")]]
    share = (alike == alike[:, :1]).all(axis=1).mean()
    text = f"their favourite is the same in {share:.0%} of the runs; half counts"
    return text, bool(share >= 0.5)


def _some_stand_apart(weights):
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
    return text, bool(share >= 0.5 and used >= MANY)


def _is_sparse(weights):
    used = (2.0 ** entropy(weights)).mean()
    text = f"a task has {used:.1f} of 8 experts in use; fewer than {MANY:g} count"
    return text, bool(used < MANY)


def _in_use(weights):
    """The experts in use of each layer, `(seeds, layers)`."""
    return 2.0 ** entropy(weights.mean(axis=-2))


def _from_one_to_few(weights):
    used = _in_use(weights)
    least, most = used.min(axis=1).mean(), used.max(axis=1).mean()
    text = (
        f"{least:.1f} experts in use in one layer, {most:.1f} in another; {ONE:g} or "
        f"fewer and 2 to {MANY:g} count"
    )
    return text, bool(least <= ONE and 2 <= most <= MANY)


def _uses_most(weights):
    used = _in_use(weights).mean()
    text = f"{used:.1f} of 8 experts in use; more than {MANY:g} count"
    return text, bool(used > MANY)


NOTES = [
    (
        "*Better* is here: by more than two standard errors of the difference, which "
        "is taken seed by seed; a smaller difference is not judged. *As good*: not "
        "worse by as much. *Does not change* and *matches*: within two standard errors."
        " *In use* are two to the power of the entropy of a distribution over the "
        "experts. The paper gives no numbers on routing: the limits are ours."
    ),
]


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


def _routing(layer, inputs, texts):
    """The mean weights over the experts by task, in thousandths."""
    if not layer.per_example:
        return []
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    tensors = tuple(tensors) if isinstance(tensors, list) else tensors
    weights = keras.ops.convert_to_numpy(layer.expert_weights(tensors))
    weights = weights.reshape(len(weights), -1, weights.shape[-1]).mean(axis=1)
    tasks = texts.tasks[:, 0]
    means = [weights[tasks == number].mean(axis=0) for number in range(len(GLUE))]
    return np.round(means, 3).tolist()


def frozen_parts(depth, model_dim):
    """New layers of an encoder: embeddings, and pairs of a norm and a sub-layer."""
    words = keras.layers.Embedding(len(WORDS), model_dim)
    places = keras.layers.Embedding(LENGTH, model_dim)
    pairs = []
    for _ in range(depth):
        heads = max(2, model_dim // 64)
        attention = keras.layers.MultiHeadAttention(heads, model_dim // heads)
        dense = keras.Sequential(
            [
                keras.layers.Dense(4 * model_dim, "gelu"),
                keras.layers.Dense(model_dim),
            ]
        )
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
    """A compiled classifier: a frozen encoder with routed adapters.

    Args:
        router: Name of a router.
        depth: Layers of the encoder.
        model_dim: Features of a position.
        shared: An `Adapters`.
        weights: A list of the weights of `frozen_parts`, part by part.
        learning_rate: Of AdamW; a number or a schedule.

    Returns:
        A `RoutedModel` with a dict of inputs.
    """
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
    consistency = 1.0 if router == "Adamix" else 0.0
    model = RoutedModel(inputs, outputs, consistency=consistency)
    optimizer = keras.optimizers.AdamW(learning_rate)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


@functools.lru_cache(maxsize=1)
def _pretrained(depth, model_dim, count, epochs):
    """The weights of an encoder that guesses masked words; one for all seeds."""
    keras.utils.set_random_seed(0)
    words, places, answers = _sentences.masked(count, seed=2)
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
