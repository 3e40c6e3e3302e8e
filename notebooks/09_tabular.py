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
# # From a table to a served multi-task model
#
# How does a data frame with ids, strings, numbers and missing labels become a model
# that answers for raw columns? This notebook builds an encoder, three tasks and sparse
# gates, judges AUC and calibration per task, and exports a SavedModel that takes raw
# strings. It runs on TensorFlow, because the layers that look up strings do.

# %%
# In a copy of the repository: pip install ".[tensorflow,data,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"

# %%
import pathlib
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tensorflow as tf

from dselectk_keras import (
    DecideGates,
    DenseExperts,
    DSelectKGate,
    Task,
    build_multitask_model,
    condense,
    plots,
)

keras.utils.set_random_seed(0)
tf.get_logger().setLevel("ERROR")

# %% [markdown]
# ## The table
#
# A simulated shop shows items to its users. Three labels are of interest:
#
# - `click`: whether the user clicked. It is always known.
# - `purchase`: whether the user bought the item. It is known only after a click.
# - `rating`: from 1 to 5, known for some purchases.
#
# A label that is not known is NaN. Some prices are missing as well.


# %%
def simulate(rows, seed):
    """Make a table of what a shop showed, and of what users did."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(200, size=rows), rng.integers(50, size=rows)
    # What users like and what items are is the same in all tables.
    fixed = np.random.default_rng(0)
    taste, kind = fixed.normal(size=(200, 3)), fixed.normal(size=(50, 3))
    appeal = fixed.normal(size=50)
    cost = fixed.lognormal(3.0, 0.5, size=50)
    country = fixed.choice(["de", "fr", "jp", "cn"], size=200)[users]
    hour = rng.integers(24, size=rows)
    likes = appeal[items] + 0.3 * (taste[users] * kind[items]).sum(axis=1)
    evening = np.isin(hour, [19, 20, 21, 22])
    clicked = rng.logistic(size=rows) < 2 * likes + evening - 1.0
    price = cost[items] * (1 + 0.2 * rng.normal(size=rows))
    bought = rng.logistic(size=rows) < likes - 2.0 * np.log(price / 20) - 0.5
    stars = np.clip(np.round(3.5 + likes + 0.5 * rng.normal(size=rows)), 1, 5)
    rated = clicked & bought & (rng.random(rows) < 0.5)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": [f"i{item}" for item in items],
            "country": country,
            "hour": hour.astype(float),
            "price": np.where(rng.random(rows) < 0.05, np.nan, price),
            "click": clicked.astype(float),
            "purchase": np.where(clicked, bought, np.nan),
            "rating": np.where(rated, stars, np.nan),
        }
    )


train, validation, test = (
    simulate(rows, seed) for seed, rows in enumerate((20_000, 4_000, 4_000), start=1)
)
LABELS = ["click", "purchase", "rating"]
print(train[LABELS].agg(["count", "mean"]).round(3))
train.head()

# %% [markdown]
# ## An encoder of raw columns
#
# The look-up of strings, the scaling of numbers and the embeddings are layers of the
# encoder, so they are saved, exported and served with the model. `StringLookup` turns
# strings into integers, with 0 for strings that are not in the training data. A missing
# number becomes the mean, and a second column says that it is missing.

# %%
STRINGS, NUMBERS = {"user": 8, "item": 8, "country": 2}, ["hour", "price"]

inputs, features = {}, []
for name, width in STRINGS.items():
    known = sorted(train[name].dropna().unique())
    inputs[name] = keras.Input((), dtype="string", name=name)
    ids = keras.layers.StringLookup(vocabulary=known)(inputs[name])
    features.append(keras.layers.Embedding(len(known) + 1, width)(ids))
for name in NUMBERS:
    scale = keras.layers.Normalization(axis=None)
    scale.adapt(train[name].dropna().to_numpy("float32"))
    inputs[name] = keras.Input((1,), name=name)
    missing = keras.ops.isnan(inputs[name])
    features.append(keras.ops.where(missing, 0.0, scale(inputs[name])))
    features.append(keras.ops.cast(missing, "float32"))
encoder = keras.Model(inputs, keras.layers.Concatenate()(features), name="encoder")

# %% [markdown]
# ## Three tasks, eight experts, two per task
#
# The model knows the losses of its tasks and skips labels that are NaN. `DecideGates`
# lets the gates explore first, and then makes each keep two experts.
# `EarlyStopping` must not restore an epoch in which the gates still use more, so it
# starts with the decision, after a part 0.4 of the 12 epochs.

# %%
model = build_multitask_model(
    encoder,
    [
        Task("click", "binary", tower=(16,), metrics=("AUC",)),
        Task("purchase", "binary", tower=(16,), metrics=("AUC",)),
        Task("rating", tower=(16,)),
    ],
    experts=DenseExperts(8, [32]),
    gate=DSelectKGate(2),
)
model.compile(keras.optimizers.Adam(0.005))
early = keras.callbacks.EarlyStopping(
    "val_task_loss",
    mode="min",
    patience=3,
    restore_best_weights=True,
    start_from_epoch=4,
)
log = model.fit(
    train,  # The model reads the columns that have the names of its inputs.
    train[LABELS].to_numpy(),
    validation_data=(validation, validation[LABELS].to_numpy()),
    batch_size=256,
    epochs=12,
    callbacks=[DecideGates(by=0.4), early],
    verbose=0,
)
shown = ["val_task_loss", "val_click_AUC", "val_purchase_AUC", "val_rating_loss"]
pd.DataFrame(log.history)[shown].round(3)

# %% [markdown]
# A table that does not fit into memory comes from files. `tf.data` reads shards of CSV,
# and the model takes their columns as they are. A missing number is NaN.

# %%
folder = pathlib.Path(tempfile.mkdtemp())
for number, part in enumerate(np.array_split(np.arange(len(train)), 4)):
    train.iloc[part].to_csv(folder / f"part-{number}.csv", index=False)


def parse(row):
    """The inputs and labels of a batch of rows."""
    x = {name: row[name] for name in (*STRINGS, *NUMBERS)}
    return x, tf.stack([row[name] for name in LABELS], axis=1)


defaults = [tf.string] * 3 + [tf.constant([np.nan], tf.float32)] * 5
shards = tf.data.experimental.make_csv_dataset(
    str(folder / "part-*.csv"), 256, column_defaults=defaults, num_epochs=1
)
evaluated = model.evaluate(
    shards.map(parse), steps=len(train) // 256, verbose=0, return_dict=True
)
print("training data, from files:", round(evaluated["task_loss"], 3))

# %% [markdown]
# ## Judge each task
#
# AUC says whether the order of the predictions is right. Calibration says whether their
# level is: the sum of the predictions over the sum of the labels should be 1.

# %%
found = model.evaluate(test, test[LABELS].to_numpy(), verbose=0, return_dict=True)
predicted = model.predict(test, batch_size=4096, verbose=0)
rows = {}
for name in ("click", "purchase"):
    known = test[name].notna()
    rows[name] = {
        "labels": known.sum(),
        "AUC": found[f"{name}_AUC"],
        "calibration": predicted[name][known].sum() / test[name][known].sum(),
    }
known = test["rating"].notna()
error = np.abs(predicted["rating"][known, 0] - test["rating"][known])
constant = np.abs(train["rating"].mean() - test["rating"][known])
rows["rating"] = {
    "labels": known.sum(),
    "absolute error": error.mean(),
    "of the mean": constant.mean(),
}
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# ## Which experts do the tasks share?

# %% mystnb={"image": {"alt": "A heat map of three tasks: each uses two of eight experts, and all share expert 2"}}
gate = model.get_layer("mmoe").gate
weights = keras.ops.convert_to_numpy(gate.expert_weights())
_, ax = plt.subplots(figsize=(8.4, 2.4), layout="constrained")
plots.plot_expert_heatmap(weights, task_names=LABELS, ax=ax)
plt.show()
print("experts per task:", (weights > 0).sum(axis=1))

# %% [markdown]
# Each row is a task. It has weight on two experts, and the hatched ones are not used.
# Tasks with colours in the same column share that expert. A column that is hatched from
# top to bottom is an expert that no task uses.
#
# ## Export
#
# `condense` removes the experts that no task uses. The exported model takes the raw
# columns, and needs neither this package nor the tables of the look-up: they are in it.

# %%
small = condense(model)
print(f"{model.count_params():,} parameters, condensed {small.count_params():,}")
small.export(folder / "served", verbose=False)

loaded = tf.saved_model.load(folder / "served")
two = {name: tf.constant(test[name][:2].to_list()) for name in STRINGS}
two |= {name: tf.constant(test[[name]][:2], tf.float32) for name in NUMBERS}
answers = loaded.serve(two)
for name in LABELS:
    np.testing.assert_allclose(answers[name], predicted[name][:2], rtol=1e-4)
pd.DataFrame({name: answers[name][:, 0] for name in LABELS}).round(3)
