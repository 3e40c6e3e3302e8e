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
# # Task correlation: when sharing hurts, and how gates help
#
# When do two tasks that share a network help each other, and when do they interfere? It
# depends on how related they are. The [MMoE
# paper](https://doi.org/10.1145/3219819.3220007) shows this on synthetic data with a
# given task correlation (Figures 2 to 5). This notebook reproduces these figures at a
# small scale, with two correlations, three models and three runs of each. Then it looks
# at what the gates have learned.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import functools

import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import (
    DenseExperts,
    Task,
    build_multitask_model,
    datasets,
    plots,
    replicate,
)

CORRELATIONS = 0.5, 1.0
RUNS, EPOCHS, BATCH_SIZE, NUM_TRAIN = 3, 12, 250, 40_000
# quick: RUNS, EPOCHS, NUM_TRAIN = 2, 3, 4_000
STEPS = NUM_TRAIN // BATCH_SIZE * np.arange(1, EPOCHS + 1)

# %% [markdown]
# ## How related are two tasks?
#
# The labels of task $k$ are a function of $w_k^\top x$: a linear part, five sines, and
# a little noise. The function is the same for both tasks; only the direction $w_k$
# differs. The cosine $p$ of the angle between $w_1$ and $w_2$ sets how related the
# tasks are. At $p = 1$ they differ only in the noise. At $p = 0$ their directions have
# nothing in common.
#
# The correlation of non-linear labels cannot be set directly. **Figure 2** shows that
# it increases with $p$. Without the sines (`m=0`) it equals $p$.


# %% mystnb={"image": {"alt": "The correlation of the labels grows with the cosine of the weight vectors, in a line without sines, and below it with sines"}}
def label_correlation(p, m):
    data = datasets.correlated_tasks(p, m=m, num_train=1)
    return data.info["label_correlation"]


cosines = np.linspace(0, 1, 21)
plots.plot_curves(
    {
        name: (cosines, [label_correlation(p, m) for p in cosines])
        for name, m in {"linear and sines": 5, "linear": 0}.items()
    },
    x_label="cosine of the weight vectors, p",
    y_label="correlation of the labels",
)
plt.show()

# %% [markdown]
# The sines of high frequency lose their correlation even at a small angle. Labels of
# rather similar tasks are therefore only weakly correlated.
#
# ## Shared bottom
#
# The simplest way to share is one hidden layer for both tasks and a small tower for
# each. `replicate` trains one run per seed and stores what `fit` reports. The figure
# shows the mean squared error on 5,000 held-out examples, averaged over the tasks. Of
# this error, 0.01 is noise.


# %% mystnb={"image": {"alt": "The loss of a shared bottom over 2,000 steps is lower for equal tasks than for tasks with cosine 0.5"}}
MODELS = {  # Name, number of experts, their units.
    "Shared-Bottom": ("shared_bottom", 1, 113),
    "OMoE": ("omoe", 8, 16),
    "MMoE": ("mmoe", 8, 16),
}


def build(name, _seed):
    architecture, num_experts, units = MODELS[name]
    model = build_multitask_model(
        inputs=100,
        tasks=[Task("task_1", tower=(8,)), Task("task_2", tower=(8,))],
        architecture=architecture,
        experts=DenseExperts(num_experts, [units]),
        per_example=True,
    )
    model.compile(keras.optimizers.Adam(0.01))
    return model


def train(name):
    """The runs of a model, by correlation."""
    return {
        p: replicate(
            functools.partial(build, name),
            data.train,
            validation_data=data.validation,
            seeds=range(RUNS),
            epochs=EPOCHS,
            batch_size=BATCH_SIZE,
            verbose=0,
        )
        for p, data in problems.items()
    }


def losses(runs):
    """An array (epochs, runs)."""
    table = runs.table.pivot(index="epoch", columns="copy", values="val_loss")
    return table.to_numpy() / 2  # `val_loss` is the sum over both tasks.


def draw(by_correlation, **options):
    """The mean over the runs, and its standard error."""
    found = {f"p = {p:g}": losses(runs) for p, runs in by_correlation.items()}
    return plots.plot_curves(
        {name: (STEPS, values.mean(axis=1)) for name, values in found.items()},
        errors={
            name: values.std(axis=1, ddof=1) / np.sqrt(RUNS)
            for name, values in found.items()
        },
        x_label="training steps",
        log="y",
        **options,
    )


problems = {
    p: datasets.correlated_tasks(p, num_train=NUM_TRAIN, num_validation=5_000)
    for p in CORRELATIONS
}
trained = {"Shared-Bottom": train("Shared-Bottom")}
draw(trained["Shared-Bottom"], y_label="loss on held-out examples")
plt.show()

# %% [markdown]
# **Figure 3**, at a small scale: the same network, trained in the same way, has a
# larger error if the tasks are less related. It must learn two directions instead of
# one, in a layer that both tasks change. (The layer has 113 units, as in Figure 4.
# That of the paper's Figure 3 has 16.)
#
# ## Experts and gates
#
# Now the shared layer is split into eight experts of 16 units, with about the same
# number of parameters in total. A gate weights the experts for each example. **OMoE**
# has one gate for both tasks; **MMoE** has one gate per task. **Figure 4** compares the
# three models.

# %% mystnb={"image": {"alt": "Losses of Shared-Bottom, OMoE and MMoE over 2,000 steps: the two correlations are closest for MMoE"}}
for name in ("OMoE", "MMoE"):
    trained[name] = train(name)

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.7), sharey=True, layout="constrained")
for ax, (name, by_correlation) in zip(axes, trained.items(), strict=True):
    draw(by_correlation, title=name, ax=ax)
axes[0].set_ylabel("loss on held-out examples", fontsize=8)
plt.show()

# %% [markdown]
# If the tasks are identical, one gate does about as well as two. If they are not, OMoE
# needs far longer before its loss falls: its only gate has to choose experts for two
# tasks that need different ones. With one gate per task the curves are closer together.
# This is the point of the paper: MMoE does not need to know how related the tasks are.
#
# ## Run by run
#
# Mean values hide how reliable a model is. **Figure 5** of the paper has histograms of
# the final losses of 200 runs. Here each of our runs is a dot, shown with the mean.

# %% mystnb={"image": {"alt": "Final losses of three runs each: MMoE has the lowest mean at both correlations, clearly so at 0.5"}}
figure, axes = plt.subplots(1, 2, figsize=(8.4, 1.7), sharex=True, layout="constrained")
for ax, p in zip(axes, CORRELATIONS, strict=True):
    final = {name: losses(runs[p])[-1] for name, runs in trained.items()}
    plots.plot_runs(
        final, label="loss at the end", title=f"p = {p:g}", highlight="MMoE", ax=ax
    )
plt.show()

# %% [markdown]
# Each dot is a run, the line is their mean, and the grey bar its standard error. At p =
# 0.5 all runs of MMoE are better than those of the shared bottom, and one run of OMoE
# is as good. At p = 1 the three models overlap, and three runs do not rank them.
#
# ## What do the gates use?
#
# A gate is a softmax of $W x$. Its matrix shows which directions of $x$ the gate uses.
# The direction that matters for task $k$ is $w_k$. The table shows the share of the
# matrix along each direction. (The part of the matrix that is the same for all experts
# has no effect, and is subtracted first.)


# %%
def shares(model, data):
    """For each gate, the shares along the directions of both tasks."""
    gate = model.get_layer("mmoe").gate
    kernel = np.reshape(gate.get_weights()[0], (100, -1, 8))
    kernel -= kernel.mean(axis=-1, keepdims=True)
    directions = np.stack([data.info["w1"], data.info["w2"]])
    along = np.einsum("kd,dgn->gkn", directions, kernel)
    return (along**2).sum(-1) / (kernel**2).sum((0, 2))[:, None]


print(f"{'p = 0.5':28s}{'along w1':>10s}{'along w2':>10s}")
for name in ("OMoE", "MMoE"):
    for run in range(RUNS):
        model = trained[name][0.5].copies[run].model
        for task, row in enumerate(shares(model, problems[0.5]), start=1):
            whose = f"gate of task {task}" if name == "MMoE" else "the gate"
            print(f"{name}, run {run}, {whose:15s}{row[0]:10.2f}{row[1]:10.2f}")

# %% [markdown]
# The gates of MMoE have separated: each uses almost only the direction of its own task.
# (The share along the other task's direction comes from the angle between the two: the
# directions have $p^2$ = 0.25 in common.) A gate decides which expert is used for which
# values of $w_k^\top x$, so a task builds its function from simple pieces. The only
# gate of OMoE has to use both directions, and serves neither task fully.
#
# Three runs are few. `python scripts/reproduce.py mmoe-fig4` draws the whole figure
# with 200 runs, and searches the learning rate for each model. Its page judges each
# claim of the paper by trimmed means, because a single run of OMoE that ends in a poor
# minimum decides its mean.
