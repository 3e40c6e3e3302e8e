"""Table 1: splits of the classes that are given, equitable and not."""

import dataclasses
from typing import Any

import keras
import numpy as np

from dselectk_keras.experiments.compare import difference, format_gap, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from papers import citations, drawing
from papers.specialization import _mixture
from papers.specialization._images import (
    NUMBERS,
    SHAPE,
    WAYS,
    Images,
    measured,
    num_classes,
    own_numbers,
)
from papers.specialization._tables import draw_table

ORIGINAL = "trained as a whole"
EQUITABLE, INEQUITABLE = "equitable", "inequitable"
# The expert of each digit.
SPLITS = {
    EQUITABLE: (0, 0, 1, 1, 2, 2, 3, 3, 4, 4),
    INEQUITABLE: (0, 0, 0, 0, 0, 0, 1, 2, 3, 4),
}


@dataclasses.dataclass(frozen=True)
class Table1(Images):
    """Experts that learn a given split of the classes, and a gate that learns it."""

    name = "specialization-table1"
    title = "a good split of the classes can be learned, and costs nothing"
    paper = citations.SPECIALIZATION
    where = "Table 1"
    about = (
        "Does a mixture split classes badly because a good split would not serve it? A "
        "split of the ten digits over five experts is given: an equitable one, two "
        "digits each, or an inequitable one, six for the first expert and one for each "
        "of the others. In the first stage each expert learns its own digits. In the "
        "second a gate learns to use these experts, which are frozen. In the third "
        "fresh experts learn under that gate, which is frozen."
    )

    @classmethod
    def presets(cls):
        smoke = {"epochs": 1, "batch_size": 48, "stand_in": True}
        paper: dict[str, Any] = {"num_train": 10_000, "num_test": 2_000, "epochs": 40}
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5),
            "paper": cls(seeds=10, **paper),
        }

    @property
    def arms(self):
        return {ORIGINAL: None, **SPLITS}

    def run(self, arm, jobs):
        data, split = self.data("mnist"), self.arms[arm]
        if split is None:
            models = self.teach(WAYS["original"], 5, data, jobs)
            return [measured(model, data, 5) for model in models]
        experts = self._learn_experts(data, split, jobs)
        gates = self._learn_rest(data, experts, jobs, fresh="gate")
        fresh = self._learn_rest(data, gates, jobs, fresh="experts")
        return [
            {f"gate_{name}": value for name, value in measured(gate, data, 5).items()}
            | measured(model, data, 5)
            for gate, model in zip(gates, fresh, strict=True)
        ]

    def _learn_experts(self, data, split, jobs):
        """The first stage: the expert of an image's class alone sees the image."""
        labels = data.train.y[:, 0].astype(int)
        own = np.eye(5, dtype="float32")[np.array(split)[labels]]
        inputs = {"images": data.train.x, "own": own}
        shown = dataclasses.replace(data, train=data.train._replace(x=inputs))

        def build(_):
            images = keras.Input(SHAPE, name="images")
            own = keras.Input((5,), name="own")
            filtered = _mixture.Filters(5, name="filters")(images)
            bank = _mixture.experts(5, num_classes(data))
            chosen = keras.layers.Dot(axes=1)([own, bank(filtered)])
            model = keras.Model({"images": images, "own": own}, chosen)
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, shown, jobs)

    def _learn_rest(self, data, learned, jobs, fresh):
        """A later stage: what was learned is frozen, and the rest learns."""

        def build(_, number):
            gate = _mixture.gate_of("original")
            model = _mixture.mixture(SHAPE, num_classes(data), 5, gate)
            theirs, ours = _parts(learned[number]), _parts(model)
            for name, part in ours.items():
                if name in theirs and (fresh == "experts") == (name in _OF_GATE):
                    part.set_weights(theirs[name].get_weights())
                    part.trainable = False
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, data, jobs, number=list(range(len(jobs))))

    def report(self, results):
        good = difference(results, "error", ORIGINAL, EQUITABLE)
        splits = difference(results, "error", INEQUITABLE, EQUITABLE)
        claims = [
            Claim(
                "Fresh experts under an equitable split have no larger error than a "
                "mixture that is trained as a whole.",
                f"Test error {results.text(EQUITABLE, 'error')} against "
                f"{results.text(ORIGINAL, 'error')}.",
                good[0] >= -2 * good[1] if np.isfinite(good[1]) else good[0] >= 0,
            ),
            Claim(
                "An equitable split has a smaller error than an inequitable one.",
                f"The inequitable split's error minus the equitable one's: "
                f"{format_gap(*splits)}.",
                is_positive(*splits),
            ),
            Claim(
                "A gate learns a split that the experts have learned.",
                f"I(E;Y) of the gate on frozen experts is "
                f"{results.text(EQUITABLE, 'gate_mutual_information')} bits; "
                f"{np.log2(5):.2f} would be the split itself. Trained as a whole: "
                f"{results.text(ORIGINAL, 'mutual_information')}.",
                results.mean(EQUITABLE, "gate_mutual_information")
                > results.mean(ORIGINAL, "mutual_information"),
            ),
        ]
        rows = [[ORIGINAL, *own_numbers(results, ORIGINAL)]]
        for arm in SPLITS:
            stages = {"frozen experts": "gate_", "fresh experts, frozen gate": ""}
            rows += [
                [f"{arm}: {stage}", *own_numbers(results, arm, prefix)]
                for stage, prefix in stages.items()
            ]
        note = "The numbers printed in the paper could not be had when this was made."
        table = Table("MNIST", ["", *NUMBERS.values()], rows, note)
        caption = (
            "What share of each digit chooses each expert in the runs of seed 0: in "
            "the mixture that is trained as a whole, and by the gates that have "
            "learned to use the experts of the two splits."
        )
        picture = Picture("tables", caption, lambda: self.draw(results))
        return Report(claims, [table], [picture], NOTES)

    def draw(self, results):
        """The selection tables of the gates: seed 0 of the whole, then the splits."""
        figure, axes = drawing.panels(1, 3, 2.6)
        for ax, arm in zip(axes.flat, self.arms, strict=True):
            name = "table" if self.arms[arm] is None else "gate_table"
            draw_table(ax, results.of(arm)[0].numbers[name])
            drawing.label(ax, title=arm, x="expert")
        drawing.label(axes[0, 0], y="digit")
        return figure


NOTES = [
    (
        "From the paper: the three stages, and that an equitable split is compared "
        "with an inequitable one. Ours: which digits go together in the two splits, "
        "and the sizes. An expert gives probabilities of all ten digits in every "
        "stage. The claims are in our words, and were not compared with the paper's "
        "text."
    )
]
_OF_GATE = ("routing", "gate")


def _parts(model):
    """The layers of a model that are learned in one stage or the other, by name."""
    parts = {"filters": model.get_layer("filters")}
    names = {layer.name for layer in model.layers}
    if "moe" in names:
        moe = model.get_layer("moe")
        return {
            **parts,
            "experts": moe.experts,
            "routing": moe.routing,
            "gate": moe.gate,
        }
    return {**parts, "experts": model.get_layer("experts")}
