"""Draw gate_weights.png: the weights of a Top-k and of a DSelect-k gate over training.

    python docs/images/gate_weights.py

The data are the first problem of notebooks/02_gates_over_training.py.
"""

# ruff: noqa: INP001, TID253

import pathlib

import keras
import matplotlib.pyplot as plt

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    GateRecorder,
    Ramp,
    TopKGate,
    datasets,
    plots,
)


def train(gate, data, epochs=20, batch_size=250):
    """The weights over training of a gate on frozen experts and a frozen unit."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((10,))
    experts = DenseExperts(16, [4], trainable=False)
    unit = keras.layers.Dense(1, "sigmoid", trainable=False)
    model = keras.Model(inputs, unit(gate(experts(inputs))))
    experts.set_weights([data.info["kernels"], data.info["biases"]])
    unit.set_weights([data.info["logistic_kernel"], data.info["logistic_bias"]])
    steps = epochs * len(data.train.x) // batch_size
    # The rate falls, so that the weights come to rest.
    rate = keras.optimizers.schedules.CosineDecay(0.02, steps)
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy")
    recorder = GateRecorder(every=2)
    model.fit(
        *data.train,
        epochs=epochs,
        batch_size=batch_size,
        callbacks=[recorder],
        verbose=0,
    )
    history = recorder.history
    return history.steps, history[gate.name]["weights"][:, 0]


def main():
    """Train both gates and draw them side by side."""
    data = datasets.expert_recovery(num_train=5_000)
    gates = {
        "Top-k": TopKGate(4),
        "DSelect-k": DSelectKGate(4, entropy_reg=Ramp(1e-5, 1e-1, end=400)),
    }
    figure, axes = plt.subplots(
        1, 2, figsize=(8.4, 2.6), sharex=True, sharey=True, layout="constrained"
    )
    for ax, (name, gate) in zip(axes, gates.items(), strict=True):
        plots.plot_gate_weights(
            *train(gate, data),
            highlight=data.info["true_experts"],
            title=name,
            ax=ax,
        )
        ax.label_outer()
    figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=320)


if __name__ == "__main__":
    main()
