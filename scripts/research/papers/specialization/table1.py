"""Table 1: fresh experts under a gate that was trained jointly, or on a split."""

import dataclasses
import itertools

from research.engine import Claim, Higher
from research.papers.specialization._mixture import DATA
from research.papers.specialization._splits import JOINT, SPLIT, Splits, arm_of

# Test error and training loss.
PAPER = {
    "mnist": {JOINT: ("0.12", "0.19"), SPLIT: ("0.08", "0.05")},
    "fmnist_mnist": {JOINT: ("0.15", "0.28"), SPLIT: ("0.10", "0.13")},
}
TITLES = {"error": "test error", "train_loss": "training loss"}


@dataclasses.dataclass(frozen=True)
class Table1(Splits):
    """The errors and the losses of fresh experts under two gates."""

    name = "specialization-table1"
    title = "fresh experts do better under a gate that knows an equitable split"
    where = "Table 1"
    looks = 2

    @property
    def claims(self):
        return itertools.starmap(claim, itertools.product(self.datasets, TITLES))

    def table_errors(self, results):
        yield ["data", "gate", "test error", "paper", "training loss", "paper"]
        for arm, (name, kind) in self.arms.items():
            error, loss = results.texts(arm, "error", "train_loss")
            theirs = PAPER[name][kind]
            yield [DATA[name].title, kind, error, theirs[0], loss, theirs[1]]

    def table_questions(self, results):
        yield ["question", "here"]
        for name in self.datasets:
            joint, fresh = results.texts(arm_of(name, JOINT), "gate_error", "error")
            question = "how good are the experts that were trained with the joint gate?"
            answer = f"Test error {joint}; fresh experts under the same gate {fresh}."
            yield [f"{DATA[name].title}: {question}", answer]


def claim(name, key):
    """The claim on the error, or the loss, on a data set."""
    joint, split = (arm_of(name, kind) for kind in (JOINT, SPLIT))
    place = list(TITLES).index(key)
    theirs = [PAPER[name][kind][place] for kind in (SPLIT, JOINT)]
    names = {"joint": joint, "split": split, "key": key, "what": TITLES[key]}
    names |= {"title": DATA[name].title, "theirs": " against ".join(theirs)}
    names["part"] = "ab"[list(PAPER).index(name)]
    effect = float(theirs[1]) - float(theirs[0])
    return Claim("lower", Higher(joint, split, by=key, effect=effect), names)


def beside(results, arm, other, key):
    """A number of two arms and its difference, as text."""
    texts = (results.text(each, key) for each in (arm, other))
    return f"{' against '.join(texts)}: {results.gap(arm, other, key)}"
