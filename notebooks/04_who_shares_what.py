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
# # Task groups: which tasks share experts
#
# Which tasks should be trained together, and which separately? Sparse gates with one
# gate per task learn an answer: related tasks choose the same experts. The [DSelect-k
# paper](https://arxiv.org/abs/2106.03760) reads it from a heat map of the weights
# (Figure 3) and from the Jaccard index of the tasks' experts (Figure 5). This notebook
# does both, first on data with known groups, then on a simulated recommender, and shows
# how to use the answer.

# %%
# In a copy of the repository: pip install ".[tensorflow,plots]"
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # or "jax", "torch"

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

from dselectk_keras import (
    DecideGates,
    DenseExperts,
    DSelectKGate,
    Task,
    build_multitask_model,
    condense,
    datasets,
    metrics,
    per_task,
    plots,
)

# %% [markdown]
# ## Tasks with hidden groups
#
# There are 32 regression tasks on the same ten inputs. Sixteen of them are mixtures of
# four experts; the other sixteen are mixtures of four other experts (`synthetic_moe`,
# after the paper's Appendix C.1). We shuffle the tasks, and try to find the groups,
# which are called `secret` in the code.

# %%
SEEDS, EPOCHS, BATCH_SIZE, NUM_TRAIN = 3, 60, 250, 5_000
# quick: SEEDS, EPOCHS, NUM_TRAIN = 1, 6, 1_000

data = datasets.synthetic_moe(num_tasks=32, num_train=NUM_TRAIN)
order = np.random.default_rng(0).permutation(32)
secret = np.array(data.groups)[order]
print(secret)


# %% [markdown]
# The model has eight experts with the architecture of the experts that generated the
# labels. Each task has a DSelect-k gate that ends on at most four of them: in the first
# half of the training its selectors are soft, and then `DecideGates` makes each choose
# one expert. (`DecideGates` is ours; the paper penalizes the entropy of the selectors.)
# The result depends on the initial weights, so we train three models with different
# seeds.


# %%
def train(tasks, num_experts, seed=0):
    """Train tasks together, on the columns of the labels that they are."""
    keras.utils.set_random_seed(seed)
    model = build_multitask_model(
        inputs=10,
        tasks=[Task(f"task_{task}", tower="sum") for task in tasks],
        experts=DenseExperts(num_experts, [4]),
        gate=DSelectKGate(4, gamma=3.0),
    )
    model.compile(keras.optimizers.Adam(0.01))
    model.fit(
        data.train.x,
        data.train.y[:, tasks],
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        callbacks=[DecideGates()],
        verbose=0,
    )
    return model


def weights_of(model):
    """The weights of all tasks over the experts: (tasks, experts)."""
    gate = model.get_layer("mmoe").gate
    return keras.ops.convert_to_numpy(gate.expert_weights())


together = [train(order, num_experts=8, seed=seed) for seed in range(SEEDS)]
weights = [weights_of(model) for model in together]

# %% [markdown]
# Who uses which expert? Here are the weights after each run.

# %% mystnb={"image": {"alt": "Heat maps of three runs: 32 tasks and the weights of the eight experts that they use"}}
figure, axes = plt.subplots(
    1, SEEDS, figsize=(8.4, 5), layout="constrained", squeeze=False
)
largest = np.max(weights)  # One scale, and so one colour bar.
for run, (ax, each) in enumerate(zip(axes[0], weights, strict=True)):
    plots.plot_expert_heatmap(each, title=f"run {run}", largest=largest, ax=ax)
    if run < SEEDS - 1:  # The last has the bar, and the first the legend.
        ax.collections[0].colorbar.remove()
    if run > 0:
        ax.get_legend().remove()
        ax.set_ylabel("")
plt.show()
print(f"experts used by a task: {metrics.active_experts(weights).mean():.2f}")


# %% [markdown]
# A row is a task, in our shuffled order, and a column is an expert. Two tasks with
# colours in the same columns share experts. The groups are in there, but they are hard
# to see: the tasks are mixed, and the experts have other numbers in each run.
#
# ## Measure sharing
#
# The Jaccard index of two tasks is the number of experts that both use, divided by the
# number of experts that at least one of them uses. It is 1 if the tasks use the same
# experts, and 0 if they share none. We average it over the three runs.


# %% mystnb={"image": {"alt": "How many experts two tasks share: no order as they came, two blocks of 16 tasks in the groups found"}}
def sharing(weights):
    """The Jaccard index of every pair of tasks."""
    tasks = range(len(weights))
    return np.array(
        [
            [metrics.jaccard_index(weights[[one, other]]).related for other in tasks]
            for one in tasks
        ]
    )


def groups_in(jaccard, threshold):
    """Tasks in groups: the two most alike on average are joined, again and again."""
    groups = [[task] for task in range(len(jaccard))]
    while len(groups) > 1:
        alike = np.array(
            [[jaccard[np.ix_(one, other)].mean() for other in groups] for one in groups]
        )
        alike[np.tril_indices(len(groups))] = -1  # Each pair once.
        one, other = np.unravel_index(alike.argmax(), alike.shape)
        if alike[one, other] < threshold:
            break
        groups[one] += groups.pop(other)
    return groups


def draw(jaccard, ax, title, groups):
    """The index of every pair; a line after each of the groups, sizes by name."""
    image = ax.imshow(jaccard, vmin=0, vmax=1, cmap="YlGnBu")
    ends = np.cumsum([*groups.values()])
    ax.hlines(ends[:-1] - 0.5, -0.5, len(jaccard) - 0.5, color="black", linewidth=0.9)
    ax.vlines(ends[:-1] - 0.5, -0.5, len(jaccard) - 0.5, color="black", linewidth=0.9)
    middles = ends - np.array([*groups.values()]) / 2 - 0.5
    ax.set_xticks(middles, groups, fontsize=9)
    ax.set_yticks(middles, groups, fontsize=9, rotation=90, va="center")
    ax.tick_params(length=0)
    ax.set_title(title, fontsize=10, loc="left")
    return image


jaccard = np.mean([sharing(each) for each in weights], axis=0)
found = groups_in(jaccard, threshold=0.25)
by_group = np.concatenate(found)

figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
draw(jaccard, axes[0], "as they came", {"32 tasks": 32})
sizes = {f"group {n}, {len(each)} tasks": len(each) for n, each in enumerate(found)}
ordered = jaccard[np.ix_(by_group, by_group)]
image = draw(ordered, axes[1], "in the groups found", sizes)
figure.colorbar(image, ax=axes, label="Jaccard index of their experts", shrink=0.8)
plt.show()

for group in found:
    print(f"{len(group)} tasks, of the secret groups {secret[group].tolist()}")
for each in weights:
    index = metrics.jaccard_index(each, secret)
    print(f"within the secret groups {index.related:.2f}, across {index.unrelated:.2f}")

# %% [markdown]
# Each cell is a pair of tasks. On the left the dark cells are scattered; on the right
# the same cells are sorted, and lie in blocks. The model was not given the groups, and
# still the gates have found them: tasks of one hidden group use the same experts, and
# hardly any expert serves both groups. (The threshold is a choice: look at the matrix,
# and take a number between the two colours.)
#
# ## Use the groups: train them separately
#
# Tasks that share no expert gain nothing from one model. If the groups are trained
# separately, each has a small model that can be changed without the other. As a
# control, we also split the tasks at random, into groups of the same sizes. Each group
# gets four experts.


# %%
def test_errors(model):
    """The mean squared error of each task on test data."""
    predicted = model.predict(data.test.x, verbose=0)
    return [
        np.mean((outputs[:, 0] - data.test.y[:, int(name.removeprefix("task_"))]) ** 2)
        for name, outputs in predicted.items()
    ]


def apart(groups):
    """The errors of tasks that are trained group by group."""
    models = [train(order[group], num_experts=4) for group in groups]
    return np.concatenate([test_errors(model) for model in models])


shuffled = np.random.default_rng(1).permutation(32)
at_random = np.split(shuffled, np.cumsum([len(group) for group in found])[:-1])
errors = {
    "together": test_errors(together[0]),
    "apart, by the gates": apart(found),
    "apart, at random": apart(at_random),
}
for name, values in errors.items():
    print(f"{name:22s}test error {np.mean(values):.4f}")

# %% [markdown]
# If the tasks are split by the gates, they do as well as in one model. If they are
# split at random, each group has tasks of both kinds and four experts, where eight
# would be needed. The error is then nearly twice as large.

# %% [markdown]
# ## A recommender
#
# The next data set has eight tasks about what users do with recommendations
# (`recommender_sim`; the paper's own data is private). Five are about engagement, such
# as clicks and shares. Three are about satisfaction, such as likes and ratings. The
# share of positive labels is between 0.5 % and 60 %, depending on the task. Within a
# group, the interests of users have more in common.

# %% mystnb={"image": {"alt": "The experts of eight shop tasks in one run, and how many experts two tasks share, in two groups"}}
shop = datasets.recommender_sim(num_train=20_000, num_test=10_000)


def recommend(num_experts, num_nonzeros, seed=0):
    """A trained model of the eight tasks."""
    keras.utils.set_random_seed(seed)
    kinds = zip(shop.task_names, shop.task_kinds, strict=True)
    model = build_multitask_model(
        inputs=20,
        tasks=[Task(name, kind, tower=(8,)) for name, kind in kinds],
        experts=DenseExperts(num_experts, [32, 16]),
        gate=DSelectKGate(num_nonzeros, gamma=3.0),
    )
    model.compile(keras.optimizers.Adam(0.01))
    decide = DecideGates()
    model.fit(*shop.train, epochs=10, batch_size=500, callbacks=[decide], verbose=0)
    return model


recommenders = [recommend(8, 4, seed=seed) for seed in range(SEEDS)]
shop_weights = [weights_of(model) for model in recommenders]

figure, axes = plt.subplots(
    1, 2, figsize=(8.4, 3.0), layout="constrained", width_ratios=(1.2, 1)
)
plots.plot_expert_heatmap(
    shop_weights[0],
    task_names=shop.task_names,
    groups=shop.groups,
    title="which expert each task uses, run 0",
    ax=axes[0],
)
shared = np.mean([sharing(each) for each in shop_weights], axis=0)
sizes = {"engagement": 5, "satisfaction": 3}
image = draw(shared, axes[1], "experts that tasks share, mean of all runs", sizes)
figure.colorbar(image, ax=axes[1], label="Jaccard index", shrink=0.8)
plt.show()

for each in shop_weights:
    index = metrics.jaccard_index(each, shop.groups)
    print(f"within the groups {index.related:.2f}, across {index.unrelated:.2f}")

# %% [markdown]
# The lines in both figures separate engagement from satisfaction. If the gates had
# found these groups, tasks would share more experts on the same side of the line.
# They have not: of three runs, one shares more within the groups, one less, and one
# the same. A task with few positive labels carries little information, and the
# interests of both groups overlap. A single run can show groups by chance, so compare
# several seeds before you draw conclusions from a heat map.
#
# ## Use the sparsity: a smaller model
#
# Usually the right number of experts is not known in advance. So we train a second
# model with sixteen experts, of which each task keeps two. Its choice is constant, so
# `condense` can remove the experts that no task uses, and `per_task` extracts the
# sub-model of one task: its experts, its gate and its tower. Neither changes the
# predictions, except for rounding.

# %%
large = recommend(num_experts=16, num_nonzeros=2)
small = condense(large)
before = large.predict(shop.test.x, batch_size=1000, verbose=0)


def show(name, model):
    bank = model.get_layer("mmoe").experts
    after = model.predict(shop.test.x, batch_size=1000, verbose=0)
    change = max(np.abs(after[task] - before[task]).max() for task in after)
    print(
        f"{name:16s}{bank.num_experts:2d} experts, {model.count_params():5d} "
        f"parameters, largest change {change:.0e}"
    )


show("as trained", large)
show("condensed", small)
for name in shop.task_names:
    show(name, per_task(small, name))

# %% [markdown]
# The condensed model has the outputs of the large one. A server of one task alone needs
# its two experts only.
