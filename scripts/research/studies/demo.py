"""Models of 64 tasks, by their error and by the cost of serving one task."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from dselectk_keras.datasets import grouped_tasks
from dselectk_keras.plots import plot_expert_heatmap, style
from dselectk_keras.plots.label_ends import spread_positions
from research.benches.pruned_bottom import PruneUnits, build_pruned_bottom
from research.engine import Arm, Experiment, by_group, drawing, preset, train_jobs
from research.engine.experiment import TRIAL_SEED

NUM_INPUTS = 30
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
SCHEDULES = ("cosine", "late")
DECAYS = (0.0, 1e-3, 1e-2, 0.1, 1.0)
TUNING_SEED = 100  # Of the first problem that is not reported.
FIT, LEARNED, FIXED, DENSE = "chosen by fit", "learned gate", "fixed gate", "no gate"
PRUNED_UNITS = 32
SHOWN = "2 of 16, side by side"


def _arm(kind, gate=None, architecture="mmoe", *, num_experts=16, units=16, **more):
    """A model with experts of these sizes."""
    space: dict[str, tuple] = {"rate": RATES, "schedule": SCHEDULES, "decay": DECAYS}
    if gate is _dselect_k:
        space = {"decide_by": (0.2, 0.5, 0.8), **space}
    sizes = {"num_experts": num_experts, "units": units, "side_by_side": False}
    more = {"kind": kind, **sizes, **more}
    return Arm(gate, architecture, space=space, choose=kind == FIT, more=more)


# Gates, by a seed, the number of steps and the groups of the tasks.
def _dselect_k(*_):
    return dk.DSelectKGate(2, gamma=3.0)


def _chosen(seed, *_):
    return dk.ChosenGate(2, seed=seed)


def _random(seed, *_):
    return dk.ChosenGate(2, "random", seed=seed, trainable=False)


def _known(_seed, _steps, groups):
    # Two experts for each group.
    known = 2 * np.array(groups)[:, None] + np.arange(2)
    return dk.ChosenGate(initial_choices=known, num_gates=len(groups))


def _bottom(units, architecture="shared_bottom", num_experts=1):
    sizes = {"num_experts": num_experts, "units": units}
    return _arm(DENSE, None, architecture, **sizes)


MODELS = {
    SHOWN: _arm(FIT, _chosen, side_by_side=True),
    "2 of 16, mixed": _arm(FIT, _chosen),
    "8 of 64, side by side": _arm(
        FIT,
        lambda seed, *_: dk.ChosenGate(8, seed=seed),
        num_experts=64,
        units=4,
        side_by_side=True,
    ),
    "Top-k, noisy, dense first, 2 of 16": _arm(
        LEARNED, lambda _, steps, __: dk.TopKGate(2, noise=True, dense_steps=steps // 5)
    ),
    "Top-k, 2 of 16": _arm(LEARNED, lambda *_: dk.TopKGate(2)),
    "DSelect-k, 2 of 16": _arm(LEARNED, _dselect_k),
    "softmax, all 16": _arm(LEARNED, lambda *_: dk.SoftmaxGate()),
    "known groups, 2 of 16, mixed": _arm(FIXED, _known),
    "random, 2 of 16, mixed": _arm(FIXED, _random),
    "random, 2 of 16, side by side": _arm(FIXED, _random, side_by_side=True),
    "shared bottom, 256 units pruned to 32": _bottom(256, "pruned"),
    "shared bottom, 256 units": _bottom(256),
    "shared bottom, 105 units": _bottom(105),
    "shared bottom, 32 units": _bottom(32),
    "one model per task": _bottom(4, "single_task", 64),
}
# Those that say the most in a minute.
FEW = (
    SHOWN,
    "Top-k, noisy, dense first, 2 of 16",
    "softmax, all 16",
    "shared bottom, 256 units",
)


# Points whose names are above or below them: alignments, and how far.
BESIDE = {
    "one model per task": ("left", "bottom", 0.04),
    "softmax, all 16": ("right", "bottom", 0.07),
    "shared bottom, 105 units": ("center", "top", -0.06),
}


class FollowRates(keras.callbacks.Callback):
    """Sets the learning rate of each epoch to that of the model's schedule."""

    def on_epoch_begin(self, epoch, logs=None):
        """Set the rate."""
        self.model.optimizer.learning_rate = self.model.rates[epoch]


@dataclasses.dataclass(frozen=True)
class Demo(Experiment):
    """Fifteen models, each on problems of 64 tasks in eight groups.

    All have the same 50 settings: learning rates, weight decays and schedules, a
    cosine, or constant for 55 % of the training and then falling. DSelect-k has three
    times as many, since it also tries when to decide. Those with the lowest validation
    error on two problems are trained on others, one for each seed.
    """

    name = "demo"
    title = "the error of 64 tasks, and the cost of serving one"
    pictures = ("errors.png",)
    together = 100  # All trials of an arm on a problem.
    page = "{table_errors}"

    seeds: int = preset(10, smoke=1)
    trial_runs: int = preset(2, smoke=1)
    sampler: str = "grid"
    num_tasks: int = preset(64, smoke=16)
    epochs: int = preset(40, smoke=5)
    batch_size: int = 128

    @property
    def arms(self):
        """The models, by their titles."""
        return MODELS

    def run(self, arm, jobs):
        """Train the jobs of a problem together, and of a time to decide."""

        def train(key, same):
            return self._run(self.arms[arm], key, same)

        return by_group(jobs, problem_of, train)

    def _run(self, arm, key, jobs):
        problem, decide_by = key
        data = grouped_tasks(self.num_tasks, seed=problem)
        steps = self.epochs * math.ceil(len(data.train.x) / self.batch_size)
        callbacks: list[Any] = [FollowRates]
        if decide_by:
            callbacks.append(lambda: dk.DecideGates(by=decide_by))
        if arm.architecture == "pruned":
            callbacks.append(lambda: PruneUnits(data.train.x[:1000], PRUNED_UNITS))

        def build(_, rate, schedule, decay, decide_by=None):  # noqa: ARG001
            gate = arm.gate and arm.gate(problem, steps, data.groups)
            model = build_model(arm, data, gate)
            part = np.arange(self.epochs) / self.epochs
            if schedule == "late":
                model.rates = rate * np.interp(part, [0.55, 1.0], [1.0, 0.05])
            else:
                model.rates = rate * (0.5 + 0.5 * np.cos(math.pi * part))
            model.compile(keras.optimizers.AdamW(rate, weight_decay=decay))
            return model

        runs = train_jobs(
            build,
            data,
            [job._replace(seed=problem) for job in jobs],
            choose=arm.choose,
            callbacks=callbacks,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        pairs = zip(runs.copies, jobs, strict=True)
        return [measure(arm, copy.model, data, job) for copy, job in pairs]

    def table_errors(self, results):
        """Error and cost of each model that was run."""
        rows: list[Any] = [
            "experts | model | test error: | multiplications per task: | parameters:"
        ]
        for arm, model in self.arms.items():
            if results.of(arm):
                error = results.spread(arm, "test_error")
                sizes = [
                    f"{results.mean(arm, name):,.0f}"
                    for name in ("multiplications", "parameters")
                ]
                rows.append([model.more["kind"], title_of(arm), error, *sizes])
        return rows

    def draw_errors(self, results):
        """The error of each model over the cost of serving one task."""
        figure, ax = style.open_axes(None, style.PAGE_WIDTH, 3.6)
        kinds = dict(zip((FIT, LEARNED, FIXED, DENSE), style.COLORS, strict=False))
        labelled, places = set(), {}
        for arm in filter(results.of, self.arms):
            kind = self.arms[arm].more["kind"]
            errors = results.values(arm, "test_error")
            place = results.mean(arm, "multiplications"), errors.mean()
            ax.errorbar(
                *place,
                yerr=errors.std(ddof=1) if len(errors) > 1 else None,
                fmt="o",
                color=kinds[kind],
                capsize=2,
                label=None if kind in labelled else kind,
            )
            labelled.add(kind)
            places[arm] = place
        ax.set(xscale="log", yscale="log", xlim=(80, 11000))
        for axis, ticks in (
            (ax.xaxis, (100, 200, 500, 1000, 2000, 5000, 10_000)),
            (ax.yaxis, (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)),
        ):
            axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.set_ticks([], minor=True)
        style.tidy_axes(ax, "y")
        drawing.label(
            ax, "multiplications to serve one task", "test error (variance is 1)"
        )
        ax.legend(title="experts of a task", frameon=False, fontsize=style.SMALL_FONT)
        colors = [kinds[self.arms[arm].more["kind"]] for arm in places]
        titles = {title_of(arm): place for arm, place in places.items()}
        name_points(ax, titles, colors)
        return figure

    def draw_experts(self, results):
        """The experts that each task uses, in their groups."""
        weights = np.array(results.ran(SHOWN)[0].numbers["weights"])
        groups = grouped_tasks(self.num_tasks).groups
        return plot_expert_heatmap(weights, groups=groups)


def title_of(arm):
    """The name of a model for readers, by the argument of its gate."""
    return arm.replace("dense first", "dense_steps")


def name_points(ax, places, colors):
    """Write the names of points to their left, in a column where they cost the same.

    Args:
        ax: Axes whose limits are set.
        places: A dict from names to points.
        colors: A list of their colours.
    """
    ax.figure.draw_without_rendering()
    to_axes = ax.transData + ax.transAxes.inverted()
    points = {name: to_axes.transform(place) for name, place in places.items()}
    # Those in the middle are at nearly one x.
    column = [name for name, (x, _) in points.items() if 0.35 < x < 0.65]
    gap = 1.7 * style.SMALL_FONT * ax.figure.dpi / 72 / ax.get_window_extent().height
    spread = spread_positions([points[name][1] for name in column], gap)
    heights = dict(zip(column, spread, strict=True))
    for (name, (x, y)), color in zip(points.items(), colors, strict=True):
        text = {"fontsize": style.SMALL_FONT, "color": color, "ha": "right"}
        place, text["va"] = (x - 0.02, y), "center"
        if name in BESIDE:
            text["ha"], text["va"], rise = BESIDE[name]
            place = x, y + rise
        elif name in heights:
            place = 0.45, heights[name]
            text["arrowprops"] = {"arrowstyle": "-", "lw": 0.6, "color": color}
            text["arrowprops"] |= {"shrinkA": 0, "shrinkB": 3, "relpos": (1, 0.5)}
        ax.annotate(name, (x, y), place, *["axes fraction"] * 2, **text)


def problem_of(job):
    """The seed of the problem of a job, and when its gates decide."""
    seed = job.seed - TRIAL_SEED + TUNING_SEED if job.is_trial else job.seed
    return seed, job.settings.get("decide_by")


def build_model(arm, data, gate):
    """Build the model of an arm; it is not compiled yet."""
    experts = dk.DenseExperts(arm.more["num_experts"], [arm.more["units"]])
    if arm.architecture == "pruned":
        tasks = [dk.Task(name) for name in data.task_names]
        return build_pruned_bottom(NUM_INPUTS, tasks, experts)
    options = {"side_by_side": arm.more["side_by_side"]} if gate else {}
    return dk.build_multitask_model(
        NUM_INPUTS,
        data.task_names,
        arm.architecture,
        experts=experts,
        gate=gate,
        per_example=False,
        stacked=True,
        **options,
    )


def multiplications(arm, units):
    """Count the products of kernels and inputs if a task that reads units is served."""
    mixed = arm.gate and not arm.more["side_by_side"]
    # The tower is one linear unit. Shares are folded into the kernels of the experts.
    return round(units * NUM_INPUTS + (arm.more["units"] if mixed else units))


def measure(arm, model, data, job):
    """The errors of a model, and what serving one task takes."""

    def error(split):
        # The labels have a variance of 1.
        predicted = model.predict(split.x, batch_size=1000, verbose=0)
        return float(np.mean((predicted - split.y) ** 2))

    found: dict[str, Any] = {"objective": error(data.validation)}
    if job.is_trial:
        return found
    units: float = arm.more["units"]
    if arm.gate:
        weights = model.get_layer("mmoe").expert_weights()
        weights = keras.ops.convert_to_numpy(weights)
        units *= float((weights > 0).sum(axis=-1).mean())
        if arm is MODELS[SHOWN] and job.seed == 0:
            found["weights"] = weights
    elif arm.architecture == "pruned":
        mask = keras.ops.convert_to_numpy(model.get_layer("units").mask)
        units = float(mask.sum(axis=-1).mean())
    return {
        **found,
        "test_error": error(data.test),
        "multiplications": multiplications(arm, units),
        "parameters": sum(math.prod(v.shape) for v in model.trainable_variables),
    }
