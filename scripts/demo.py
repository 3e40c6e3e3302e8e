"""Compare models of 64 tasks by their error and by the cost of serving one task.

    python scripts/demo.py

trains each model once, in two minutes or less on two cores, with settings that `--tune`
has found: of 16 settings per model, those with the lowest validation error on two
problems that are not reported. The committed results are of

    python scripts/demo.py --tune --seeds 10 --backend jax --out docs/results
"""

import dataclasses
import itertools
import json
import pathlib
import platform
import sys
from typing import Any

from command_line import add_backend, choose_backend, make_parser

NUM_INPUTS, NUM_TASKS = 30, 64
EPOCHS, BATCH_SIZE = 40, 128
RATES = (0.01, 0.03, 0.1, 0.3)
TUNING_SEEDS = (100, 101)
RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "results" / "demo.json"


@dataclasses.dataclass(frozen=True)
class Arm:
    """A model of the comparison.

    Args:
        title: What the table and the picture call it.
        num_experts: The number of experts; a shared bottom is one.
        units: The units of each expert.
        gate: The name of the gate, `None` for architectures without one.
        architecture: See `build_multitask_model`.
        decays: The weight decays to try.
        own: The values to try of what only this model has: `by` of `DecideGates` and
            `gamma`, or `noise` of `TopKGate` and the part of the steps that are dense.
    """

    title: str
    num_experts: int
    units: int
    gate: str | None = None
    architecture: str = "mmoe"
    decays: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)
    own: tuple = ((None, None),)

    def settings(self):
        """List the settings to try: learning rate, weight decay, own setting."""
        return list(itertools.product(RATES, self.decays, self.own))


ARMS = {
    "dselect_k": Arm(
        "DSelect-k, 2 of 16",
        16,
        16,
        "dselect_k",
        "mmoe",
        (0.0,),
        ((0.2, 1), (0.4, 1), (0.2, 4), (0.4, 4)),
    ),
    "top_k": Arm(
        "Top-k, 2 of 16",
        16,
        16,
        "top_k",
        "mmoe",
        (0.0,),
        tuple(itertools.product((False, True), (0.0, 0.2))),
    ),
    "random": Arm("random, 2 of 16", 16, 16, "random"),
    "softmax": Arm("softmax, all 16", 16, 16, "softmax"),
    "narrow": Arm("shared bottom, 32 units", 1, 32, None, "shared_bottom"),
    "wide": Arm("shared bottom, 105 units", 1, 105, None, "shared_bottom"),
    "single_task": Arm("one model per task", NUM_TASKS, 4, None, "single_task"),
}


def make_gate(arm, own, num_steps, seed):
    """Create the gate of a model."""
    from dselectk_keras import ChosenGate, DSelectKGate, SoftmaxGate, TopKGate

    return {
        None: lambda: None,
        "dselect_k": lambda: DSelectKGate(num_nonzeros=2, gamma=own[1]),
        "top_k": lambda: TopKGate(
            num_nonzeros=2, noise=own[0], dense_steps=round(own[1] * num_steps)
        ),
        "random": lambda: ChosenGate(2, seed=seed, trainable=False),
        "softmax": SoftmaxGate,
    }[arm.gate]()


def train(arm, seed, settings, epochs, callbacks=()):
    """Train a model on the problem of a seed. Return it and the data."""
    import keras

    from dselectk_keras import DecideGates, DenseExperts, build_multitask_model
    from dselectk_keras.datasets import grouped_tasks

    rate, decay, own = settings
    keras.utils.set_random_seed(seed)
    data = grouped_tasks(NUM_TASKS, seed=seed)
    num_steps = epochs * -(-len(data.train.x) // BATCH_SIZE)
    model = build_multitask_model(
        NUM_INPUTS,
        data.task_names,
        arm.architecture,
        experts=DenseExperts(arm.num_experts, [arm.units]),
        gate=make_gate(arm, own, num_steps, seed),
        per_example=False,
        stacked=True,
    )
    rates = keras.optimizers.schedules.CosineDecay(rate, num_steps)
    model.compile(keras.optimizers.AdamW(rates, weight_decay=decay))
    if arm.gate == "dselect_k":
        callbacks = [DecideGates(by=own[0]), *callbacks]
    options = {"epochs": epochs, "batch_size": BATCH_SIZE, "verbose": 0}
    model.fit(*data.train, callbacks=list(callbacks), **options)
    return model, data


def measure(name, seed, settings, epochs=EPOCHS, callbacks=()):
    """Train a model, and measure its errors and what serving one task takes."""
    import keras
    import numpy as np

    arm = ARMS[name]
    model, data = train(arm, seed, settings, epochs, callbacks)

    def error(split):
        # The labels have a variance of 1.
        predicted = model.predict(split.x, batch_size=1000, verbose=0)
        return float(np.mean((predicted - split.y) ** 2))

    experts = 1.0
    if arm.gate:
        weights = model.get_layer("mmoe").expert_weights()
        used = keras.ops.convert_to_numpy(weights) > 0
        experts = float(used.sum(axis=-1).mean())
    return {
        "model": name,
        "seed": seed,
        "settings": list(settings),
        "validation_error": error(data.validation),
        "test_error": error(data.test),
        "experts_per_task": experts,
        # The kernels of a task's experts, and its tower of one linear unit.
        "multiplications": round(experts * arm.units * (NUM_INPUTS + 1)),
        "parameters": sum(int(np.prod(v.shape)) for v in model.trainable_variables),
    }


def tune(name, bar, epochs):
    """Find the settings of a model with the lowest validation error."""
    import numpy as np

    def error(settings):
        runs = [measure(name, seed, settings, epochs) for seed in TUNING_SEEDS]
        bar.add(len(runs))
        return np.mean([run["validation_error"] for run in runs])

    return list(min(ARMS[name].settings(), key=error))


def summarize(runs) -> list[dict[str, Any]]:
    """Compute the mean and the standard deviation of each model over its seeds."""
    import numpy as np

    rows = []
    for name, arm in ARMS.items():
        own = [run for run in runs if run["model"] == name]
        errors = [run["test_error"] for run in own]
        row = {"title": arm.title, "error": np.mean(errors)}
        row["std"] = np.std(errors, ddof=1) if len(own) > 1 else float("nan")
        for key in ("multiplications", "parameters"):
            row[key] = np.mean([run[key] for run in own])
        rows.append(row)
    return rows


def table(rows):
    """Format the rows as a table in Markdown."""
    several = rows[0]["std"] == rows[0]["std"]  # NaN is not equal to itself.
    lines = [
        "| model | test error | multiplications per served task | parameters |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        error = f"{row['error']:.3f}" + (f" ± {row['std']:.3f}" if several else "")
        cells = row["title"], error, f"{row['multiplications']:,.0f}"
        lines.append(f"| {' | '.join(cells)} | {row['parameters']:,.0f} |")
    return "\n".join(lines)


def draw(rows, path):
    """Draw the error of each model over the cost of serving one task."""
    from dselectk_keras.plots import style

    figure, ax = style.open_axes(None, style.PAGE_WIDTH, 3.2)
    for number, row in enumerate(rows):
        color = style.COLORS[number % len(style.COLORS)]
        place = row["multiplications"], row["error"]
        std = row["std"] if row["std"] == row["std"] else None
        ax.errorbar(*place, yerr=std, fmt="o", color=color, capsize=2, markersize=5)
        # Names are to the right of their points: below, where another one is near.
        crowded = any(
            1.1 < other["multiplications"] / place[0] < 10
            and 0.5 < other["error"] / place[1] < 2
            for other in rows
        )
        ax.annotate(
            row["title"],
            place,
            xytext=(6, -13 if crowded else 4),
            textcoords="offset points",
            color=color,
            fontsize=style.SMALL_FONT,
        )
    ax.set(xscale="log", yscale="log", xlim=(90, 40_000))
    ticks = (0.02, 0.05, 0.1, 0.2, 0.4)
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    style.label(ax, "multiplications to serve one task", "test error (variance is 1)")
    style.save_figure(figure, path, dpi=150)


def main(arguments=None):
    """Train the models, print a table, and draw pictures."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/demo", help="output folder")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="number of epochs")
    parser.add_argument("--seeds", type=int, default=1, help="number of problems")
    parser.add_argument("--tune", action="store_true", help="search settings first")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    import keras

    from dselectk_keras import GateRecorder, plots
    from dselectk_keras.plots import style

    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    if options.tune:
        num_runs = len(TUNING_SEEDS) * sum(len(arm.settings()) for arm in ARMS.values())
        bar = keras.utils.Progbar(num_runs, unit_name="run")
        best = {name: tune(name, bar, options.epochs) for name in ARMS}
    else:
        best = json.loads(RESULTS.read_text(encoding="utf-8"))["settings"]

    recorder = GateRecorder()
    bar = keras.utils.Progbar(len(ARMS) * options.seeds, unit_name="model")
    runs = []
    for seed in range(options.seeds):
        for name in ARMS:
            recorded = name == "dselect_k" and seed == 0
            callbacks = [recorder] if recorded else []
            runs.append(measure(name, seed, best[name], options.epochs, callbacks))
            bar.add(1)
    results = {
        "settings": best,
        "epochs": options.epochs,
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "machine": f"{platform.machine()}, CPU",
        "runs": runs,
    }
    rows = summarize(runs)
    text = json.dumps(results, indent=1)
    (out / "demo.json").write_text(text + "\n", encoding="utf-8")
    draw(rows, out / "demo.png")
    if "dselect_k" in ARMS:
        history = recorder.history
        weights, events = history["mmoe"]["weights"][:, :4], history.events["mmoe"]
        figure = plots.plot_gate_weights(history.steps, weights, events=events)
        style.save_figure(figure, out / "demo_gates.png", dpi=150)
    print(f"\n{table(rows)}\n")
    print(f"Pictures: {out / 'demo.png'} (error and cost), and")
    print(f"{out / 'demo_gates.png'} (the gates of four tasks during training).")


if __name__ == "__main__":
    sys.exit(main())
