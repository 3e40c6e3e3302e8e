"""The runs of Section 4, which Table 1 and Figures 2 and 3 report."""

import dataclasses
from typing import Any

import keras
import numpy as np

from research.engine import preset
from research.papers.specialization import _mixture
from research.papers.specialization._images import Images, measured
from research.papers.specialization._mixture import DATA

JOINT, SPLIT = "(a) joint gate", "(b) gate of a given split"
# The expert that gets each class in Figure 3.
SPLITS = {
    "mnist": (0, 1, 2, 3, 2, 4, 4, 0, 3, 1),
    "fmnist_mnist": (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5),
}


@dataclasses.dataclass(frozen=True)
class Splits(Images):
    """Two gates, and fresh experts under each of them (Figure 4)."""

    seeds: int = preset(15, paper=5, smoke=1)
    datasets: tuple[str, ...] = preset(tuple(SPLITS), smoke=("fmnist_mnist",))

    shown_runs = "specialization-table1"

    @property
    def fields(self) -> dict[str, Any]:
        known = [DATA[name] for name in self.datasets]
        return {
            "numbers_of_experts": "; ".join(
                f"{d.title} {d.num_experts}" for d in known
            ),
            "splits": {name: split_of(name) for name in SPLITS},
        }

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
            gates = self.teach("original", name, count, data, jobs)
        else:
            learned = self.learn_experts(name, data, jobs)
            frozen = ("filters", "experts")
            gates = self.learn_rest(name, data, learned, jobs, frozen)
        fresh = self.learn_rest(name, data, gates, jobs, frozen=("routing", "gate"))
        return [
            measured(gate, data, count, "gate_") | measured(model, data, count)
            for gate, model in zip(gates, fresh, strict=True)
        ]

    def learn_experts(self, name, data, jobs):
        """Train experts, each on the classes that the split gives it alone."""
        about = DATA[name]
        labels = data.train.y[:, 0].astype(int)
        own = np.eye(about.num_experts, dtype="float32")[np.array(SPLITS[name])[labels]]
        inputs = {"images": data.train.x, "own": own}
        shown = dataclasses.replace(data, train=data.train._replace(x=inputs))

        def build():
            images = keras.Input(about.shape, name="images")
            own = keras.Input((about.num_experts,), name="own")
            filtered = _mixture.Filters(about.num_experts, name="filters")(images)
            bank = _mixture.experts(about, about.num_experts)
            chosen = keras.layers.Dot(axes=1)([own, bank(filtered)])
            return keras.Model({"images": images, "own": own}, chosen)

        return self.fit(build, shown, jobs)

    def learn_rest(self, name, data, learned, jobs, frozen):
        """Freeze parts of models as they were learned, and train the rest anew."""

        def build(number):
            model = _mixture.mixture(DATA[name], DATA[name].num_experts)
            theirs, ours = parts_of(learned[number]), parts_of(model)
            for part in frozen:
                ours[part].set_weights(theirs[part].get_weights())
                ours[part].trainable = False
            return model

        return self.fit(build, data, jobs, {"number": range(len(jobs))})


def arm_of(name, kind):
    """The name of an arm."""
    return f"{DATA[name].title}, {kind}"


def split_of(name):
    """The classes of each expert, as text."""
    split = np.array(SPLITS[name])
    groups = (np.flatnonzero(split == i).tolist() for i in range(max(split) + 1))
    return ", ".join(str(group).replace(" ", "") for group in groups)


def parts_of(model):
    """The layers that are learned in one stage or the other, by name."""
    parts = {layer.name: layer for layer in model.layers}
    if "moe" in parts:
        moe = parts["moe"]
        own = {"experts": moe.experts, "routing": moe.routing_network, "gate": moe.gate}
        parts |= own
    return parts
