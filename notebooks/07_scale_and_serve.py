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
# # Scale and serve: many runs, then one small model
#
# How do many training runs become one small model that is served? Sparse gates help
# twice: many seeds and settings can be trained as one program, and experts that no task
# uses need not be served. This notebook trains six models, selects one, removes the
# experts that it does not use, extracts a single task, and exports the result.

# %%
# In a copy of the repository: pip install ".[tensorflow,data,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import tempfile
import time

import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import (
    DecideGates,
    DenseExperts,
    DSelectKGate,
    GateRecorder,
    Task,
    build_multitask_model,
    condense,
    datasets,
    per_task,
    plots,
    replicate,
)

TASKS, EXPERTS, K = 16, 64, 2
EPOCHS, BATCH_SIZE = 15, 256
# quick: EPOCHS = 3

# %% [markdown]
# ## The data, and too many experts
#
# There are sixteen related regression tasks, for which a few experts would be enough.
# The model gets 64 experts with 128 units each, because the right number is not known
# in advance.

# %%
data = datasets.synthetic_moe(
    num_tasks=TASKS, num_train=8_000, num_validation=2_000, num_test=2_000, seed=0
)


def build(seed, learning_rate):  # noqa: ARG001, Keras is seeded with it already
    """A model with one gate per task."""
    tasks = [Task(name) for name in data.task_names]
    bank = DenseExperts(EXPERTS, [128])
    model = build_multitask_model(10, tasks, experts=bank, gate=DSelectKGate(K))
    model.compile(keras.optimizers.Adam(learning_rate))
    return model


# %% [markdown]
# ## Many runs as one
#
# `replicate` trains one copy for each pair of a seed and a setting. Each copy gives the
# same result as a separate run with the same seed. On JAX they share one compiled
# program that scans over the steps of an epoch. On TensorFlow and torch they are fitted
# one after another. `DecideGates` makes each gate choose its experts halfway.

# %%
rates = [1e-3, 3e-3, 1e-2]
# quick: rates = [1e-3, 1e-2]
began = time.perf_counter()
runs = replicate(
    build,
    data.train,
    validation_data=data.validation,
    seeds=[0, 1] * len(rates),
    settings={"learning_rate": np.repeat(rates, 2)},
    epochs=EPOCHS,
    batch_size=BATCH_SIZE,
    callbacks=lambda: [DecideGates(), GateRecorder(every=1, unit="epochs")],
    verbose=0,
)
print(f"{len(runs.copies)} runs in {time.perf_counter() - began:.0f} s")

# %% [markdown]
# The table has one row per copy. We add two results of the gates: the share of
# selectors that are binary, and the number of experts that at least one task uses.

# %%
table = runs.table.query("epoch == epoch.max()").reset_index(drop=True)
table = table[["copy", "seed", "learning_rate", "val_task_loss"]].copy()
for number, copy in enumerate(runs.copies):
    record = copy.callbacks[1].history["mmoe"]
    table.loc[number, "decided"] = record["binary"][-1].mean()
    table.loc[number, "experts used"] = (record["weights"][-1] > 0).any(axis=0).sum()
table["val_task_loss"] /= TASKS
table.round(4)

# %% mystnb={"image": {"alt": "Validation error and number of used experts of the settings: a learning rate of 0.01 has the lowest errors"}}
figure, ax = plt.subplots(figsize=(8.4, 3), layout="constrained")
for rate, own in table.groupby("learning_rate"):
    ax.scatter(own["experts used"], own["val_task_loss"], label=f"{rate:g}", s=40)
ax.set(xlabel="experts used by some task", ylabel="validation error per task")
ax.set_yscale("log")
ax.legend(title="learning rate", frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# A point is a copy, with the colour of its learning rate. Lower is better, and further
# left is smaller. Here the largest rate is the best one, for both seeds.
#
# ## Select a model
#
# The DSelect-k paper rejects runs whose selectors are not all binary. Here all runs
# have decided. We select the one with the lowest validation error.

# %% mystnb={"image": {"alt": "A heat map of 16 tasks: each uses two of the 17 experts that some task uses"}}
assert (table["decided"] == 1).all()
best = int(table.sort_values("val_task_loss")["copy"].iloc[0])
model = runs.copies[best].model
weights = model.get_layer("mmoe").gate.expert_weights()
weights = keras.ops.convert_to_numpy(weights)
used = np.flatnonzero(weights.any(axis=0))
print(f"copy {best}: {len(used)} of {EXPERTS} experts are used")
figure, ax = plt.subplots(figsize=(8.4, 3.6), layout="constrained")
plots.plot_expert_heatmap(
    weights[:, used],
    task_names=data.task_names,
    expert_names=[f"expert {i}" for i in used],
    title="Who uses what",
    ax=ax,
)
plt.show()

# %% [markdown]
# A row is a task, and it has two experts, or one if both of its selectors chose the
# same. A column with several colours is an expert that several tasks share. Experts
# that no task uses have no column.
#
# ## Remove unused experts
#
# `condense` returns a model with only the experts that are used, and with the same
# outputs. Its weights are those of the first, so training could go on. `per_task`
# extracts the sub-model of one task.

# %%
small = condense(model)
one = per_task(model, data.task_names[0])
x = data.test.x
batch = np.tile(x, (4, 1))[:4096]
difference = max(
    np.abs(before - after).max()
    for before, after in zip(
        model.predict_on_batch(batch).values(),
        small.predict_on_batch(batch).values(),
        strict=True,
    )
)
for name, own in (("all experts", model), ("condensed", small), ("one task", one)):
    print(f"{name:12s}{own.count_params():9,} parameters")
print(f"largest difference of a prediction: {difference:.1e}")


# %% mystnb={"image": {"alt": "Milliseconds for a batch: most with all experts, fewer condensed, fewest for one task"}}
def milliseconds(models, batch, turns=30):
    """The median time of a prediction; the models take turns."""
    taken = {name: [] for name in models}
    for _ in range(turns):
        for name, own in models.items():
            began = time.perf_counter()
            own.predict_on_batch(batch)
            taken[name].append(1e3 * (time.perf_counter() - began))
    # The first turns compile.
    return {name: np.median(times[5:]) for name, times in taken.items()}


times = milliseconds({"all experts": model, "condensed": small, "one task": one}, batch)
figure, ax = plt.subplots(figsize=(8.4, 2), layout="constrained")
bars = ax.barh(list(times), list(times.values()), color="#0072B2", height=0.6)
ax.bar_label(bars, fmt="%.1f ms", padding=4)
ax.invert_yaxis()
ax.set(xlabel=f"a batch of {len(batch)} examples")
ax.spines[["top", "right"]].set_visible(False)
ax.margins(x=0.15)

# %% [markdown]
# The shorter the bar, the faster the prediction. The condensed model has the outputs of
# the first one. The time of one task is what a server of this task alone takes. (Other
# work on the machine changes these times.)
#
# ## Export
#
# The condensed model is an ordinary Keras model. `save` writes a checkpoint from which
# training can continue. `export` writes a file for serving, which needs neither this
# package nor Keras (here a TensorFlow SavedModel; `format="onnx"` and others are
# provided by Keras).

# %%
with tempfile.TemporaryDirectory() as folder:
    small.save(f"{folder}/small.keras")
    again = keras.saving.load_model(f"{folder}/small.keras", compile=False)
    same = again.predict(x, verbose=0)["task_0"]
    kept = small.predict(x, verbose=0)["task_0"]
    print("reloaded, equal:", np.array_equal(same, kept))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")  # Where the files are does not matter here.
        small.export(f"{folder}/served", verbose=False)
        served = tf.saved_model.load(f"{folder}/served")
        gap = np.abs(served.serve(x)["task_0"].numpy() - same).max()
        print(f"served, largest difference: {gap:.1e}")

# %% [markdown]
# ## Next steps
#
# - **Condense during training:** call `fit` until the gates have decided, then
#   `condense`, then `fit` on the smaller model. Its epochs are faster.
# - **Per-example gates:** no expert can be removed, but each example needs only its k
#   experts. `MMoE` evaluates only these where it is expected to be faster, or always
#   with `dispatch=True`.
# - **Benchmark:** `scripts/benchmark.py` measures wall times on your machine.
