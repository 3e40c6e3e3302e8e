"""Measure what helps when the gates of a mixture of experts collapse.

    python scripts/collapse.py

trains each model on examples of eight kinds, whose columns have not been centred: as in
ages and counts, the mean of a column is five times its deviation within a kind. All
models try the same learning rates, those that add something with each of its strengths,
of which one is zero. The settings with the lowest validation error on one problem, of
two seeds, are trained on two others, with three seeds each. What the output folder has
already is not trained again. The committed results are of

    python scripts/collapse.py --backend jax --out docs/results
"""

import itertools
import pathlib
import platform
import sys
from typing import Any

from command_line import (
    add_backend,
    check_names,
    choose_backend,
    count,
    make_parser,
)

KINDS, TASKS, FEATURES, EXPERTS, OFFSET = 8, 4, 16, 8, 5.0
SIZES = {"train": 3_000, "validation": 1_000, "test": 4_000}
EPOCHS, BATCH_SIZE = 20, 128
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # Of a penalty, relative to the loss.
TUNING_PROBLEM, PROBLEMS = 100, (0, 1)
TUNING_SEEDS, SEEDS = (0, 1), (0, 1, 2)
# An expert has died if it has less than this part of an even share.
DEAD = 0.1

# The strengths of each model; None is none.
ARMS = {
    "Top-2": None,
    "Top-2, expert dropout": (0.0, 0.003, 0.01, 0.03, 0.1, 0.3),
    "Top-2, importance": WEIGHTS,
    "Top-2, Switch's load": WEIGHTS,
    "Top-2, bias of the choice": (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0),
    "Top-2, normalized gate": None,
    "Top-2, standardized inputs": None,
    "Top-2, standardized inputs, importance": WEIGHTS,
    "softmax": None,
    "softmax, standardized inputs": None,
    "DSelect-2, entropy": (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0),
    "chosen by fit, 2, static": None,
    "shared bottom": None,
    "shared bottom, standardized inputs": None,
}


def settings_of(name):
    """List the settings of a model: strength and learning rate."""
    return list(itertools.product(ARMS[name] or [None], RATES))


def at_edge(name, strength, rate):
    """Whether a wider grid could have better settings than these."""
    # Nothing lies below a strength of zero.
    too_strong = strength is not None and strength == max(ARMS[name])
    return too_strong or rate in {min(RATES), max(RATES)}


def make_problem(seed):
    """Draw inputs and labels: each kind of example has a function per task."""
    import numpy as np

    rng = np.random.default_rng(seed)
    centers = 2.0 * rng.normal(size=(KINDS, FEATURES))
    maps = rng.normal(size=(KINDS, TASKS, FEATURES)) * 1.5 / FEATURES**0.5
    splits = {}
    for name, size in SIZES.items():
        kinds = rng.integers(KINDS, size=size)
        within = rng.normal(size=(size, FEATURES))
        y = np.sin(np.einsum("bd,btd->bt", within, maps[kinds]))
        x = centers[kinds] + within + OFFSET
        splits[name] = x.astype("float32"), (y / y.std()).astype("float32")
    return splits


def make_gate(name, strength):
    """Create the gate of a model."""
    from dselectk_keras import (
        ChosenGate,
        DSelectKGate,
        ImportanceRegularizer,
        SoftmaxGate,
        SwitchLoadRegularizer,
        TopKGate,
    )

    importance = ImportanceRegularizer(strength or 0.0)
    return {
        "Top-2, expert dropout": lambda: TopKGate(2, expert_dropout=strength),
        "Top-2, importance": lambda: TopKGate(2, weights_regularizer=importance),
        "Top-2, Switch's load": lambda: TopKGate(
            2, weights_regularizer=SwitchLoadRegularizer(strength)
        ),
        "Top-2, bias of the choice": lambda: TopKGate(
            2, scores="sigmoid", bias_rate=strength
        ),
        "Top-2, normalized gate": lambda: TopKGate(2, normalize=True),
        "softmax": SoftmaxGate,
        "DSelect-2, entropy": lambda: DSelectKGate(
            2, entropy_reg=strength, reduction="mean"
        ),
        "chosen by fit, 2, static": lambda: ChosenGate(2, seed=0),
        "shared bottom": lambda: None,
    }.get(name.replace(", standardized inputs", ""), lambda: TopKGate(2))()


def train(name, problem, seeds, settings, epochs, recorder=None):
    """Train a model on a problem, with each of some settings and seeds."""
    import keras

    from dselectk_keras import (
        ChooseExperts,
        DenseExperts,
        build_multitask_model,
        replicate,
    )

    data = make_problem(problem)
    bottom, static = name.startswith("shared bottom"), "static" in name

    def build(_, strength, rate):
        inputs = FEATURES
        if "standardized" in name:
            scale = keras.layers.Normalization()
            scale.adapt(data["train"][0])
            raw = keras.Input((FEATURES,))
            inputs = keras.Model(raw, scale(raw))
        number, units = (1, 8 * EXPERTS) if bottom else (EXPERTS, 8)
        model = build_multitask_model(
            inputs,
            [f"task_{task}" for task in range(TASKS)],
            "shared_bottom" if bottom else "mmoe",
            experts=DenseExperts(number, [units]),
            gate=make_gate(name, strength),
            per_example=not (bottom or static),
            stacked=True,
        )
        model.compile(keras.optimizers.Adam(rate))
        return model

    more = [ChooseExperts] * static + ([lambda: recorder] if recorder else [])
    pairs = list(itertools.product(seeds, settings))
    strengths, rates = zip(*[setting for _, setting in pairs], strict=True)
    runs = replicate(
        build,
        data["train"],
        seeds=[seed for seed, _ in pairs],
        settings={"strength": list(strengths), "rate": list(rates)},
        epochs=epochs,
        batch_size=BATCH_SIZE,
        callbacks=lambda: [make() for make in more],
        verbose=0,
    )
    return runs.copies, data


def measure(name, problem, seeds, settings, epochs):
    """Train, and measure errors, and how many experts are dead for each task."""
    import keras
    import numpy as np

    copies, data = train(name, problem, seeds, settings, epochs)
    runs, models = [], {}
    for copy in copies:
        # One model predicts for each strength: it is compiled once.
        model = models.setdefault(copy.settings["strength"], copy.model)
        model.set_weights(copy.model.get_weights())
        run = {"model": name, "problem": problem, "seed": copy.seed, **copy.settings}
        for split in ("validation", "test"):
            x, y = data[split]
            predicted = model.predict(x, batch_size=1_000, verbose=0)
            run[f"{split}_error"] = float(np.mean((predicted - y) ** 2))
        if not name.startswith("shared bottom"):
            gate = model.get_layer("mmoe").gate
            shown = data["test"][0]
            if "standardized" in name:
                train_x = data["train"][0]
                shown = (shown - train_x.mean(0)) / train_x.std(0)
            inputs = [shown] if gate.per_example else []
            weights = keras.ops.convert_to_numpy(gate.expert_weights(*inputs))
            shares = weights.mean(axis=0) if gate.per_example else weights
            dead = (shares < DEAD / EXPERTS).sum(axis=-1)
            run["dead_experts"] = float(dead.mean())
            run["largest_share"] = float(shares.max(axis=-1).mean())
        runs.append(run)
    return runs


def tune(name, epochs):
    """Find the settings of a model with the lowest validation error."""
    import numpy as np

    settings = settings_of(name)
    runs = measure(name, TUNING_PROBLEM, TUNING_SEEDS, settings, epochs)
    errors = np.reshape([run["validation_error"] for run in runs], (-1, len(settings)))
    means = np.nan_to_num(errors.mean(axis=0), nan=np.inf)
    return settings[int(np.argmin(means))]


def table(runs):
    """Format the means of the runs as a table in Markdown."""
    import numpy as np

    rows = []
    for name in dict.fromkeys(run["model"] for run in runs):
        own = [run for run in runs if run["model"] == name]
        errors = [run["test_error"] for run in own]
        spread = np.std(errors, ddof=1) if len(errors) > 1 else float("nan")
        cells = [name, "", "", f"{np.mean(errors):.3f} ± {spread:.3f}"]
        if "dead_experts" in own[0]:
            cells[1] = (
                f"{np.mean([run['dead_experts'] for run in own]):.1f} of {EXPERTS}"
            )
            cells[2] = f"{np.mean([run['largest_share'] for run in own]):.2f}"
        rows.append(f"| {' | '.join(cells)} |")
    heads = "| model | dead experts per task | largest share | test error |"
    return "\n".join([heads, "| --- | ---: | ---: | ---: |", *rows])


def draw(path, epochs):
    """Draw the gates of one task with the inputs as they are, and standardized."""
    import numpy as np

    from dselectk_keras import GateRecorder, plots
    from dselectk_keras.plots import style

    pyplot = style.import_pyplot()
    size = style.PAGE_WIDTH * 1.3, 2.5
    figure, axes = pyplot.subplots(
        1, 2, figsize=size, sharey=True, layout="constrained"
    )
    for ax, name in zip(axes, ("Top-2", "Top-2, standardized inputs"), strict=True):
        probe = make_problem(0)["test"][0][:500]
        recorder = GateRecorder(every=1, unit="epochs", probe=probe)
        train(name, 0, [0], [(None, 0.01)], epochs, recorder)
        history = recorder.history
        weights = history["mmoe"]["weights"][:, 0]
        order = np.argsort(-weights[-1])
        plots.plot_gate_weights(
            history.steps, weights, highlight=order[:4], title=name, ax=ax
        )
    # Names of elements that are the same each time.
    pyplot.rcParams["svg.hashsalt"] = "collapse"
    style.save_figure(figure, path, dpi=150, metadata={"Date": None})


def main(arguments=None):
    """Tune, train, print a table, and draw a picture."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/collapse", help="output folder")
    parser.add_argument("--epochs", type=count, default=EPOCHS, help="number of epochs")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), help="some models")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    import keras

    from experiments.files import numbers, read_json, write_json

    check_names("model", options.arms, ARMS)
    out = pathlib.Path(options.out)
    bar = keras.utils.Progbar(len(options.arms), unit_name="model")
    results: dict[str, Any] = {
        "command": f"python scripts/collapse.py --backend {keras.backend.backend()}",
        "epochs": options.epochs,
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "machine": f"{platform.machine()}, CPU",
        "runs": [],
    }
    path = out / "collapse.json"
    if path.exists():
        kept = read_json(path)
        for name in ("epochs", "backend"):
            if kept[name] != results[name]:
                parser.error(
                    f"{path} has results with {name} {kept[name]}. Received: "
                    f"{results[name]}. Pass another --out, or the same --{name}."
                )
        for run in kept["runs"]:
            errors = {f"{split}_error" for split in ("validation", "test")}
            run |= {name: numbers(run[name]) for name in errors & run.keys()}
        results = kept
    done = {run["model"] for run in results["runs"]}
    for name in options.arms:
        if name in done:
            continue
        best = [tune(name, options.epochs)]
        for problem in PROBLEMS:
            results["runs"] += measure(name, problem, SEEDS, best, options.epochs)
        bar.add(1)
        results["runs"].sort(key=lambda run: list(ARMS).index(run["model"]))
        write_json(path, results)
    draw(out / "collapse.svg", options.epochs)
    print(f"\n{table(results['runs'])}\n")
    print(f"Written to {out}: collapse.json and collapse.svg.")


if __name__ == "__main__":
    sys.exit(main())
