"""Draw specialization.png: four gates, and the numbers that tell them apart.

python docs/images/specialization.py
"""

# ruff: noqa: INP001, TID253

import pathlib

import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import metrics

CLASSES = np.repeat(np.arange(4), 4)  # Sixteen examples of four classes.
GATES = {
    "undecided": np.full((16, 4), 0.25),
    "collapsed": np.eye(4)[np.zeros(16, int)],
    "blind to the class": np.eye(4)[np.tile(np.arange(4), 4)],
    "specialized": np.eye(4)[CLASSES],
}


def measured(weights):
    """The three numbers of a gate, as text."""
    information = metrics.MutualInformation(num_experts=4, num_classes=4)
    information.update_state(CLASSES, weights)
    utilization = metrics.UtilizationEntropy(num_experts=4)
    utilization.update_state(weights)
    sample = metrics.SampleEntropy()
    sample.update_state(weights)
    return "   ".join(
        f"${name} = {float(metric.result()):.0f}$"
        for name, metric in {
            "H_s": sample,
            "H_u": utilization,
            "I": information,
        }.items()
    )


def main():
    """Draw the weights of the four gates side by side."""
    figure, axes = plt.subplots(
        1, 4, figsize=(9.2, 3.0), sharey=True, layout="constrained"
    )
    for ax, (title, weights) in zip(axes, GATES.items(), strict=True):
        image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.hlines(np.arange(4, 16, 4) - 0.5, -0.5, 3.5, color="#333333", linewidth=0.8)
        ax.vlines(np.arange(1, 4) - 0.5, -0.5, 15.5, color="#DDDDDD", linewidth=0.5)
        ax.set_title(f"{title}\n{measured(weights)}", fontsize=10)
        ax.set_xticks(range(4), range(1, 5))
        ax.set_xlabel("expert", fontsize=10)
        ax.set_yticks([1.5, 5.5, 9.5, 13.5], [f"class {i + 1}" for i in range(4)])
        ax.tick_params(length=0, labelsize=10)
    figure.colorbar(image, ax=axes, label="expert weight")
    figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=320)


if __name__ == "__main__":
    main()
