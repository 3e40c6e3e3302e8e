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
# # Experts for tokens: a small language model
#
# Which words does an expert of a language model see? In a Transformer, a mixture of
# experts replaces the feed-forward network (FFN) of a block. Each token is sent to a
# few experts, so that the model has more parameters at the same cost per token. In this
# notebook a small Transformer learns to write Python. We compare a dense FFN with three
# mixtures that do the same number of operations per token, and look at which tokens go
# where.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import functools
import io
import keyword
import pathlib
import re
import sysconfig
import tokenize

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from dselectk_keras import (
    DecideGates,
    DenseExperts,
    DSelectKGate,
    GateRecorder,
    ImportanceRegularizer,
    MoE,
    SwitchGate,
    TopKGate,
    plots,
)

WIDTH, HIDDEN, EXPERTS, LENGTH = 64, 128, 8, 48
EPOCHS, STEPS, BATCH_SIZE = 8, 22, 16
# quick: EPOCHS, STEPS = 2, 4
COLORS = plt.cm.Set2.colors  # One for each expert.

# %% [markdown]
# ## The data
#
# The text is source code of Python's own standard library. The vocabulary is its most
# frequent words and signs; all other words share one entry. Each example is a piece of
# random length. Id 0 is padding.

# %%
library = pathlib.Path(sysconfig.get_paths()["stdlib"])
MODULES = "argparse ast codecs datetime difflib doctest inspect ipaddress locale pdb"
MODULES += " pickle pydoc shutil smtplib statistics subprocess tarfile threading"
TEST = "zipfile turtle"


def words(modules):
    """The words and signs of some modules, without comments and strings."""
    found = []
    for name in modules.split():
        path = library / f"{name}.py"
        path = path if path.exists() else library / name / "__init__.py"
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.STRING:
                found.append('"text"')
            elif token.type == tokenize.NUMBER:
                found.append("0")
            elif token.type == tokenize.INDENT:
                found.append("<indent>")
            elif token.type == tokenize.DEDENT:
                found.append("<dedent>")
            elif token.type == tokenize.NEWLINE:
                found.append("<line>")
            elif token.string.strip() and token.type != tokenize.COMMENT:
                found.append(token.string)
    return found


train_words, test_words = words(MODULES), words(TEST)
names, counts = np.unique(train_words, return_counts=True)
VOCABULARY = ["<padding>", "<other>", *names[np.argsort(-counts, kind="stable")][:382]]
index = {word: i for i, word in enumerate(VOCABULARY)}
train_ids = np.array([index.get(word, 1) for word in train_words])
test_ids = np.array([index.get(word, 1) for word in test_words])
print(f"{len(train_ids):,} words, and {len(test_ids):,} of other modules for the test")


def batch_of(ids, count, seed):
    """Sequences of different lengths, padded, and the next words."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(len(ids) - LENGTH - 1, size=count)
    found = ids[starts[:, None] + np.arange(LENGTH + 1)]
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, size=count)
    found[np.arange(LENGTH + 1) > lengths[:, None]] = 0
    return found[:, :-1], found[:, 1:]


train = batch_of(train_ids, EPOCHS * STEPS * BATCH_SIZE, seed=0)
test = batch_of(test_ids, 128, seed=1)

# %% [markdown]
# ## The model
#
# There are two blocks of attention and an FFN. The FFN of the dense model has the width
# 128. The mixtures have eight experts. With Switch, a token goes to one expert of width
# 128; with Top-2 and DSelect-k, to two experts of width 64. So all models do the same
# number of operations per token, apart from the gate. (Until `DecideGates` has let
# DSelect-k decide, halfway, it uses more.)
#
# `MoE` sees inputs of the shape `(batch, length, features)`, and so it chooses experts
# for each token. `Embedding(mask_zero=True)` makes a mask, which all layers pass on:
# padding takes no capacity of an expert and has no part in the auxiliary losses.


# %%
def ffn(name, block):
    """The feed-forward network of a block."""
    if name == "dense":
        return keras.Sequential([layers.Dense(HIDDEN, "relu"), layers.Dense(WIDTH)])
    balance = ImportanceRegularizer(0.05, squared=True)
    k = 1 if name == "Switch" else 2
    gate = {
        "Switch": lambda: SwitchGate(weights_regularizer=balance, z_reg=1e-3),
        "Top-2": lambda: TopKGate(2, weights_regularizer=balance, z_reg=1e-3),
        "DSelect-k": lambda: DSelectKGate(
            2, weights_regularizer=balance, reduction="mean"
        ),
    }[name]()
    experts = DenseExperts(EXPERTS, [HIDDEN // k, WIDTH], ["relu", None])
    return MoE(experts, gate, per_example=True, name=f"moe_{block}")


def language_model(name):
    """A Transformer with two blocks."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(len(VOCABULARY), WIDTH, mask_zero=True)(ids)
    place = layers.Embedding(LENGTH, WIDTH, name="place")(ops.arange(LENGTH))
    x = layers.Add()([x, ops.zeros_like(x) + place])
    for block in range(2):
        h = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(4, WIDTH // 4)
        x = layers.Add()([x, attention(h, h, use_causal_mask=True)])
        h = layers.LayerNormalization(name=f"before_{block}")(x)
        x = layers.Add()([x, ffn(name, block)(h)])
    x = layers.LayerNormalization()(x)
    model = keras.Model(ids, layers.Dense(len(VOCABULARY))(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(2e-3), loss, metrics=[loss])
    return model


models, recorders, logs = {}, {}, {}
for name in ("dense", "Switch", "Top-2", "DSelect-k"):
    model = models[name] = language_model(name)
    callbacks = [DecideGates()] if name == "DSelect-k" else []
    if name != "dense":
        recorders[name] = GateRecorder(1, "epochs", probe=test[0][:32])
        callbacks.append(recorders[name])
    logs[name] = model.fit(
        *train,
        validation_data=test,
        batch_size=BATCH_SIZE,
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        callbacks=callbacks,
        verbose=0,
    ).history
    print(f"{name:10s}{model.count_params():9,} parameters")

# %% mystnb={"image": {"alt": "Losses of Switch, Top-2, DSelect-k and a dense network over eight epochs, close to each other in the end"}}
_, ax = plt.subplots(figsize=(8.4, 3.2), layout="constrained")
plots.plot_curves(
    {name: (np.arange(1, EPOCHS + 1), log["val_loss"]) for name, log in logs.items()},
    x_label="epoch",
    y_label="loss on other modules",
    log="",
    ax=ax,
)
plt.show()

# %% [markdown]
# Lower is better: it is the cross-entropy of the next word. The mixtures have more
# parameters than the dense model, for the same number of operations per token. At first
# they learn more slowly, because each expert sees only a part of the tokens, and then
# they come close. With so few steps and one seed, do not read much into the
# differences: train longer before you choose a gate.
#
# ## Are the experts used?
#
# `GateRecorder` records each layer on a batch of the test data. Padding does not count.


# %% mystnb={"image": {"alt": "The share of each of eight experts in the total weight over eight epochs, for Switch, Top-2 and DSelect-k"}}
def name_experts(figure):
    """Say below the panels which expert has which colour."""
    keys = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS]
    look = {"title": "expert", "ncols": EXPERTS, "frameon": False}
    figure.legend(keys, range(EXPERTS), loc="outside lower center", **look)


figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.2), sharey=True, layout="constrained")
for ax, (name, recorder) in zip(axes, recorders.items(), strict=True):
    record = recorder.history["moe_1"]
    ax.stackplot(
        recorder.history.steps / STEPS,
        record["weights"][:, 0].T / record["weights"][:, 0].sum(axis=-1),
        colors=COLORS,
        edgecolor="white",
        linewidth=0.8,
    )
    active = record["active"][[0, -1], 0]
    title = f"{name}\n{active[0]:.1f}, then {active[1]:.1f} per token"
    ax.set_title(title, fontsize=10)
    ax.set(xlabel="epoch", xlim=(0, EPOCHS), ylim=(0, 1))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("share of the total weight")
name_experts(figure)
plt.show()

# %% [markdown]
# Each band is an expert of the second block, and its height is its share of the weight.
# Bands of the same height mean a balanced load. The titles say how many experts a token
# uses at the beginning and at the end: DSelect-k begins with all eight.
#
# ## Which tokens go where?
#
# We sort the words into kinds, and count how often each kind goes to each expert.


# %% mystnb={"image": {"alt": "The experts that seven kinds of tokens go to, for Switch, Top-2 and DSelect-k"}}
KINDS = ("names", "keywords", "self", "numbers, text", "brackets", "signs", "layout")


def kind_of(word):
    """The kind of a word."""
    if word in {"<line>", "<indent>", "<dedent>"}:
        return "layout"
    if word in {"0", '"text"'}:
        return "numbers, text"
    if word == "self":
        return "self"
    if keyword.iskeyword(word):
        return "keywords"
    if re.fullmatch(r"\w+|<other>", word):
        return "names"
    return "brackets" if word in "()[]{}" else "signs"


@functools.cache
def chosen(name, block):
    """The expert with the largest weight, for each token of the test data."""
    model = models[name]
    moe = model.get_layer(f"moe_{block}")
    inside = keras.Model(model.input, model.get_layer(f"before_{block}").output)
    weights = moe.expert_weights(inside.predict(test[0], verbose=0))
    return ops.convert_to_numpy(weights).argmax(axis=-1)


kinds = np.array([KINDS.index(kind_of(word)) for word in VOCABULARY])[test[0]]
kinds = np.where(test[0] == 0, -1, kinds)
figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.6), sharey=True, layout="constrained")
for ax, name in zip(axes, recorders, strict=True):
    table = np.array(
        [
            np.bincount(chosen(name, 1)[kinds == kind], minlength=EXPERTS)
            for kind in range(len(KINDS))
        ]
    )
    table = table / table.sum(axis=1, keepdims=True)
    table = table[:, np.argsort(table.argmax(axis=0), kind="stable")]
    image = ax.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    ax.set(title=name, xlabel="expert", xticks=range(EXPERTS))
    ax.set_yticks(range(len(KINDS)), KINDS)
    ax.spines[:].set_visible(False)
figure.colorbar(image, ax=axes, label="share of the kind")
plt.show()

# %% [markdown]
# A row is a kind of word, and its colours say to which experts it goes. The gates sort
# the words by what they are, although nobody told them: the same kind of word mostly
# goes to one or two experts. (The experts of each panel are in the order of the kinds
# that they get most.) Here is one of the test sequences.


# %% mystnb={"image": {"alt": "Two lines of code, each token in the colour of its largest expert, for Switch, Top-2 and DSelect-k"}}
def show(ax, name, row, columns=84, lines=2):
    """Draw the words of a sequence on the colours of their experts."""
    x, y = 0, 0
    for word_id, expert in zip(test[0][row], chosen(name, 1)[row], strict=True):
        word = VOCABULARY[word_id].replace("<other>", "other").strip("<>")
        if x + len(word) > columns:
            x, y = 0, y + 1
        if y == lines or word_id == 0:
            break
        box = plt.Rectangle(
            (x - 0.4, y - 0.42), len(word) + 0.6, 0.84, color=COLORS[expert], lw=0
        )
        ax.add_patch(box)
        middle = x + len(word) / 2 - 0.1
        ax.text(middle, y, word, ha="center", va="center", family="monospace", size=8)
        x += len(word) + 1
    ax.set(xlim=(-1, columns), ylim=(lines - 0.4, -0.6))
    ax.set_title(name, loc="left")
    ax.axis("off")


figure, axes = plt.subplots(3, 1, figsize=(8.4, 3.1), layout="constrained")
for ax, name in zip(axes, recorders, strict=True):
    show(ax, name, row=int((test[0] > 1).sum(axis=1).argmax()))
name_experts(figure)
plt.show()

# %% [markdown]
# The colour of a word is the expert with the largest weight for it. The experts of the
# three models have nothing in common but their numbers. Compare words within one model:
# brackets, names and ends of lines mostly have a colour each, wherever they stand.
#
# ## Next steps
#
# - **Capacity:** `MoE(..., dispatch=1.25)` computes each expert only for the tokens
#   that chose it, and gives it at most 1.25 times an even share of them. With wide
#   experts and a gate that is sparse from the first step, `dispatch="auto"`, the
#   default, computes only the chosen experts too, and drops none.
# - **One choice per sequence:** pass `routing_inputs` of the shape `(batch, features)`,
#   or a `routing_network` that pools.
# - **Wall time:** [Sparse experts in a decoder](../decoder.md) has times of a block.
