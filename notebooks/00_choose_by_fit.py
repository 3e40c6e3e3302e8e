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
# # Tasks that find their groups
#
# A model has 64 tasks, and each is served alone. How few multiplications does a task
# need? This notebook lets each task read two of 16 experts. `ChooseExperts` chooses
# those whose outputs fit the labels of the task best, again and again in the first
# half of the training. Then it removes what a task does not need.
#
# ## Data
#
# The tasks are in eight groups. The tasks of a group are mixtures of the same four
# nonlinear features, and groups have nothing in common. The model does not know the
# groups.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import (
    ChooseExperts,
    ChosenGate,
    DenseExperts,
    GateRecorder,
    SoftmaxGate,
    build_multitask_model,
    condense,
    datasets,
    per_task,
    plots,
)

EPOCHS, BATCH_SIZE, NUM_TRAIN = 40, 128, 5_000
# quick: EPOCHS, NUM_TRAIN = 4, 500

data = datasets.grouped_tasks(num_tasks=64, num_train=NUM_TRAIN)
print(data.train.x.shape, data.train.y.shape, data.groups[:10])

# %% [markdown]
# ## Two of 16 experts, chosen by fit
#
# A `ChosenGate` is a choice, integers that no gradient changes. At first it is random.
# With `side_by_side=True`, the tower of a task reads the units of its two experts one
# after the other, instead of a mixture of both.


# %%
def train(gate, callbacks=(), **options):
    """Build a model with 16 experts, train it, and return it with its test error."""
    keras.utils.set_random_seed(0)
    experts = DenseExperts(16, units=[16])
    model = build_multitask_model(
        30, data.task_names, experts=experts, gate=gate, stacked=True, **options
    )
    steps = EPOCHS * -(-NUM_TRAIN // BATCH_SIZE)
    rate = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=steps)
    model.compile(keras.optimizers.Adam(rate))
    model.fit(
        *data.train,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        callbacks=list(callbacks),
        verbose=0,
    )
    test = model.evaluate(*data.test, verbose=0, return_dict=True)
    return model, test["task_loss"] / len(data.task_names)


recorder = GateRecorder(every=1, unit="epochs")
model, error = train(ChosenGate(2), [ChooseExperts(), recorder], side_by_side=True)
print(f"two of 16 experts, chosen by fit: {error:.3f}")

# %% [markdown]
# ## The groups appear
#
# Each row is a task, each column an expert, and lines separate the groups. The first
# choice, from experts that are random, is hardly better than chance. But tasks that
# happen to share an expert train it together. It gets better for them, and other tasks
# of the group find it at the next choice.

# %% mystnb={"image": {"alt": "Four tables of the experts that 64 tasks use: random at first, and in the end the same two for each group of tasks"}}
weights = recorder.history["mmoe"]["weights"]
figure, axes = plt.subplots(1, 4, figsize=(9, 4), sharey=True)
for ax, part in zip(axes, (0.0, 0.1, 0.2, 1.0), strict=True):
    ax.imshow(weights[round(part * EPOCHS)] > 0, cmap="Blues", aspect="auto")
    for group in range(8, 64, 8):
        ax.axhline(group - 0.5, color="0.5", linewidth=0.5)
    ax.set_title(f"after {part:.0%}")
    ax.set_xlabel("expert")
axes[0].set_ylabel("task, in groups")
plt.show()

# %% [markdown]
# One group in a picture of its own: four tasks come to the same two experts.

# %% mystnb={"image": {"alt": "Four tasks of a group change to the same two experts within 200 steps, and keep them"}}
plots.plot_gate_weights(recorder.history.steps, weights[:, :4])
plt.show()

# %% [markdown]
# ## Compared with other choices
#
# The same model, with the same rate and number of steps: mixed, with random experts,
# with those of the true groups, and with all experts for all tasks.

# %%
true_groups = 2 * np.array(data.groups)[:, None] + np.arange(2)
known = ChosenGate(initial_choices=true_groups, num_gates=64)
others = {
    "chosen by fit, mixed": train(ChosenGate(2), [ChooseExperts()]),
    "random, side by side": train(ChosenGate(2, "random"), side_by_side=True),
    "true groups, side by side": train(known, side_by_side=True),
    "softmax, all 16": train(SoftmaxGate()),
}
for name, (_, other_error) in others.items():
    print(f"{name:27s} {other_error:.3f}")

# %% [markdown]
# This is one draw with one learning rate. The README's table has ten draws, with tuned
# models, and [GateBench](../gatebench/gatebench.md) many problems.
#
# ## Serve one task
#
# `condense` keeps the experts that some task uses, and `per_task` those of one task.
# Their outputs are the same.

# %%
small = condense(model)
one = per_task(model, "task_5")
for name, each in {"whole": model, "condensed": small, "one task": one}.items():
    experts = each.get_layer("mmoe").experts.num_experts
    print(f"{name:10s} {experts:2d} experts, {each.count_params():6,d} parameters")

x = data.test.x[:5]
whole = model.predict(x, verbose=0)[:, 5]
alone = one.predict(x, verbose=0)["task_5"][:, 0]
print(f"largest difference: {np.abs(alone - whole).max():.1e}")

# %% [markdown]
# ## Next
#
# - [How the choice works](../choose_by_fit.md), what it costs, and when it cannot help.
# - [A gate in your own model](01_drop_in.ipynb).
# - [Which tasks share experts](04_who_shares_what.ipynb), read from gates that learn.
