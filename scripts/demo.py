"""Compare models of 64 tasks by their error and by the cost of serving one task.

    python scripts/demo.py

trains four models once, in about a minute on two cores. `--all` trains all fifteen.
Their settings were found by `--tune`: those with the lowest validation error on two
problems that are not reported. All models have the same 32 settings: learning rates,
weight decays and schedules, a cosine, or constant for 55 % of the training and then
falling. DSelect-k has three times as many, since it also tries when to decide. The
committed results are of

    python scripts/demo.py --all --tune --seeds 10 --backend jax --out docs/results
"""

import dataclasses
import itertools
import json
import math
import pathlib
import platform
import sys
from typing import Any

from command_line import add_backend, choose_backend, count, make_parser

NUM_INPUTS, NUM_TASKS = 30, 64
EPOCHS, BATCH_SIZE = 40, 128
RATES = (0.01, 0.03, 0.1, 0.3)
SCHEDULES = ("cosine", "late")
DECAYS = (0.0, 1e-3, 1e-2, 0.1)
TUNING_SEEDS = (100, 101)
RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "results" / "demo.json"


@dataclasses.dataclass(frozen=True)
class Arm:
    """A model of the comparison.

    Args:
        title: What the table and the picture call it.
        kind: What decides which experts a task reads.
        num_experts: The number of experts; a shared bottom is one.
        units: The units of each expert.
        gate: The name of the gate, `None` for architectures without one.
        architecture: See `build_multitask_model`; or `"pruned"`.
        own: The values to try of `by`, the argument of `DecideGates`.
        k: The number of experts per task.
        side_by_side: Whether a task reads its experts side by side, not mixed.
    """

    title: str
    kind: str
    num_experts: int
    units: int
    gate: str | None = None
    architecture: str = "mmoe"
    own: tuple = (None,)
    k: int = 2
    side_by_side: bool = False

    def settings(self):
        """List the settings to try: own one, learning rate, schedule, weight decay."""
        return list(itertools.product(self.own, RATES, SCHEDULES, DECAYS))


FIT, LEARNED, FIXED, DENSE = "chosen by fit", "learned gate", "fixed gate", "no gate"
ARMS = {
    "side": Arm("2 of 16, side by side", FIT, 16, 16, "chosen", side_by_side=True),
    "chosen": Arm("2 of 16, mixed", FIT, 16, 16, "chosen"),
    "small": Arm("8 of 64, side by side", FIT, 64, 4, "chosen", k=8, side_by_side=True),
    "noisy": Arm("Top-k, noisy, dense first, 2 of 16", LEARNED, 16, 16, "noisy"),
    "top_k": Arm("Top-k, 2 of 16", LEARNED, 16, 16, "top_k"),
    "dselect_k": Arm(
        "DSelect-k, 2 of 16", LEARNED, 16, 16, "dselect_k", own=(0.2, 0.5, 0.8)
    ),
    "softmax": Arm("softmax, all 16", LEARNED, 16, 16, "softmax"),
    "known": Arm("known groups, 2 of 16, mixed", FIXED, 16, 16, "known"),
    "random": Arm("random, 2 of 16, mixed", FIXED, 16, 16, "random"),
    "random_side": Arm(
        "random, 2 of 16, side by side", FIXED, 16, 16, "random", side_by_side=True
    ),
    "pruned": Arm(
        "shared bottom, 256 units pruned to 32", DENSE, 1, 256, None, "pruned"
    ),
    "dense": Arm("shared bottom, 256 units", DENSE, 1, 256, None, "shared_bottom"),
    "wide": Arm("shared bottom, 105 units", DENSE, 1, 105, None, "shared_bottom"),
    "narrow": Arm("shared bottom, 32 units", DENSE, 1, 32, None, "shared_bottom"),
    "single_task": Arm("one model per task", DENSE, NUM_TASKS, 4, None, "single_task"),
}
# Those that say the most in a minute.
FEW = "side", "noisy", "softmax", "dense"
IN_PICTURE = {ARMS[name].title for name in (*FEW, "random_side", "narrow")}
PRUNED_UNITS = 32


def make_gate(arm, data, num_steps, seed):
    """Create the gate of a model."""
    import numpy as np

    from dselectk_keras import ChosenGate, DSelectKGate, SoftmaxGate, TopKGate

    # Two experts for each group.
    known = 2 * np.array(data.groups)[:, None] + np.arange(2)
    return {
        None: lambda: None,
        "chosen": lambda: ChosenGate(arm.k, seed=seed),
        "dselect_k": lambda: DSelectKGate(2, gamma=3.0),
        "top_k": lambda: TopKGate(2),
        "noisy": lambda: TopKGate(2, noise=True, dense_steps=num_steps // 5),
        "known": lambda: ChosenGate(initial_choices=known, num_gates=NUM_TASKS),
        "random": lambda: ChosenGate(2, "random", seed=seed, trainable=False),
        "softmax": SoftmaxGate,
    }[arm.gate]()


def make_callbacks(arm, own, x):
    """Create the callbacks of a model; that of the learning rate comes first."""
    import keras
    from pruned_bottom import PruneUnits

    from dselectk_keras import ChooseExperts, DecideGates

    class FollowRates(keras.callbacks.Callback):
        """Sets the learning rate of each epoch to that of the model's schedule."""

        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = self.model.rates[epoch]

    more = {
        "dselect_k": lambda: DecideGates(by=own),
        "chosen": ChooseExperts,
        "pruned": lambda: PruneUnits(x, PRUNED_UNITS),
    }
    name = arm.gate or arm.architecture
    return [FollowRates(), *([more[name]()] if name in more else [])]


def train(arm, seed, settings, epochs):
    """Train a model with each of some settings on the problem of a seed."""
    import keras
    import numpy as np
    from pruned_bottom import build_pruned_bottom

    from dselectk_keras import DenseExperts, Task, build_multitask_model, replicate
    from dselectk_keras.datasets import grouped_tasks

    data = grouped_tasks(NUM_TASKS, seed=seed)
    num_steps = epochs * math.ceil(len(data.train.x) / BATCH_SIZE)

    def build(seed, rate, schedule, decay):
        experts = DenseExperts(arm.num_experts, [arm.units])
        options = {"side_by_side": arm.side_by_side} if arm.gate else {}
        if arm.architecture == "pruned":
            tasks = [Task(name) for name in data.task_names]
            model = build_pruned_bottom(NUM_INPUTS, tasks, experts)
        else:
            model = build_multitask_model(
                NUM_INPUTS,
                data.task_names,
                arm.architecture,
                experts=experts,
                gate=make_gate(arm, data, num_steps, seed),
                per_example=False,
                stacked=True,
                **options,
            )
        part = np.arange(epochs) / epochs
        if schedule == "late":
            model.rates = rate * np.interp(part, [0.55, 1.0], [1.0, 0.05])
        else:
            model.rates = rate * (0.5 + 0.5 * np.cos(math.pi * part))
        optimizer = keras.optimizers.AdamW(rate, weight_decay=decay)
        model.compile(optimizer)
        return model

    models = []
    for own, group in itertools.groupby(settings, key=lambda each: each[0]):
        same = [each[1:] for each in group]
        names = "rate", "schedule", "decay"
        runs = replicate(
            build,
            data.train,
            seeds=[seed] * len(same),
            settings=dict(zip(names, map(list, zip(*same, strict=True)), strict=True)),
            epochs=epochs,
            batch_size=BATCH_SIZE,
            callbacks=lambda own=own: make_callbacks(arm, own, data.train.x[:1000]),
            verbose=0,
        )
        models += [copy.model for copy in runs.copies]
    return models, data


def multiplications(arm, units):
    """Count the products of kernels and inputs if a task that reads units is served."""
    mixed = arm.gate and not arm.side_by_side
    # The tower is one linear unit. Shares are folded into the kernels of the experts.
    return round(units * NUM_INPUTS + (arm.units if mixed else units))


def measure(name, seed, settings, epochs=EPOCHS):
    """Train models, and measure their errors and what serving one task takes."""
    import keras
    import numpy as np

    arm = ARMS[name]
    models, data = train(arm, seed, settings, epochs)

    def error(model, split):
        # The labels have a variance of 1.
        predicted = model.predict(split.x, batch_size=1000, verbose=0)
        return float(np.mean((predicted - split.y) ** 2))

    runs = []
    for model, setting in zip(models, settings, strict=True):
        units: float = arm.units
        if arm.gate:
            weights = model.get_layer("mmoe").expert_weights()
            used = keras.ops.convert_to_numpy(weights) > 0
            units *= float(used.sum(axis=-1).mean())
        elif arm.architecture == "pruned":
            mask = keras.ops.convert_to_numpy(model.get_layer("units").mask)
            units = float(mask.sum(axis=-1).mean())
        run = {
            "model": name,
            "seed": seed,
            "settings": list(setting),
            "validation_error": error(model, data.validation),
            "test_error": error(model, data.test),
            "multiplications": multiplications(arm, units),
            "parameters": sum(math.prod(v.shape) for v in model.trainable_variables),
        }
        runs.append(run)
    return runs, models


def tune(name, bar, epochs):
    """Find the settings of a model with the lowest validation error."""
    import numpy as np

    settings = ARMS[name].settings()
    errors = []
    for seed in TUNING_SEEDS:
        runs, _ = measure(name, seed, settings, epochs)
        errors.append([run["validation_error"] for run in runs])
        bar.add(len(runs))
    # A training that failed has NaN.
    means = np.nan_to_num(np.mean(errors, axis=0), nan=np.inf)
    return list(settings[int(np.argmin(means))])


def summarize(runs) -> list[dict[str, Any]]:
    """Compute the mean and the standard deviation of each model over its seeds."""
    import numpy as np

    rows = []
    for name, arm in ARMS.items():
        own = [run for run in runs if run["model"] == name]
        errors = [run["test_error"] for run in own]
        if not own:
            continue
        row = {"title": arm.title, "kind": arm.kind, "error": np.mean(errors)}
        row["std"] = np.std(errors, ddof=1) if len(own) > 1 else float("nan")
        for key in ("multiplications", "parameters"):
            row[key] = np.mean([run[key] for run in own])
        rows.append(row)
    return rows


def table(rows):
    """Format the rows as a table in Markdown."""
    several = rows[0]["std"] == rows[0]["std"]  # NaN is not equal to itself.
    lines = [
        "| experts | model | test error | multiplications per task | parameters |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        error = f"{row['error']:.3f}" + (f" ± {row['std']:.3f}" if several else "")
        cells = row["kind"], row["title"], error, f"{row['multiplications']:,.0f}"
        lines.append(f"| {' | '.join(cells)} | {row['parameters']:,.0f} |")
    return "\n".join(lines)


def draw(rows, path):
    """Draw the error of each model over the cost of serving one task."""
    from dselectk_keras.plots import style

    figure, ax = style.open_axes(None, style.PAGE_WIDTH, 3.2)
    kinds = dict(zip((FIT, LEARNED, FIXED, DENSE), style.COLORS, strict=False))
    labelled = set()
    for row in rows:
        kind, color = row["kind"], kinds[row["kind"]]
        ax.errorbar(
            row["multiplications"],
            row["error"],
            yerr=row["std"] if row["std"] == row["std"] else None,
            fmt="o",
            color=color,
            capsize=2,
            label=None if kind in labelled else kind,
        )
        labelled.add(kind)
        right = row["multiplications"] > 3000
        ax.annotate(
            row["title"],
            (row["multiplications"], row["error"]),
            xytext=(-7 if right else 7, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
            fontsize=style.SMALL_FONT,
            color=color,
        )
    ax.set(xscale="log", yscale="log", xlim=(700, 11000))
    for axis, ticks in (
        (ax.xaxis, (1000, 2000, 4000, 8000)),
        (ax.yaxis, (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)),
    ):
        axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.set_ticks([], minor=True)
    style.tidy_axes(ax, "y")
    style.label(ax, "multiplications to serve one task", "test error (variance is 1)")
    if labelled:
        ax.legend(title="experts of a task", frameon=False, fontsize=style.SMALL_FONT)
    style.save_figure(figure, path, dpi=200)


def draw_experts(model, path):
    """Draw which experts each task uses, in their groups."""
    import keras

    from dselectk_keras.datasets import grouped_tasks
    from dselectk_keras.plots import plot_expert_heatmap, style

    weights = keras.ops.convert_to_numpy(model.get_layer("mmoe").expert_weights())
    groups = grouped_tasks(NUM_TASKS, 1, 1, 1).groups
    style.save_figure(plot_expert_heatmap(weights, groups=groups), path, dpi=200)


def main(arguments=None):
    """Train the models, print a table, and draw pictures."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/demo", help="output folder")
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"train all {len(ARMS)} models, in minutes, not only {len(FEW)}",
    )
    parser.add_argument("--epochs", type=count, default=EPOCHS, help="number of epochs")
    parser.add_argument("--seeds", type=count, default=1, help="number of problems")
    parser.add_argument("--tune", action="store_true", help="search settings first")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    import keras

    from experiments.files import write_json

    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    names = list(ARMS) if options.all else FEW
    if options.tune:
        num_runs = len(TUNING_SEEDS) * sum(len(ARMS[name].settings()) for name in names)
        bar = keras.utils.Progbar(num_runs, unit_name="run")
        best = {name: tune(name, bar, options.epochs) for name in names}
    else:
        kept = json.loads(RESULTS.read_text(encoding="utf-8"))["settings"]
        best = {name: kept[name] for name in names}

    print(f"Training {len(names)} models of {NUM_TASKS} tasks.")
    print("test error  multiplications per served task")
    runs = []
    for seed in range(options.seeds):
        for name in names:
            (run,), (model,) = measure(name, seed, [best[name]], options.epochs)
            runs.append(run)
            if name == "side" and seed == 0:
                draw_experts(model, out / "demo_gates.png")
            error, cost = run["test_error"], run["multiplications"]
            arm = ARMS[name]
            print(f"{error:10.3f}  {cost:15,}  {arm.kind}: {arm.title}", flush=True)
    results = {
        "settings": best,
        "epochs": options.epochs,
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "machine": f"{platform.machine()}, CPU",
        "runs": runs,
    }
    write_json(out / "demo.json", results)
    rows = summarize(runs)
    draw([row for row in rows if row["title"] in IN_PICTURE], out / "demo.png")
    print(f"\n{table(rows)}\n")
    print(f"Pictures: {out / 'demo.png'} (error and cost), and")
    print(f"{out / 'demo_gates.png'} (the experts of each task).")


if __name__ == "__main__":
    sys.exit(main())
