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
# A sparse gate pays twice. In research, because a study of many seeds and settings can
# be trained as one; in production, because what no task uses need not be computed. This
# notebook goes the whole way: train six copies, choose one, drop the experts that it
# does not use, cut out a single task, and export what is left.
#
# ```
# pip install "dselectk-keras[tensorflow,data,plots]"
# ```

# %%
import tempfile
import time

import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    Ramp,
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

# %% [markdown]
# ## The data, and far too many experts
#
# Sixteen regressions that are related: a few experts would do for all of them. The
# model gets 64, each with 128 units, because nobody knows beforehand how many it takes.

# %%
data = datasets.synthetic_moe(
    num_tasks=TASKS, num_train=8_000, num_validation=2_000, num_test=2_000, seed=0
)
steps = EPOCHS * -(-len(data.train.x) // BATCH_SIZE)


def build(seed, end):  # noqa: ARG001, Keras is seeded with it already
    """A model whose gates are made to decide, the more so the larger `end` is."""
    gate = DSelectKGate(K, entropy_reg=Ramp(1e-4, end, end=int(0.6 * steps)))
    tasks = [Task(name) for name in data.task_names]
    bank = DenseExperts(EXPERTS, [128])
    model = build_multitask_model(10, tasks, experts=bank, gate=gate)
    model.compile(keras.optimizers.Adam(3e-3))
    return model


# %% [markdown]
# ## Many runs as one
#
# `replicate` trains a copy for each pair of a seed and a setting. Each comes to what it
# would alone, with the same seed. On JAX the copies share one compiled program that
# scans over the steps of an epoch; elsewhere they are fitted one after another.

# %%
ends = [1e-3, 1e-2, 1e-1]
began = time.perf_counter()
runs = replicate(
    build,
    data.train,
    validation_data=data.validation,
    seeds=[0, 1] * len(ends),
    settings={"end": np.repeat(ends, 2)},
    epochs=EPOCHS,
    batch_size=BATCH_SIZE,
    histories=range(2 * len(ends)),
    verbose=0,
)
print(f"{len(runs)} runs in {time.perf_counter() - began:.0f} s")

# %% [markdown]
# The table has a row for each copy. We add what the gates ended with: the share of
# selectors that have decided, and the experts that some task uses.

# %%
table = runs.summary[["copy", "seed", "end", "val_task_loss"]].copy()
for copy, history in runs.histories.items():
    record = history["mmoe"]
    table.loc[copy, "decided"] = record["binary"][-1].mean()
    table.loc[copy, "experts used"] = (record["weights"][-1] > 0).any(axis=0).sum()
table["val_task_loss"] /= TASKS
table.round(4)

# %%
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for end, own in table.groupby("end"):
    ax.scatter(own["experts used"], own["val_task_loss"], label=f"{end:g}", s=40)
ax.set(xlabel="experts used by some task", ylabel="validation error per task")
ax.set_yscale("log")
ax.legend(title="entropy weight at the end", frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Choose one
#
# The rule of the DSelect-k paper: a run whose selectors have not all decided is
# disregarded; of the others, the one with the lowest validation error.

# %%
admissible = table[table["decided"] == 1]
best = int(admissible.sort_values("val_task_loss")["copy"].iloc[0])
model = runs.model(best)
weights = model.get_layer("mmoe").gate.expert_weights()
weights = keras.ops.convert_to_numpy(weights)
used = np.flatnonzero(weights.any(axis=0))
print(f"copy {best}: {len(used)} of {EXPERTS} experts are used")
figure = plots.plot_expert_heatmap(
    weights[:, used],
    task_names=data.task_names,
    expert_names=[f"expert {i}" for i in used],
    title="Who uses what",
)

# %% [markdown]
# ## Leave out what is not used
#
# `condense` builds a model that has only these experts, each gate as it was, with the
# same outputs. Weights and optimizer state go along, so training could go on.
# `per_task` cuts out what serves one task alone.

# %%
small = condense(model)
one = per_task(model, data.task_names[0])
x = data.test.x
difference = max(
    np.abs(before - after).max()
    for before, after in zip(
        model.predict(x, verbose=0).values(),
        small.predict(x, verbose=0).values(),
        strict=True,
    )
)
for name, own in (("all experts", model), ("condensed", small), ("one task", one)):
    print(f"{name:12s}{own.count_params():9,} parameters")
print(f"largest difference of a prediction: {difference:.1e}")


# %%
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


batch = np.tile(x, (4, 1))[:4096]
times = milliseconds({"all experts": model, "condensed": small, "one task": one}, batch)
figure, ax = plt.subplots(figsize=(5, 1.8), layout="constrained")
bars = ax.barh(list(times), list(times.values()), color="#0072B2", height=0.6)
ax.bar_label(bars, fmt="%.1f ms", padding=4)
ax.invert_yaxis()
ax.set(xlabel=f"a batch of {len(batch)} examples")
ax.spines[["top", "right"]].set_visible(False)
ax.margins(x=0.15)

# %% [markdown]
# ## Export
#
# The condensed model is an ordinary Keras model. `save` keeps it for training to go on,
# `export` writes what a server loads, without this package and without Keras (here
# TensorFlow's SavedModel; `format="onnx"` and others are Keras' own).

# %%
with tempfile.TemporaryDirectory() as folder:
    small.save(f"{folder}/small.keras")
    again = keras.saving.load_model(f"{folder}/small.keras")
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
# ## Where to go from here
#
# - During training: `CondenseWhenBinary` watches the selectors and condenses in the
#   middle of `fit`, so that the rest of the training is cheaper as well.
# - Per-example gates: nothing can be dropped for good, but each example needs its k
#   experts only. `MMoE` evaluates just these where it pays, and wherever it is asked
#   to by `dispatch=True`.
# - `scripts/benchmark.py` measures all of this on your machine.
