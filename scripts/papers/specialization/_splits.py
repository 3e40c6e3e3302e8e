"""The runs of Section 4, which Table 1 and Figures 2 and 3 report."""

import dataclasses

import keras
import numpy as np

from experiments import Fact
from papers.specialization import _mixture
from papers.specialization._images import DATA, WAYS, Images, measured
from papers.specialization._tables import USED

JOINT, SPLIT = "(a) joint gate", "(b) gate of a given split"
# The expert that gets each class in Figure 3.
SPLITS = {
    "mnist": (0, 1, 2, 3, 2, 4, 4, 0, 3, 1),
    "fmnist_mnist": (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5),
}
CLOTHES = 6  # The first classes of the mixed data are clothes, the others digits.


@dataclasses.dataclass(frozen=True)
class Splits(Images):
    """Two gates, and fresh experts under each of them (Figure 4).

    Args:
        datasets: Names of the data sets.
    """

    datasets: tuple[str, ...] = tuple(SPLITS)

    @classmethod
    def presets(cls):
        smoke = {"epochs": 1, "batch_size": 48, "stand_in": True}
        return {
            "smoke": cls(datasets=("fmnist_mnist",), **smoke),
            "cpu": cls(seeds=5),
            "paper": cls(seeds=5),
        }

    @property
    def source(self):
        return "specialization-table1"

    @property
    def arms(self):
        return {
            arm_of(name, kind): (name, kind)
            for name in self.datasets
            for kind in (JOINT, SPLIT)
        }

    def run(self, arm, jobs):
        name, kind = self.arms[arm]
        data, count = self.data(name), DATA[name].num_experts
        if kind == JOINT:
            gates = self.teach(WAYS["original"], name, count, data, jobs)
        else:
            learned = self.learn_experts(name, data, jobs)
            gates = self.learn_rest(name, data, learned, jobs, fresh="gate")
        fresh = self.learn_rest(name, data, gates, jobs, fresh="experts")
        return [
            {f"gate_{key}": value for key, value in measured(gate, data, count).items()}
            | measured(model, data, count)
            for gate, model in zip(gates, fresh, strict=True)
        ]

    def learn_experts(self, name, data, jobs):
        """Train experts, each on the classes that the split gives it alone."""
        about = DATA[name]
        labels = data.train.y[:, 0].astype(int)
        own = np.eye(about.num_experts, dtype="float32")[np.array(SPLITS[name])[labels]]
        inputs = {"images": data.train.x, "own": own}
        shown = dataclasses.replace(data, train=data.train._replace(x=inputs))

        def build(_):
            images = keras.Input(about.shape, name="images")
            own = keras.Input((about.num_experts,), name="own")
            filtered = _mixture.Filters(about.num_experts, name="filters")(images)
            bank = _mixture.experts(name, about.num_experts, about.num_classes)
            chosen = keras.layers.Dot(axes=1)([own, bank(filtered)])
            model = keras.Model({"images": images, "own": own}, chosen)
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, shown, jobs)

    def learn_rest(self, name, data, learned, jobs, fresh):
        """Freeze what was learned, and train the rest anew: `"gate"` or `"experts"`."""
        about = DATA[name]

        def build(_, number):
            model = _mixture.mixture(
                name, about.shape, about.num_classes, about.num_experts
            )
            theirs, ours = parts_of(learned[number]), parts_of(model)
            for part, layer in ours.items():
                if part in theirs and (fresh == "experts") == (part in _OF_GATE):
                    layer.set_weights(theirs[part].get_weights())
                    layer.trainable = False
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, data, jobs, number=list(range(len(jobs))))

    def protocol(self):
        """The facts of the paper's protocol."""
        return [
            *self.sizes(10_000, 2_000, "Section 4.1, Appendix B.2"),
            Fact("Experts", "MNIST 5; FMNIST + MNIST 6", _counts(self.datasets)),
            Fact(
                "Classes of FMNIST + MNIST",
                "T-shirt to sandal, digits 4 to 9",
                "the same",
            ),
            Fact(
                "Split of the digits",
                "[0,7], [1,9], [2,4], [3,8], [5,6] (Figure 3)",
                _split("mnist"),
            ),
            Fact(
                "Split of FMNIST + MNIST",
                "T-shirt and trouser, pullover and dress, coat and sandal, [4,5], "
                "[6,7], [8,9] (Figure 3)",
                f"the same, as numbers of the twelve classes: {_split('fmnist_mnist')}",
            ),
            Fact(
                "Networks", "Appendices B.1 and B.2", "the same but for the last layer"
            ),
            Fact(
                "Stages of (b)",
                "experts on their classes; a gate on frozen experts; fresh experts "
                "under the frozen gate (Figure 4)",
                "the same; all experts see the same batches, each only its classes",
                "All experts are trained in one program. The authors' code trains them "
                "one by one, so that each has fewer steps, of larger batches.",
            ),
            Fact(
                "Stages of (a)",
                "gate and experts together; fresh experts under the frozen gate",
                "the same",
            ),
            Fact(
                "Learning rate",
                "0.001, for all models (Section 7)",
                self.both("learning_rate"),
            ),
            Fact(
                "Epochs",
                "not given here; 20 for MNIST in Section 7",
                f"{self.both('epochs')} in each stage",
                "As in the authors' code.",
            ),
            Fact(
                "Batch size",
                "not given",
                self.both("batch_size"),
                "As in the authors' code.",
            ),
            Fact(
                "Pixels",
                "not given",
                "mean 0, variance 1",
                "In the authors' code they are from -1 to 1.",
            ),
            Fact("Runs", "5 for Table 1; each figure shows one", self.seeds),
        ]


def arm_of(name, kind):
    """The name of an arm."""
    return f"{DATA[name].title}, {kind}"


def _counts(names):
    return "; ".join(f"{DATA[name].title} {DATA[name].num_experts}" for name in names)


def _split(name):
    """The classes of each expert, to be read."""
    split = np.array(SPLITS[name])
    groups = [
        np.flatnonzero(split == expert).tolist() for expert in range(max(split) + 1)
    ]
    return ", ".join(str(group).replace(" ", "") for group in groups)


def used(table):
    """How many experts are chosen for a share of the images worth counting.

    Args:
        table: An array (classes, experts) of counts.

    Returns:
        A number.
    """
    totals = np.asarray(table).sum(axis=0)
    return int((totals >= USED * totals.sum()).sum())


def has_both_kinds(table):
    """Whether an expert that is used has a tenth or more of its images of each kind.

    Args:
        table: An array (classes, experts) of counts; the first six are clothes.

    Returns:
        A boolean.
    """
    table = np.asarray(table)
    kinds = np.stack([table[:CLOTHES].sum(axis=0), table[CLOTHES:].sum(axis=0)])
    totals = kinds.sum(axis=0)
    counted = totals >= USED * totals.sum()
    return bool((kinds.min(axis=0)[counted] >= 0.1 * totals[counted]).any())


def share_by_split(table, split):
    """The share of images that choose the expert that the split gives their class.

    Args:
        table: An array (classes, experts) of counts.
        split: The expert of each class.

    Returns:
        A number.
    """
    table = np.asarray(table)
    return float(table[np.arange(len(split)), list(split)].sum() / table.sum())


def follows(table, split):
    """Whether most images of every class choose the expert of the split.

    Args:
        table: An array (classes, experts) of counts.
        split: The expert of each class.

    Returns:
        A boolean.
    """
    return np.asarray(table).argmax(axis=1).tolist() == list(split)


_OF_GATE = ("routing", "gate")


def parts_of(model):
    """The layers of a model that are learned in one stage or the other, by name.

    Args:
        model: A mixture, or a model of experts that learn alone.

    Returns:
        A dict of layers.
    """
    parts = {"filters": model.get_layer("filters")}
    names = {layer.name for layer in model.layers}
    if "moe" in names:
        moe = model.get_layer("moe")
        return {
            **parts,
            "experts": moe.experts,
            "routing": moe.routing_network,
            "gate": moe.gate,
        }
    return {**parts, "experts": model.get_layer("experts")}
