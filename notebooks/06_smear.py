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
# # Merge experts: SMEAR
#
# Can a mixture evaluate a single expert, and still learn its router by an exact
# gradient? A sparse mixture sends each example to one expert. This choice is discrete
# and has no gradient, and gradient estimators for it are noisy.
# [SMEAR](https://arxiv.org/abs/2306.03745) does not choose. It *merges* the parameters
# of the experts, weighted by the router, into one expert per example, and evaluates
# that expert:
#
# $$
# y = f\Bigl(u, \sum_{i=1}^{n} R_i(v) \, \theta_i\Bigr), \qquad
# R(v) = \mathrm{softmax}(W v)
# $$
#
# The router is fully differentiable, and still only one expert is evaluated instead of
# $n$. This notebook compares SMEAR with routers that choose, on generated images in six
# styles. It measures which style uses which expert, the accuracy, and the wall time.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import time

import keras
import matplotlib.pyplot as plt
import numpy as np

import dselectk_keras as dk

SIZE, WIDTH, EXPERTS, UNITS = 16, 32, 6, 8
NUM_TRAIN, NUM_TEST, EPOCHS, SEEDS, TURNS = 4_800, 2_400, 12, 2, 15
# quick: NUM_TRAIN, NUM_TEST, EPOCHS, SEEDS, TURNS = 960, 480, 2, 1, 2


# %% [markdown]
# ## Eight shapes in six styles
#
# The task is to classify the shape. The styles, called *domains*, form pairs that look
# alike: filled and faint; outlines and dotted outlines; dark shapes on white and on
# stripes.


# %% mystnb={"image": {"alt": "Pictures of eight symbols in six domains: filled, faint, outline, dotted, dark and striped"}}
def shapes(count, rng):
    """Pictures of shapes with random place and size, and which they are."""
    rows, columns = np.mgrid[:SIZE, :SIZE] + 0.5
    y = rows - rng.uniform(6, 10, (count, 1, 1))
    x = columns - rng.uniform(6, 10, (count, 1, 1))
    r = rng.uniform(3.5, 5.5, (count, 1, 1))
    radius, side, sum_of_both = (
        np.hypot(x, y),
        np.maximum(abs(x), abs(y)),
        abs(x) + abs(y),
    )
    kinds = [
        radius < r,
        (radius < r) & (radius > 0.55 * r),
        side < 0.85 * r,
        sum_of_both < 1.2 * r,
        (np.minimum(abs(x), abs(y)) < 0.3 * r) & (side < r),
        (abs(abs(x) - abs(y)) < 0.4 * r) & (side < r),
        (side < r) & (abs(y) > 0.4 * r),
        (side < r) & (abs(x) > 0.4 * r),
    ]
    labels = rng.integers(len(kinds), size=count)
    pictures = np.stack(kinds)[labels, np.arange(count)]
    return pictures.astype("float32"), labels[:, None]


def outline(pictures):
    down, right = np.gradient(pictures, axis=(1, 2))
    return (np.hypot(down, right) > 0).astype("float32")


def stripes(pictures, rng):
    steps = np.arange(SIZE)[:, None] + np.arange(SIZE)
    phase = rng.integers(6, size=(len(pictures), 1, 1))
    return 0.6 * ((steps + phase) % 6 < 3)


def dotted(pictures, rng):
    return outline(pictures) * (rng.random(pictures.shape) < 0.75)


def all_styles(p, rng):
    """The same pictures in each of the styles."""
    return {
        "filled": p,
        "faint": 0.5 * p,
        "outline": outline(p),
        "dotted": dotted(p, rng),
        "dark": 1 - p,
        "striped": 1 - np.maximum(p, stripes(p, rng)),
    }


DOMAINS = "filled", "faint", "outline", "dotted", "dark", "striped"


def in_styles(pictures, labels, rng):
    """Each picture in one style, with a little noise; its domain; its label."""
    domains = np.arange(len(pictures)) % len(DOMAINS)
    styled = np.stack(list(all_styles(pictures, rng).values()))
    styled = styled[domains, np.arange(len(pictures))]
    styled += rng.normal(scale=0.1, size=styled.shape)
    return styled[..., None].astype("float32"), domains[:, None], labels


def drawn(count, seed):
    rng = np.random.default_rng(seed)
    return in_styles(*shapes(count, rng), rng)


train, test = drawn(NUM_TRAIN, 1), drawn(NUM_TEST, 2)

figure, axes = plt.subplots(6, 8, figsize=(8.4, 6.3), layout="constrained")
for row, domain in enumerate(DOMAINS):
    for column, ax in enumerate(axes[row]):
        mine = (test[1][:, 0] == row) & (test[2][:, 0] == column)
        ax.imshow(test[0][mine][0, ..., 0], cmap="gray", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(domain, rotation=0, ha="right", va="center")
plt.show()

# %% [markdown]
# A row is a style, and a column is a shape, which is to be named. Place and size vary.
#
# ## A frozen network with adapters
#
# As in the paper, the network is trained first and then frozen. Our network learns the
# shapes in the first style only, and its accuracy is low in the other styles.


# %%
def network():
    """Convolutions; the frozen beginning and end of all models below."""
    beginning = keras.Sequential([keras.Input((SIZE, SIZE, 1))])
    for width in (16, WIDTH):
        beginning.add(keras.layers.Conv2D(width, 3, 2, "same"))
        beginning.add(keras.layers.BatchNormalization(momentum=0.9))
        beginning.add(keras.layers.ReLU())
    end = keras.Sequential(
        [
            keras.Input((SIZE // 4, SIZE // 4, WIDTH)),
            keras.layers.Conv2D(WIDTH, 3, padding="same", activation="relu"),
        ]
    )
    return beginning, end


def by_domain(model, seen):
    """The accuracy on the test pictures of each domain."""
    right = np.argmax(model(seen), axis=-1) == test[2][:, 0]
    return np.array([right[test[1][:, 0] == d].mean() for d in range(len(DOMAINS))])


keras.utils.set_random_seed(0)
beginning, end = network()
first = keras.Sequential([beginning, end])
first.add(keras.layers.GlobalAveragePooling2D())
first.add(keras.layers.Dense(8, "softmax"))
first.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
filled, labels = shapes(6_000, np.random.default_rng(0))
# quick: filled, labels = filled[:600], labels[:600]
filled += np.random.default_rng(0).normal(scale=0.1, size=filled.shape)
first.fit(filled[..., None], labels, epochs=6, batch_size=64, verbose=0)
for domain, accuracy in zip(DOMAINS, by_domain(first, test[0]), strict=True):
    print(f"{domain:10s} {accuracy:.0%}")

frozen_end = end.get_weights()
features = {
    "train": np.array(beginning(train[0])),
    "test": np.array(beginning(test[0])),
}

# %% [markdown]
# Only the adapters are trained: narrow layers that add something to the features before
# the frozen convolution, and again after it. Each of these two places has six adapters
# and a router. SMEAR's router uses the mean over all positions, so that each image gets
# one merged adapter. The baselines are:
#
# - *switch* chooses the most probable adapter, and scales its output by the
#   probability;
# - *ST-Gumbel* samples one adapter, and uses the gradient of a relaxation;
# - *REINFORCE* samples one adapter, and learns from a reward;
# - *tag* is given the domain, and has one adapter per domain;
# - *single* has one adapter for all images;
# - *ensemble* evaluates all six adapters and mixes their outputs.


# %%
def routed(router, num_experts=EXPERTS):
    """A layer of adapters with a router."""
    bank = dk.DenseExperts(
        num_experts,
        [UNITS, WIDTH],
        ["swish", None],
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
    )
    if router == "single":
        return dk.MoE(dk.baselines.single_expert(bank), dk.SoftmaxGate())
    if router == "tag":
        return dk.MoE(bank, dk.baselines.TagGate(), per_example=True)
    if router == "SMEAR":
        gate = dk.SoftmaxGate(normalize=True, expert_dropout=0.1)
        return dk.SmearExperts(bank, gate)
    gates = {
        "switch": dk.SwitchGate(normalize=True, expert_dropout=0.1),
        "ST-Gumbel": dk.baselines.STGumbelGate(
            dk.Ramp(10.0, 0.5, end=300), normalize=True
        ),
        "REINFORCE": dk.baselines.ReinforceGate(normalize=True),
        "ensemble": dk.SoftmaxGate(normalize=True),
    }
    mean = keras.layers.GlobalAveragePooling1D()
    return dk.MoE(bank, gates[router], per_example=True, routing_network=mean)


def build(router):
    """Adapters, a frozen convolution, adapters, a classifier."""
    _, frozen = network()
    frozen.set_weights(frozen_end)
    frozen.trainable = False
    inputs = keras.Input((SIZE // 4, SIZE // 4, WIDTH), name="features")
    tags = keras.Input((1,), dtype="int32", name="domain")

    def adapt(x):
        u = keras.layers.BatchNormalization(momentum=0.9)(x)
        u = keras.layers.Reshape((-1, WIDTH))(u)
        layer = routed(router)
        u = layer(u, tags) if router == "tag" else layer(u)
        return keras.layers.Add()([x, keras.layers.Reshape(x.shape[1:])(u)])

    x = keras.layers.GlobalAveragePooling2D()(adapt(frozen(adapt(inputs))))
    outputs = keras.layers.Dense(8, "softmax")(x)
    both = {"features": inputs, "domain": tags} if router == "tag" else inputs
    model = dk.baselines.RoutedModel(both, outputs)  # It tells REINFORCE the reward.
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    return model


def given(router, part, pictures):
    """What a model sees."""
    if router == "tag":
        return {"features": features[part], "domain": pictures[1]}
    return features[part]


def fit(router, seed):
    keras.utils.set_random_seed(seed)
    model = build(router)
    data = dk.batches.Batches((given(router, "train", train), train[2]), 64, seed)
    model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0)
    return model


ROUTERS = "single", "tag", "SMEAR", "switch", "ST-Gumbel", "REINFORCE", "ensemble"
models = {router: [fit(router, seed) for seed in range(SEEDS)] for router in ROUTERS}
accuracies = {
    router: np.array(
        [by_domain(model, given(router, "test", test)) for model in by_seed]
    )
    for router, by_seed in models.items()
}

print(f"{'accuracy (%)':14s}{'mean':>8s}" + "".join(f"{d:>9s}" for d in DOMAINS))
for router, found in accuracies.items():
    each = "".join(f"{100 * value:9.1f}" for value in found.mean(axis=0))
    print(f"{router:14s}{100 * found.mean():8.1f}{each}")

# %% [markdown]
# With only two seeds, differences of one or two points may be chance. These runs
# therefore do not rank SMEAR, the three routers that choose, and the ensemble, which
# evaluates all adapters. All of them are better than the single adapter. None is as
# good as tag routing, which is given the domain. In the paper SMEAR is, after much
# longer training.

# %% [markdown]
# ## Which domain uses which adapter?
#
# We average the router's weights over the test images of each style.


# %% mystnb={"image": {"alt": "Mean weights of six adapters in each domain at two places, for SMEAR, switch and REINFORCE: SMEAR's are the most even"}}
def routing(model):
    """The mean weights of each domain, in both places."""
    kinds = dk.SmearExperts, dk.MoE
    layers = [layer for layer in model.layers if isinstance(layer, kinds)]
    look = keras.Model(model.input, [layer.input for layer in layers])
    domains = test[1][:, 0]
    found = []
    for layer, seen in zip(layers, look(features["test"]), strict=True):
        weights = np.array(layer.expert_weights(seen))
        means = np.array([weights[domains == d].mean(axis=0) for d in range(6)])
        # The weights of switch do not sum to one.
        found.append(means / means.sum(axis=1, keepdims=True))
    return np.array(found)


figure, axes = plt.subplots(
    2, 3, figsize=(8.4, 5), sharex=True, sharey=True, layout="constrained"
)
for column, router in enumerate(["SMEAR", "switch", "REINFORCE"]):
    for row, weights in enumerate(routing(models[router][0])):
        ax = axes[row, column]
        mesh = ax.imshow(weights, cmap="YlGnBu", vmin=0, vmax=1)
        ax.set_title(f"{router}, place {row + 1}", fontsize=9, loc="left")
        ax.hlines([1.5, 3.5], -0.5, 5.5, color="white")
        ax.set_yticks(range(len(DOMAINS)), DOMAINS, fontsize=8)
        ax.set_xticks(range(EXPERTS))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
for ax in axes[-1]:
    ax.set_xlabel("adapter")
figure.colorbar(mesh, ax=axes, fraction=0.03, label="mean weight")
plt.show()

# %% [markdown]
# A row is a style, and its colours say which adapters it uses; styles that look alike
# are next to each other. These routers were not given the domains. Filled and faint
# shapes share adapters, and so do the two kinds of outlines. Dark and striped shapes
# look less alike to a network, and use different adapters in the first place. SMEAR
# spreads each domain over several adapters, because it uses their weighted mean. The
# weights of the routers that choose are more concentrated. The order of the adapters
# has no meaning.

# %% [markdown]
# ## Overhead and wall time
#
# An adapter of width $m$ on $L$ positions of $d$ features takes $4 L d m$ operations.
# All $n$ adapters take $4 n L d m$. Merging them takes $4 n d m$, once per example, for
# any number of positions:
#
# $$
# \underbrace{4 L d m}_{\text{one adapter}} + \underbrace{4 n d m}_{\text{merge}}
# \qquad\text{instead of}\qquad 4 n L d m
# $$
#
# Merging is therefore efficient if an example is an image or a sequence: if $L$ is much
# larger than $n$, the overhead is small. (For a single vector, $L = 1$, merging costs
# more than evaluating all experts.) The table shows the wall time of one layer with 8
# adapters of width 16 on 128 features, for a batch of 32, as a multiple of the time of
# a single adapter.


# %%
def seconds(layer, x):
    """The median time of a compiled call."""
    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, layer(inputs))
    model.predict_on_batch(x)
    taken = []
    for _ in range(TURNS):
        began = time.perf_counter()
        model.predict_on_batch(x)
        taken.append(time.perf_counter() - began)
    return np.median(taken)


def bank():
    return dk.DenseExperts(8, [16, 128], ["swish", None])


mean = keras.layers.GlobalAveragePooling1D
lengths = 16, 64, 256, 1024
# quick: lengths = 16, 64
print("positions   counted: merged, all   measured: merged, all")
for positions in lengths:
    x = np.random.default_rng(0).normal(size=(32, positions, 128)).astype("float32")
    one = seconds(dk.MoE(dk.baselines.single_expert(bank()), dk.SoftmaxGate()), x)
    merged = seconds(dk.SmearExperts(bank(), dk.SoftmaxGate()), x) / one
    every = dk.MoE(bank(), dk.SoftmaxGate(), per_example=True, routing_network=mean())
    every = seconds(every, x) / one
    counted = 1 + 8 / positions
    print(f"{positions:9d}{counted:18.2f}{8:5d}{merged:20.1f}{every:5.1f}")

# %% [markdown]
# Merging takes about as long as a single adapter. Evaluating all adapters takes several
# times as long. (A value below 1 shows how much these measurements vary.)
#
# ## Use real images
#
# A separate experiment runs all routers of the paper on Fashion-MNIST in six styles,
# with a frozen network of the shape of ResNet18. It reads the official files from a
# folder, or downloads them:
#
# ```bash
# python scripts/reproduce.py smear-table3-small smear-fig3 --backend jax --together 5
# ```
#
# To use real images of garments in this notebook, which Keras downloads, set
# `USE_REAL`, and run the notebook again from the frozen network on. (There are then ten
# classes.) `scripts/research/papers/data/domainnet.py` reads the images of the paper,
# with the domain as an input.


# %%
def garments(images, labels, seed):
    """Real pictures, of 16 x 16 pixels, in the same styles."""
    pictures = np.pad(images / 255, ((0, 0), (2, 2), (2, 2)))
    pictures = pictures.reshape(-1, SIZE, 2, SIZE, 2).mean(axis=(2, 4))
    return in_styles(pictures, labels[:, None], np.random.default_rng(seed))


USE_REAL = False
if USE_REAL:
    real, new = keras.datasets.fashion_mnist.load_data()
    train = garments(*(array[:NUM_TRAIN] for array in real), seed=1)
    test = garments(*new, seed=2)
