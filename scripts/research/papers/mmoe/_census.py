"""Common parts of Tables 1 and 2, on census data."""

import abc
import dataclasses
import functools
import itertools
import math
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np

import dselectk_keras as dk
from dselectk_keras.tables.scores import area_under_curve
from dselectk_keras.utils import num_trained
from research.engine import (
    Claim,
    Experiment,
    Fact,
    Judged,
    all_positive,
    compare,
    preset,
    search,
    stand_in,
    train_jobs,
)
from research.engine.reproduce import in_words
from research.engine.results import NotRunError, format_mean
from research.engine.train_jobs import best_epoch
from research.papers import citations
from research.papers.data import census_income
from research.papers.data.changes import only_tasks

AUXILIARY = "never_married"
# The paper tunes a model of its own for the auxiliary task alone.
SINGLE, SINGLE_AUXILIARY = "single-task", "single-task, auxiliary"
SHARED, TENSOR = "shared-bottom", "tensor factorization"
ARCHITECTURES = {
    SINGLE: "single_task",
    SINGLE_AUXILIARY: "single_task",
    SHARED: "shared_bottom",
    "L2-constrained": "l2_constrained",
    "cross-stitch": "cross_stitch",
    TENSOR: "tensor_factorization",
    "OMoE": "omoe",
    "MMoE": "mmoe",
}
WITH_STAND_IN = (SHARED, "OMoE", "MMoE")  # Enough to see that everything works.
CORRELATED = 10_000  # On so many examples the paper measures the labels' correlation.


class Published(NamedTuple):
    """Areas under the ROC curve of the main and of the other task, in the paper."""

    best: float
    mean: float
    other_best: float  # In the run that is best at the main task.
    other_mean: float


@dataclasses.dataclass(frozen=True)
class Census(Experiment, abc.ABC):
    """Seven methods on two tasks about the people in a census."""

    group: ClassVar[int]
    correlation: ClassVar[float]  # The paper's, of the labels.
    main: ClassVar[str]
    asks: ClassVar[str]  # What the main task is, in words.
    # MMoE beside the best other method: where, and what, the paper says; by how much it
    # may be lower; its numbers.
    best_other: ClassVar[tuple[str, str, float, str]]
    paper = citations.MMOE
    published: ClassVar[dict[str, Published]]
    needs = ("UCI Census-Income", 500)

    seeds: int = preset(10, paper=400, smoke=1)
    trials: int = preset(16, paper=2000, smoke=0)
    sampler: str = "gp"
    stand_in: bool = preset(False, smoke=True)
    test_file_only: bool = preset(True, paper=False)  # See `data.census_income`.
    max_units: int = preset(512, paper=2048, smoke=16)  # Of all experts together.
    tower: int = 16  # Units of a task's hidden layer; tuned for cross-stitch.
    epochs: int = preset(12, paper=100, smoke=1)  # The most.
    patience: int = preset(3, paper=10, smoke=2)  # Epochs without a better validation.
    batch_size: int = preset(1024, smoke=48)

    @property
    def arms(self):
        names = WITH_STAND_IN if self.stand_in else ARCHITECTURES
        return {name: ARCHITECTURES[name] for name in names}

    @property
    def methods(self):
        """The arms that have the main task, and are compared."""
        return [arm for arm in self.arms if arm != SINGLE_AUXILIARY]

    def space(self, arm):
        # Widths are powers of two: models of the same widths share compiled programs.
        most = int(math.log2(self.max_units))
        widths, share = (most - 4, most), (0.05, 1.0)
        own = {
            "L2-constrained": {"strength": (1e-7, 1e-2)},
            "cross-stitch": {"log2_tower": widths},
            TENSOR: {"rank": share, "unit_rank": share, "task_rank": (1, 2)},
            "OMoE": {"log2_experts": (1, 4)},
            "MMoE": {"log2_experts": (1, 4)},
        }
        both = {"learning_rate": (2e-4, 5e-2), "log2_units": widths}
        return both | own.get(arm, {})

    def run(self, arm, jobs):
        data = self._data(arm)
        monitor = f"val_{data.task_names[0]}_AUC"
        runs = train_jobs(
            functools.partial(self._build, arm, data),
            data,
            jobs,
            epochs=self.epochs,
            batch_size=self.batch_size,
            best={"monitor": monitor, "mode": "max", "patience": self.patience},
        )
        return [self._numbers(copy, data) for copy in runs.copies]

    def _data(self, arm):
        if self.stand_in:
            data = stand_in((6,), {self.main: "binary", AUXILIARY: "binary"})
        else:
            data = _load(self.group, self.test_file_only, data_dir=self.data_dir)
        alone = {SINGLE: self.main, SINGLE_AUXILIARY: AUXILIARY}.get(arm)
        return only_tasks(data, {alone: alone}) if alone else data

    def _build(
        self,
        arm,
        data,
        _seed,
        learning_rate=3e-3,
        log2_units=4,
        log2_experts=3,
        log2_tower=None,
        rank=0.5,
        unit_rank=0.5,
        task_rank=2,
        **options,
    ):
        inputs, units = data.train.x.shape[1], 2**log2_units
        experts = 2**log2_experts if arm in {"OMoE", "MMoE"} else 1
        if arm == TENSOR:
            shares = rank * inputs, unit_rank * units
            options["ranks"] = (*map(math.ceil, shares), task_rank)
        tower = self.tower if log2_tower is None else 2**log2_tower
        one = {"tower": (tower,), "metrics": ("AUC",)}
        model = dk.build_multitask_model(
            inputs,
            [dk.Task(name, "binary", **one) for name in data.task_names],
            ARCHITECTURES[arm],
            experts=dk.DenseExperts(experts, [max(1, round(units / experts))]),
            per_example=True,
            **options,
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model

    def _numbers(self, copy, data):
        """The areas on test data, what tuning looks at, and the labels' correlation."""
        model = copy.model
        held_out = areas(model, data.validation)
        return {
            "objective": 1 - held_out[data.task_names[0]],
            "epochs": best_epoch(copy) + 1,
            "num_params": num_trained(model),
            **areas(model, data.test),
            **correlation_of_labels(data, copy.seed),
        }

    # Methods for the pages.

    def ranked(self, results, *without):
        """The methods by the mean of the main task, from the lowest."""
        arms = (arm for arm in self.methods if arm not in without)
        return sorted(arms, key=lambda arm: results.mean(arm, self.main))

    def versus(self, results, arm, other):
        """The means of two methods, and their difference, as text."""
        both = (f"{each} {results.text(each, self.main, 4)}" for each in (arm, other))
        return f"{', '.join(both)}; difference {results.gap(arm, other, self.main)}."

    def is_above(self, results, arms, others, slack=0.0, known=True):
        """Judge whether means are above others by more than chance and luck in tuning.

        Half of the paper's differences, if `known`, is the limit of `NIL`. Seeds do not
        make up for luck: where it sets an error, they would not decide.
        """
        luck, gaps, effects, by_luck = luck_of_trials(results), [], [], False
        for arm, other in itertools.product(arms, others):
            gap = results.gap(arm, other, self.main)
            error = max(gap.error, *(luck.get(each, 0.0) / 2 for each in (arm, other)))
            by_luck |= error > gap.error
            gaps.append(gap._replace(error=error))
            theirs = self.published[arm].mean - self.published[other].mean
            effects.append(theirs if known else 0.0)
        judged = all_positive(gaps, effects, over=-slack)
        return needs_searches(results, judged) if by_luck else judged

    def best_run(self, results):
        """By method, the highest area of the main task and its standard error."""
        return {arm: highest(results.values(arm, self.main)) for arm in self.methods}

    def other_best(self, results):
        """By method, the auxiliary task in its best run at the main one."""
        results.ran(SINGLE)  # Without its runs there is no answer.
        found = {arm: auxiliary(results, arm) for arm in self.methods}
        chosen = {arm: (in_best_run(results, arm), spread(found[arm])) for arm in found}
        return chosen | {SINGLE: highest(found[SINGLE])}

    def highest_other(self, arm, number):
        """The highest number of another method in the paper."""
        rows = self.published.items()
        return max(getattr(row, number) for other, row in rows if other != arm)

    @property
    def claims(self):
        theirs = self.published
        place, says, slack, number = self.best_other
        yield Claim(
            "best-other",
            lambda r: self.is_above(
                r, ["MMoE"], self.ranked(r, SINGLE, "MMoE"), slack, known=False
            ),
            {"place": place, "says": says, "number": number},
        )
        for other, its in ((SINGLE, "the single-task model's"), ("OMoE", "OMoE's")):
            yield self._above("above", "MMoE", other, its)
        without = SINGLE, SHARED, TENSOR
        yield self._worst("shared-worst", SHARED, without, theirs["OMoE"].mean)
        for arm in ("L2-constrained", "cross-stitch"):
            yield self._above("better", arm, SHARED, arm[0].upper() + arm[1:])
        lowest = min(row.mean for arm, row in theirs.items() if arm != TENSOR)
        yield self._worst("tensor-worst", TENSOR, [TENSOR], lowest)
        best, other = leads_of(self.best_run, "MMoE"), leads_of(self.other_best, SINGLE)
        for claim, arm, number, leads in (
            ("best-run", "MMoE", "best", best),
            ("single-best", SINGLE, "other_best", other),
            ("auxiliary", "MMoE", "other_mean", auxiliary_leads),
        ):
            names = {"one": getattr(theirs[arm], number)}
            names["two"] = self.highest_other(arm, number)
            yield Claim(claim, functools.partial(all_led, leads=leads), names)
        yield Claim("correlation", Fact(self.is_correlated))

    def _above(self, claim, arm, other, words):
        """The claim that a mean is above another's."""
        one, two = (self.published[each].mean for each in (arm, other))
        names = {"arm": arm, "other": other, "words": words, "one": one, "two": two}
        test = functools.partial(self.is_above, arms=[arm], others=[other])
        return Claim(claim, test, names)

    def _worst(self, claim, arm, without, following):
        """The claim that a mean is below all but some."""
        names = {"arm": arm, "without": without, "two": following}
        names["one"] = self.published[arm].mean

        def test(results):
            return self.is_above(results, self.ranked(results, *without), [arm])

        return Claim(claim, test, names)

    def is_correlated(self, results):
        """Check whether the labels correlate as in the paper."""
        ours = results.mean("MMoE", "label_correlation")
        return abs(ours - self.correlation) < 0.03

    def versus_next(self, results, arm, without):
        """A method beside the lowest of the others, but for some."""
        return self.versus(results, self.ranked(results, *without)[0], arm)

    def versus_best(self, results):
        """MMoE beside the best other method."""
        return self.versus(results, "MMoE", self.ranked(results, SINGLE, "MMoE")[-1])

    def table_areas(self, results):
        heads = f"{self.main}, best", f"{self.main}, mean"
        heads += "never married, in the best run", "never married, mean"
        pairs = ([f"{head}: paper", "ours"] for head in heads)
        yield ["method", *itertools.chain(*pairs)]
        for arm in self.methods:
            best = results.values(arm, self.main).max(), in_best_run(results, arm)
            other = SINGLE_AUXILIARY if arm == SINGLE else arm
            ours = (
                format_mean(best[0], np.nan, 4),
                results.text(arm, self.main, 4),
                format_mean(best[1], np.nan, 4),
                results.text(other, AUXILIARY, 4),
            )
            theirs = (f"{number:.4f}" for number in self.published[arm])
            yield [arm, *itertools.chain(*zip(theirs, ours, strict=True))]

    @property
    def fields(self) -> dict[str, Any]:
        whole = "199,523", "the same"
        parts = (
            "three fifths of the test file, 59,858",
            "a fifth each of the test file, 19,952",
        )
        train, held_out = parts if self.test_file_only else whole
        return {
            "runs": lambda r: len(r.of("MMoE")),
            "train": train,
            "held_out": held_out,
            "tuned_mmoe": [*self.space("MMoE")],
            "tuned_l2": [*self.space("L2-constrained")],
            "tuned_stitch": [*self.space("cross-stitch")],
            "tuned_tensor": [*self.space(TENSOR)],
        }

    def draw_runs(self, results):
        return dk.plots.plot_runs(
            {arm: results.values(arm, self.main) for arm in self.methods},
            label=f"test AUC of {self.main}",
            highlight="MMoE",
        )


_load = functools.lru_cache(maxsize=1)(census_income)


def areas(model, split):
    """The area under the ROC curve of each task."""
    found = model.predict(split.x, batch_size=8192, verbose=0)
    pairs = zip(found.items(), split.y.T, strict=True)
    return {task: area_under_curve(y, scores[:, 0]) for (task, scores), y in pairs}


def correlation_of_labels(data, seed):
    """The absolute correlation of the labels of two tasks, on random examples."""
    labels = data.train.y
    if labels.shape[1] < 2:
        return {}
    drawn = np.random.default_rng(seed).permutation(len(labels))[:CORRELATED]
    return {"label_correlation": abs(np.corrcoef(labels[drawn].T)[0, 1])}


def leads(found, arm):
    """By other method, the `Gap` to it, of pairs of numbers and errors."""
    mine, error = found[arm]
    return {
        other: compare.Gap(float(mine - its), math.hypot(error, its_error))
        for other, (its, its_error) in found.items()
        if other != arm
    }


def ahead(results, find, arm):
    """A method and the best other one of what a function finds, as text."""
    found = find(results)
    gaps = leads(found, arm)
    other = min(gaps, key=lambda name: gaps[name].mean)
    mine, its = found[arm][0], found[other][0]
    return f"{arm} {mine:.4f}, {other} {its:.4f}; difference {gaps[other]}."


def leads_of(find, arm):
    """The function that gives the `leads` in what a function finds."""
    return lambda results: leads(find(results), arm)


def first_lead(results):
    """The first of the `auxiliary_leads`, as text."""
    return "{}, {}".format(*next(iter(auxiliary_leads(results).items())))


def highest(values):
    """The highest of some runs, and its standard error."""
    # By chance it lies about as far off as a run does, which is two standard errors.
    return values.max(), spread(values) / 2


def spread(values):
    """The standard deviation of runs; NaN of one."""
    return values.std(ddof=1) if len(values) > 1 else np.nan


def auxiliary(results, arm):
    """The areas of the auxiliary task; a single-task model of its own has those."""
    return results.values(SINGLE_AUXILIARY if arm == SINGLE else arm, AUXILIARY)


def auxiliary_leads(results):
    """By other method, MMoE's gap to it in the auxiliary task; the best one first."""
    found = {arm: auxiliary(results, arm) for arm in results.experiment.methods}
    mine = found.pop("MMoE")
    best = sorted(found, key=lambda arm: -found[arm].mean())
    return {arm: compare.gap_of(mine - found[arm]) for arm in best}


def in_best_run(results, arm):
    """The auxiliary task's area in the best run; NaN if there is none."""
    values = auxiliary(results, arm)
    by = values if arm == SINGLE else results.values(arm, results.experiment.main)
    return values[np.nanargmax(by)] if np.isfinite(by).any() else np.nan


def luck_of_trials(results):
    """Differences by method: reported runs minus the trials of the chosen settings."""
    found = {}
    for arm in results.experiment.methods:
        trials = results.of(arm, tuning=True)
        taken, _ = search.best_settings(trials)
        tried = [run.numbers["objective"] for run in trials if run.settings == taken]
        if tried and results.of(arm):
            found[arm] = float(results.mean(arm, "objective") - np.mean(tried))
    return found


def needs_searches(results, judged):
    """A verdict that, if undecided, further searches of settings would decide."""
    if judged.holds is not None:
        return judged
    seconds = sum(run.seconds for run in results.runs if run.tuning)
    why = "not seeds, but further searches of settings would decide; one of all methods"
    return Judged(None, why=f"{why} takes {in_words(seconds)}")


def all_led(results, leads):
    """Test that all gaps that a function finds are positive."""
    return needs_searches(results, all_positive(leads(results).values()))


def luck(results):
    """The mean luck, the largest, and whose it is; see `luck_of_trials`."""
    found = luck_of_trials(results)
    if not found:
        raise NotRunError("trials")
    most = max(found, key=lambda arm: found[arm])
    return np.mean(list(found.values())), found[most], most
