"""Draw smooth_gate.png: how weights follow a logit, with Top-k and with DSelect-k.

python docs/images/smooth_gate.py
"""

# ruff: noqa: INP001, TID253

import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import ops, plots

LOGITS = np.linspace(-1.0, 1.0, 401).astype("float32")


def numpy(tensor):
    """A tensor as an array."""
    return keras.ops.convert_to_numpy(tensor)


def top_k():
    """Weights of three experts of which two are kept, as one's logit grows."""
    others = np.broadcast_to([0.3, -0.3], (len(LOGITS), 2))
    logits = np.column_stack([LOGITS, others]).astype("float32")
    return numpy(ops.softmax(ops.keep_top_k(logits, 2)))


def dselect_k():
    """Weights of two selectors, as the logit of one bit grows."""
    moving = np.column_stack([np.full_like(LOGITS, -0.5), LOGITS])  # experts 1 and 2
    resting = np.broadcast_to([0.5, -0.5], moving.shape)  # on expert 3
    bits = ops.smooth_step(np.stack([moving, resting], axis=1))
    selectors = numpy(ops.selector_product(bits, num_experts=3))
    return np.average(selectors, axis=1, weights=[0.4, 0.6])


def main():
    """Draw the smooth step and both gates side by side."""
    # As wide as the text, so that the letters have its size.
    figure, axes = plt.subplots(3, 1, figsize=(5.5, 6.0), layout="constrained")
    for ax in axes:
        ax.set_ylim(-0.04, 1.04)
    curves = {
        "width 1": numpy(ops.smooth_step(LOGITS)),
        "width 2": numpy(ops.smooth_step(LOGITS, gamma=2.0)),
        "logistic": numpy(keras.ops.sigmoid(LOGITS)),
    }
    plots.plot_curves(
        {name: (LOGITS, curve) for name, curve in curves.items()},
        x_label="logit",
        y_label="value",
        title="Smooth step and logistic function",
        ax=axes[0],
    )
    panels = {
        "Top-k, two of three experts: weights jump": (top_k(), "logit of expert 1"),
        "DSelect-k, two selectors: weights move": (dselect_k(), "logit of one bit"),
    }
    for ax, (title, (weights, label)) in zip(axes[1:], panels.items(), strict=True):
        plots.plot_curves(
            {f"expert {i + 1}": (LOGITS, weights[:, i]) for i in range(3)},
            x_label=label,
            y_label="expert weight",
            title=title,
            ax=ax,
        )
    figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=320)


if __name__ == "__main__":
    main()
