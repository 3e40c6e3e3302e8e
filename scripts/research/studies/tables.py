"""Several targets on a table: one network, and the models that a user would try."""

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from common.rivals import EXTRA, LINEAR, TREES, best, error, rivals
from research.engine import Experiment, gap_of, preset
from research.engine.compare import quantile
from research.studies.real_tables import TABLES

ESTIMATOR, TUNED, UNTUNED = "TableModel", "rivals, tuned", "rivals, default"
BEST = "best"
HELD_OUT = 0.2  # Of the rows to train on, for the settings of the rivals.
# What the runs of rivals show, by the name in the tables.
SHOWN = {
    "boosted trees, default": (UNTUNED, TREES),
    "boosted trees, tuned": (TUNED, TREES),
    "extra trees, tuned": (TUNED, EXTRA),
    "linear model, tuned": (TUNED, LINEAR),
    "best of them by validation, tuned": (TUNED, BEST),
}
RIVAL = TUNED, BEST


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
    scales = ("num_train",)
    pictures = ("ratios",)
    page = """\
{table_arms}

{summary}

![Errors on ten tables, over those of the best rival.](ratios)

{table_targets}

{how}"""

    seeds: int = preset(5, smoke=1)
    num_train: int = preset(4_000, smoke=120)
    num_test: int = preset(4_000, smoke=60)
    settings: int = preset(10, smoke=2)
    num_tables: int = preset(10, smoke=1)

    @property
    def tables(self):
        """The tables by name."""
        return dict(list(TABLES.items())[: self.num_tables])

    @property
    def methods(self):
        """What is fitted: functions of the rows to train on, targets and a seed."""
        tuned = functools.partial(fit_rivals, settings=self.settings)
        return {UNTUNED: functools.partial(fit_rivals, settings=1), TUNED: tuned}

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
        targets, found = TABLES[table].targets, []
        for job in jobs:
            train, test = self.split(load(table, self.data_dir or "."), job.seed)
            began = time.process_time()
            models = self.methods[method](train, list(targets), job.seed)
            errors = {name: measure(own, test, targets) for name, own in models.items()}
            seconds = time.process_time() - began
            found.append({"errors": errors, "processor_seconds": seconds})
        return found

    def split(self, frame, seed):
        """Rows to train on, and rows to test on."""
        order = np.random.default_rng(seed).permutation(len(frame))
        size = min(self.num_train, 3 * len(frame) // 4)
        parts = order[:size], order[size : size + self.num_test]
        return [frame.iloc[rows].reset_index(drop=True) for rows in parts]

    def errors(self, results, table, method, kind):
        """The errors of one kind of model: a dict from split and target."""
        return {
            (run.seed, target): value
            for run in results.of(f"{table}: {method}")
            for target, value in run.numbers["errors"][kind].items()
        }

    def logs(self, results, method, kind, against=RIVAL):
        """Per table, the log ratios of errors, for each split the mean over targets."""
        found = {}
        for table in self.tables:
            mine = self.errors(results, table, method, kind)
            other = self.errors(results, table, *against)
            by_split: dict[int, list] = {}
            for split, target in mine.keys() & other.keys():
                ratio = np.log(mine[split, target] / other[split, target])
                by_split.setdefault(split, []).append(ratio)
            if by_split:
                found[table] = [np.mean(by_split[split]) for split in sorted(by_split)]
        return found

    @property
    def compared(self):
        """The rows of the table: the names of models, with their method and kind."""
        own = {m: (m, BEST) for m in self.methods if m not in (TUNED, UNTUNED)}
        return own | SHOWN

    def table_arms(self, results):
        """The mean log ratio of each model to the best rival, and the tables won."""
        rows: list[Any] = [
            "model | log ratio: | without its best table: | tables won: | worst table"
            " | processor, s:"
        ]
        for name, (method, kind) in self.compared.items():
            if (method, kind) == RIVAL:
                continue
            logs = self.logs(results, method, kind)
            means = {table: np.mean(each) for table, each in logs.items()}
            if len(means) < 2:
                continue
            order = sorted(means, key=lambda table: means[table])
            others = [means[table] for table in order[1:]]
            won = sum(value < 0 for value in means.values())
            seconds = [
                run.numbers["processor_seconds"]
                for table in means
                for run in results.of(f"{table}: {method}")
            ]
            rows.append(
                [
                    name,
                    interval(list(means.values())),
                    f"{np.mean(others):+.3f}",
                    f"{won} of {len(means)}",
                    f"{order[-1]} {means[order[-1]]:+.3f}",
                    f"{np.mean(seconds):.0f}",
                ]
            )
        return rows

    def table_targets(self, results):
        """The log ratio on each table."""
        names = [name for name, own in self.compared.items() if own != RIVAL]
        logs = {name: self.logs(results, *self.compared[name]) for name in names}
        names = [name for name in names if logs[name]]
        rows: list[Any] = [["table", *(f"{name}:" for name in names)]]
        for table in self.tables:
            cells = (logs[name].get(table) for name in names)
            rows.append([table, *(interval(each) if each else "" for each in cells)])
        return rows


def interval(values):
    """A mean, with the reach of its 95 % interval by Student's t."""
    gap = gap_of(values)
    reach = quantile(gap.size - 1) * gap.error
    text = f"{gap.mean:+.3f}"
    return text if np.isnan(reach) else f"{text} ± {reach:.3f}"


@functools.lru_cache(maxsize=1)
def load(table, folder):
    """The rows of a table."""
    return TABLES[table].load(folder)


def fit_rivals(train, targets, seed, settings):
    """Functions of a frame and a target, by kind of rival."""
    held_out = np.random.default_rng(seed).random(len(train)) < HELD_OUT
    parts = train[~held_out], train[held_out]
    found = rivals(*parts, targets, settings, seed)

    def predict(frame, target, kind):
        kind = best(found[target]) if kind == BEST else kind
        return found[target][kind].predict(frame), found[target][kind].classes

    kinds = [TREES, EXTRA, LINEAR, BEST]
    return {kind: functools.partial(predict, kind=kind) for kind in kinds}


def measure(predict, test, targets):
    """The error of each target.

    Where numbers have two values in the rows to train on, a model has probabilities of
    them, whose mean it predicts.
    """
    errors = {}
    for target in targets:
        rows = test[test[target].notna()]
        labels = rows[target].to_numpy()
        predicted, classes = predict(rows, target)
        if classes is not None and labels.dtype.kind == "f":
            predicted, classes = predicted @ classes, None
        errors[target] = error(labels, predicted, classes)
    return errors
