# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Do the experts specialize?
#
# A mixture of experts may classify well although its experts divide the work badly: one
# expert does most of it, or every expert does a little of everything. [Krishnamurthy et
# al.](https://arxiv.org/abs/2302.14703) measure this, and propose training methods that
# make experts specialize. This notebook applies their measures and methods to data in
# the plane, which can be plotted.
#
# **The data.** There are ten classes of points in five families that are far apart. The
# two classes of a family are the two halves of a ring. There are five experts, so one
# expert per family would be a good division of the work.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %% mystnb={"image": {"alt": "Points of ten classes in the plane: five rings, each with one half for each of two classes"}}
import keras
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import dselectk_keras as dk

EXPERTS, FAMILIES, SEEDS, EPOCHS = 5, 5, 3, 40
# quick: SEEDS, EPOCHS = 1, 4
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]


def rings(count, seed):
    """Points of ten classes: two halves of a ring in each of five places."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2 * FAMILIES, size=count)
    family, upper = labels // 2, labels % 2 == 0
    angle = np.pi * rng.uniform(size=count)
    y = (np.sin(angle) + 0.2) * np.where(upper, 1, -1)
    points = np.stack([np.cos(angle), y], axis=1)
    points += 0.1 * rng.normal(size=(count, 2))
    turn = 2 * np.pi * family / FAMILIES
    cos, sin = np.cos(turn), np.sin(turn)
    turned = [cos * points[:, 0] - sin * points[:, 1]]
    turned += [sin * points[:, 0] + cos * points[:, 1]]
    centers = 3.0 * np.stack([cos, sin])
    return (np.stack(turned) + centers).T.astype("float32"), labels


train_x, train_y = rings(3000, seed=0)
test_x, test_y = rings(3000, seed=1)

plt.figure(figsize=(5, 5), layout="constrained")
plt.scatter(*train_x.T, c=train_y, s=3, cmap="Paired", vmax=11)
for label in range(2 * FAMILIES):
    inside = train_y // 2 == label // 2, train_y == label
    middle = np.mean([train_x[each].mean(axis=0) for each in inside], axis=0)
    plt.text(*middle, f"class {label}", ha="center", va="center", fontsize=8)
plt.axis("equal")
plt.title("ten classes in five families", loc="left")
plt.show()

# %% [markdown]
# Each ring is a family, and the two shades of its colour are its two classes.
#
# ## Use MNIST instead
#
# Everything below also works on MNIST digits, which Keras downloads. (The plots of the
# plane are then skipped.)

# %%
USE_MNIST = False
if USE_MNIST:
    digits, (test_x, test_y) = keras.datasets.mnist.load_data()
    train_x, train_y = (array[:10_000] for array in digits)
    train_x, test_x = (x.reshape(len(x), -1) / 255 for x in (train_x, test_x))

# %% [markdown]
# ## Training methods
#
# The original mixture has a softmax over all experts. Two auxiliary losses can be
# added: `ImportanceRegularizer` balances the load of the experts (squared here, as in
# the authors' code; in the paper it is not), and `SampleSimilarityRegularizer` sends
# nearby points to the same expert and distant points to different experts. An attentive
# gate uses the hidden outputs of the experts before it chooses among them.


# %%
def mixture(gate):
    """Five small experts, and a gate with a network of its own."""
    inputs = keras.Input(train_x.shape[1:])
    layer = (
        dk.baselines.AttentiveMoE
        if isinstance(gate, dk.baselines.AttentiveGate)
        else dk.MoE
    )
    moe = layer(
        dk.DenseExperts(EXPERTS, [12, 10], ["relu", "softmax"]),
        gate,
        per_example=True,
        routing_network=keras.layers.Dense(32, "relu"),
        name="moe",
    )
    return keras.Model(inputs, moe(inputs))


def fit(model):
    """Train a classifier."""
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(train_x, train_y, batch_size=100, epochs=EPOCHS, verbose=0)
    return model


def original(penalty=None):
    return dk.SoftmaxGate(use_bias=True, weights_regularizer=penalty)


WAYS = {
    "original": original,
    "importance": lambda: original(dk.ImportanceRegularizer(0.4, squared=True)),
    "similarity": lambda: original(dk.SampleSimilarityRegularizer(3.0, 3.0)),
    "attentive": lambda: dk.baselines.AttentiveGate(units=8),
}

models = {}
for name, make_gate in WAYS.items():
    models[name] = []
    for seed in range(SEEDS):
        keras.utils.set_random_seed(seed)
        models[name].append(fit(mixture(make_gate())))

# %% [markdown]
# An attentive gate has to evaluate all experts before it chooses. `distill` gives the
# trained experts, now frozen, to a student with an ordinary gate, which does not have
# this overhead.

# %%
models["distilled"] = []
for seed, teacher in enumerate(models["attentive"]):
    keras.utils.set_random_seed(seed)
    models["distilled"].append(fit(dk.distill(teacher, original())))

# %% [markdown]
# ## Measures
#
# - $H_s$, the entropy of the weights of one point, averaged over the points: low if the
#   gate is confident.
# - $H_u$, the entropy of the mean weights: high if the load is balanced over all
#   experts, at most $\log_2 5 = 2.32$ bits.
# - $I(E; Y)$, the mutual information of the chosen expert and the class: high if the
#   chosen expert depends strongly on the class.


# %%
def weights(model, points=None):
    points = test_x if points is None else points
    return keras.ops.convert_to_numpy(model.get_layer("moe").expert_weights(points))


def result(metric, *inputs):
    metric.update_state(*inputs)
    return keras.ops.convert_to_numpy(metric.result())


def measures(model):
    found = weights(model)
    predicted = keras.ops.convert_to_numpy(model(test_x)).argmax(axis=-1)
    return [
        np.mean(predicted != test_y),
        result(dk.metrics.SampleEntropy(), found),
        result(dk.metrics.UtilizationEntropy(EXPERTS), found),
        result(dk.metrics.MutualInformation(EXPERTS, 10), test_y, found),
    ]


numbers = {
    name: np.array([measures(model) for model in runs]) for name, runs in models.items()
}
print(f"mean of {SEEDS} runs{'error':>12s}{'H_s':>8s}{'H_u':>8s}{'I(E;Y)':>8s}")
for name, values in numbers.items():
    error, sample, usage, information = values.mean(axis=0)
    print(f"{name:14s}{error:12.3f}{sample:8.2f}{usage:8.2f}{information:8.2f}")

# %% [markdown]
# All methods classify nearly without errors, but they divide the work in very different
# ways. The original mixture uses only three or four experts. The importance loss makes
# it use all five, and the similarity loss finds the five families. The attentive gate
# uses more experts than the original gate without any penalty, and its student keeps
# this.

# %% [markdown]
# ## Which expert gets which points?


# %% mystnb={"image": {"alt": "Regions of the plane by the most probable expert of five gates, over the five rings of points"}}
def draw_planes():
    side = np.linspace(-5, 5, 200, dtype="float32")
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, 5, figsize=(10, 2.6), layout="constrained")
    for ax, (name, runs) in zip(axes, models.items(), strict=True):
        chosen = weights(runs[0], grid).argmax(axis=-1).reshape(200, 200)
        colors = ListedColormap(COLORS)
        mesh = ax.pcolormesh(
            side, side, chosen, cmap=colors, vmin=-0.5, vmax=4.5, alpha=0.45
        )
        ax.scatter(*test_x[:1000].T, s=0.6, color="black")
        ax.set(title=name, xticks=[], yticks=[], aspect="equal")
    figure.colorbar(mesh, ax=axes, label="expert", ticks=range(EXPERTS), shrink=0.8)


if not USE_MNIST:
    draw_planes()
    plt.show()

# %% [markdown]
# Each panel is the plane, for the first run of a method. The black points are the data,
# and the colour is the expert with the largest weight there. An expert that is good at
# one family has one ring of its own. Where a colour covers two rings, an expert does
# the work of two, and another one is idle.
#
# Selection tables show the same for any data, also where there is no plane to draw.

# %% mystnb={"image": {"alt": "The share of each of ten classes at each of five experts, for five gates"}}
figure, axes = plt.subplots(1, 5, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, (name, runs) in zip(axes, models.items(), strict=True):
    table = dk.metrics.SelectionTable(EXPERTS, 10, normalize="classes")
    shares = result(table, test_y, weights(runs[0]))
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=name, xlabel="expert", xticks=range(EXPERTS), yticks=range(10))
axes[0].set_ylabel("class")
figure.colorbar(image, ax=axes, label="share of the class", shrink=0.8)
plt.show()

# %% [markdown]
# A row is a class, and its colours say to which experts its points go. Classes 0 and 1
# are the first family, 2 and 3 the second. Two dark cells below each other, in a column
# of their own, are a family with its own expert.
#
# On real images the results are less clear. The reproductions of the paper's Tables 2
# and 7 in the documentation have all nine methods on MNIST and Fashion-MNIST.
