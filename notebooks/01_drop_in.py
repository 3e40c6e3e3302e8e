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
# # Add a gate to your own model
#
# How do you let the tasks of a Keras model choose what they share? In five minutes:
# take a small functional model, add a bank of experts and DSelect-k gates, train it,
# plot the weights, save the model and load it again.
#
# ## Data
#
# Two regression tasks have the same ten inputs. Their labels are the sum of a shared
# part and a part that only one task has.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import DecideGates, DenseExperts, DSelectKGate, GateRecorder, plots

keras.utils.set_random_seed(2)
rng = np.random.default_rng(0)
x = rng.normal(size=(4_000, 10)).astype("float32")
shared = np.maximum(x @ rng.normal(size=10), 0)
labels = {
    "left": shared + np.sin(2 * x[:, 0]),
    "right": shared + np.abs(x[:, 1]),
}

# %% [markdown]
# ## The model
#
# `DenseExperts` holds eight experts in one layer. Its output has the shape `(batch, 8,
# 16)`. A gate mixes the experts along the second axis. Each task has its own gate and
# its own head.
#
# In the first half of the training, each gate tries all experts. Then `DecideGates`
# makes it keep two of them.

# %%
EPOCHS, BATCH_SIZE = 20, 100

inputs = keras.Input((10,))
experts = DenseExperts(num_experts=8, units=[16])(inputs)
outputs = {}
for task in labels:
    gate = DSelectKGate(num_nonzeros=2, name=f"gate_{task}")
    mixture = gate(experts)
    outputs[task] = keras.layers.Dense(1, name=task)(mixture)
model = keras.Model(inputs, outputs)
print(f"{model.count_params()} parameters")

# %% [markdown]
# You can also use a list of tensors with the same shape instead of the bank, such as
# `[keras.layers.Dense(16)(inputs) for _ in range(8)]`.
#
# ## Training
#
# Compile and fit as usual. `GateRecorder` stores the gate weights every ten steps.

# %%
model.compile(keras.optimizers.Adam(0.01), loss=dict.fromkeys(labels, "mse"))
recorder = GateRecorder(every=10)
log = model.fit(
    x[:3_000],
    {task: y[:3_000] for task, y in labels.items()},
    epochs=EPOCHS,
    batch_size=BATCH_SIZE,
    callbacks=[DecideGates(), recorder],
    verbose=0,
)
test = model.evaluate(
    x[3_000:], {task: y[3_000:] for task, y in labels.items()}, verbose=0
)
for name, value in zip(("sum", *labels), test, strict=True):
    print(f"test MSE {name:6s} {value:.3f}")

# %% [markdown]
# ## The weights
#
# `expert_weights` returns the weights of a gate. At most two of them are not zero.

# %%
np.set_printoptions(precision=3, suppress=True)
for task in labels:
    weights = model.get_layer(f"gate_{task}").expert_weights()
    print(f"{task:6s}", keras.ops.convert_to_numpy(weights))

# %% [markdown]
# How did they get there? `plot_gate_weights` draws what the recorder has stored.

# %% mystnb={"image": {"alt": "Expert weights of two tasks over 600 steps: each keeps two of eight experts after a decision at step 300"}}
weights = np.concatenate(
    [recorder.history[f"gate_{task}"]["weights"] for task in labels], axis=1
)
plots.plot_gate_weights(recorder.history.steps, weights, task_names=list(labels))
plt.show()

# %% [markdown]
# Each line is an expert, and each panel is a task. A gate starts with all eight experts
# at about one eighth. Halfway it decides: two experts are left, and share the weight.
#
# ## Save and load
#
# The model is an ordinary Keras model. Import `dselectk_keras` before you load it, as
# at the top of this notebook.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)

before, after = (m.predict(x[:100], verbose=0) for m in (model, loaded))
print({task: float(np.abs(before[task] - after[task]).max()) for task in labels})

# %% [markdown]
# ## Per-example gates
#
# Pass routing inputs as the second argument of a gate, and it is per-example: it
# computes its weights from the routing inputs. By default the penalties of such a gate
# are summed over the batch, as in the original code. `reduction="mean"` averages
# them.

# %%
gate = DSelectKGate(num_nonzeros=2, reduction="mean")
mixture = gate(experts, inputs)
per_example = keras.Model(inputs, keras.layers.Dense(1)(mixture))
print(gate.expert_weights(x[:3]).shape)
