"""Tables 2, 3 and 7: nine ways to train, each on one data set."""

import abc
import dataclasses
from typing import ClassVar

import numpy as np

from dselectk_keras.plots import plot_runs
from experiments import (
    Claim,
    Fact,
    Picture,
    Report,
    Table,
    all_hold,
    difference,
    format_gap,
    is_positive,
    mean_and_error,
)
from papers import drawing
from papers.specialization import _mixture
from papers.specialization._images import (
    DATA,
    NUMBERS,
    WAYS,
    classified,
    measured,
    own_numbers,
    reported,
)
from papers.specialization._tuned import Tuned

STUDENTS = {
    "distilled, importance": "attentive, importance",
    "distilled, L_s": "attentive, L_s",
}
EVERY = ("single", *WAYS, *STUDENTS)
BOTH = ("original", "attentive", "distilled")  # The gates that both penalties meet.
PLACES = tuple(NUMBERS)
ALIKE = 0.01  # Numbers of the paper that differ by a smaller share are as good.
CONTRARY = "contrary"
TITLES = {
    "sample_entropy": "$H_s$, bits",
    "utilization_entropy": "$H_u$, bits",
    "mutual_information": "$I(E; Y)$, bits",
    "error": "test error",
}


@dataclasses.dataclass(frozen=True)
class Ways(Tuned, abc.ABC):
    """Every way to train, on one data set.

    Args:
        ways: Names of ways to train, of `WAYS`.
        num_experts: How many experts a mixture has.
    """

    data_set = ""  # Its name in `DATA`.
    # The table in the paper: error, its deviation, I(E;Y), H_s and H_u, by way.
    theirs: ClassVar[dict[str, tuple]]
    betas: ClassVar[tuple[str, str]]  # Table 6.
    training: ClassVar[int]  # The paper's number of training images.
    epochs_and_runs: ClassVar[tuple[str, str]]  # Section 7.
    networks: ClassVar[str]  # Their place in the paper.
    pixels: ClassVar[str] = "As in the authors' code."

    num_test: int = 10_000
    ways: tuple[str, ...] = tuple(WAYS)
    num_experts: int = 5

    @property
    def arms(self):
        return {way: WAYS.get(way) for way in ("single", *self.ways)}

    @property
    def shown(self):
        """The names of the ways to train, students last."""
        students = [name for name, way in STUDENTS.items() if way in self.ways]
        return ["single", *self.ways, *students]

    def space(self, arm):
        return self.grid(arm)

    def run(self, arm, jobs):
        name, way = self.data_set, self.arms[arm]
        data = self.data(name)
        if way is None:
            return [classified(model, data) for model in self._singles(data, jobs)]
        models = self.teach(way, name, self.num_experts, data, jobs)
        if jobs[0].is_trial:
            return [classified(model, data) for model in models]
        found = [measured(model, data, self.num_experts) for model in models]
        if arm in STUDENTS.values():
            students = self.distilled(models, data, jobs)
            for numbers, student in zip(found, students, strict=True):
                own = measured(student, data, self.num_experts)
                numbers |= {f"distilled_{name}": value for name, value in own.items()}
        return found

    def _singles(self, data, jobs):
        about = DATA[self.data_set]

        def build(_):
            model = _mixture.single(self.data_set, about.shape, about.num_classes)
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, data, jobs)

    @abc.abstractmethod
    def claims(self, results) -> list[Claim]:
        """What the paper says of its table: a list of `Claim`."""

    def report(self, results):
        columns = ["way", *NUMBERS.values(), *(f"{n}, paper" for n in NUMBERS.values())]
        rows = [
            [way, *self._best(results, way), *self._paper(way)] for way in self.shown
        ]
        note = (
            "One run of each way, the one with the lowest training error, as in the "
            "paper; after ± is the standard deviation of the test error over all runs."
        )
        best = Table("The run with the lowest training error", columns, rows, note)
        rows = [[way, *self._means(results, way)] for way in self.shown]
        note = "After ± are standard errors. The claims above are judged by these."
        means = Table("Means over all runs", ["way", *NUMBERS.values()], rows, note)
        caption = (
            "Every run of every way. A bar reaches one standard error to either side "
            "of the mean."
        )
        picture = Picture("runs", caption, lambda: self.draw(results))
        claims = self.claims(results)
        contrary = any(CONTRARY in claim.paper for claim in claims)
        return Report(
            claims,
            [best, means],
            [picture],
            [NOT_JUDGED] * contrary,
            protocol=self.protocol(),
        )

    def _best(self, results, way):
        arm, prefix = place_of(way)
        best = reported(results, arm, prefix).numbers
        deviation = results.values(arm, prefix + "error").std(
            ddof=min(1, results.experiment.seeds - 1)
        )
        error = f"{best[prefix + 'error']:.3f} ± {deviation:.3f}"
        if way == "single":
            return [error, "", "", ""]
        return [error, *(float(best[prefix + name]) for name in PLACES[1:])]

    def _means(self, results, way):
        arm, prefix = place_of(way)
        texts = own_numbers(results, arm, prefix)
        return [texts[0], "", "", ""] if way == "single" else texts

    def _paper(self, way):
        error, deviation, *others = self.theirs[way]
        return [f"{error:.3f} ± {deviation:.3f}", *map(_exact, others)]

    def protocol(self):
        """The facts of the paper's protocol."""
        return [
            *self.sizes(self.training, 10_000, self.networks),
            Fact("Experts", DATA[self.data_set].num_experts, self.both("num_experts")),
            Fact("Networks", self.networks, "the same but for the last layer"),
            Fact(
                "Keys of the attentive gate",
                "from the experts' hidden outputs (Eq. 5)",
                "the same, behind their ReLU",
                "Appendix B has a ReLU there; the authors' code takes them before it.",
            ),
            Fact("Learning rate", "0.001", self.both("learning_rate")),
            self.fact("Epochs", self.epochs_and_runs[0], "epochs"),
            Fact(
                "Batch size",
                "not given",
                self.both("batch_size"),
                "The preset `paper` has that of the authors' code; `cpu` has fewer "
                "images.",
            ),
            Fact("Pixels", "not given", "mean 0, variance 1", self.pixels),
            self.fact("Runs", self.epochs_and_runs[1], "seeds"),
            *self.tuning(self.betas),
            Fact(
                "Distillation",
                "experts frozen; gate from the teacher's parameters (Section 5.1)",
                "the same; trained without a penalty",
                "The paper does not say whether students have one; in the authors' "
                "code they do not. An attentive gate has no last layer to start from.",
            ),
        ]

    # Comparisons of ways, of which claims are made.

    def compare(self, results, number, pairs, sign, least=False):
        """Compare ways by a number.

        A pair for which the paper's own table says the contrary of its text is shown,
        but not judged.

        Args:
            results: A `Results`.
            number: Name of the number.
            pairs: A list of pairs of ways: the first should be lower or higher.
            sign: -1 for lower, 1 for higher.
            least: Whether being as good is enough.

        Returns:
            Fields of a `Claim`: `ours`, `holds` and `paper`.
        """
        texts, verdicts, theirs = [], [], []
        place = PLACES.index(number)
        for way, other in pairs:
            values = [self.theirs[each][place + (place > 0)] for each in (way, other)]
            slack = ALIKE * values[1] if least else 0
            judged = sign * (values[0] - values[1]) >= -slack
            note = "" if judged else f" ({CONTRARY})"
            theirs.append(" against ".join(map(_exact, values)) + note)
            if {way, other} <= set(self.shown):
                gap, error = self._gap(results, number, way, other)
                found = is_positive(sign * gap, error)
                found = found is not False if least else found
                text = format_gap(gap, error, decimals=3)
            else:
                found, text = False, "not run"
            texts.append(f"{way} against {other}: {text}")
            if judged:
                verdicts.append(found)
        return {
            "ours": "; ".join(texts) + ".",
            "holds": all_hold(verdicts),
            "paper": "; ".join(theirs),
        }

    def _gap(self, results, number, way, other):
        (arm, prefix), (other_arm, other_prefix) = place_of(way), place_of(other)
        if not prefix and not other_prefix:
            return difference(results, number, arm, other_arm)
        values = [
            results.values(a, p + number)
            for a, p in ((arm, prefix), (other_arm, other_prefix))
        ]
        return mean_and_error(np.subtract(*values))

    def draw(self, results):
        """The numbers of every run, by way: a panel for each number."""
        figure, axes = drawing.panels(2, 2, 4.6, sharey=True)
        for ax, (number, title) in zip(axes.flat, TITLES.items(), strict=True):
            values = {}
            for way in self.shown[1:]:
                arm, prefix = place_of(way)
                values[way] = results.values(arm, prefix + number)
            plot_runs(values, label=title, highlight=self.shown[-1], ax=ax)
        return figure


NOT_JUDGED = (
    f"*{CONTRARY.capitalize()}*: here the paper's table says the contrary of its text. "
    "Such pairs are shown, but not judged."
)


def _exact(value):
    """A number of the paper as it stands there."""
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value}"


def place_of(way):
    """Where the numbers of a way are kept; a student's are with its teacher's.

    Args:
        way: Name of a way to train, or of a student.

    Returns:
        The name of an arm, and what the names of the numbers begin with.
    """
    return (STUDENTS[way], "distilled_") if way in STUDENTS else (way, "")


def with_both(gates=BOTH):
    """Pairs of ways, with L_s and with L_importance, for some gates."""
    return [(f"{gate}, L_s", f"{gate}, importance") for gate in gates]


def claims_of_section_7(table, results):
    """What the paper says of Tables 2 and 3.

    Args:
        table: A `Ways`.
        results: A `Results`.

    Returns:
        A list of `Claim`.
    """
    where = f"{table.where}; Section 7"
    penalized = [
        (way, gate) for gate in ("original", "attentive") for way in STUDENTS.values()
    ]

    def claim(says, source, *arguments, **options):
        return Claim(
            says, **table.compare(results, *arguments, **options), source=source
        )

    return [
        claim(
            "The attentive gate has a lower error than the original one.",
            f"{where}, first result",
            "error",
            [("attentive", "original")],
            -1,
        ),
        claim(
            "The attentive gate with either penalty has a higher H_u than both gates "
            "have without.",
            f"{where}, first result; Section 5",
            "utilization_entropy",
            penalized,
            1,
        ),
        claim(
            "The attentive gate with either penalty has a lower H_s than both gates "
            "have without.",
            f"{where}, first result",
            "sample_entropy",
            penalized,
            -1,
        ),
        claim(
            "L_s has a lower error than L_importance.",
            f"{where}, second result",
            "error",
            with_both(),
            -1,
        ),
        claim(
            "L_s has as high an H_u as L_importance, or a higher one.",
            f"{where}, second result",
            "utilization_entropy",
            with_both(),
            1,
            least=True,
        ),
        claim(
            "L_s has a lower H_s than L_importance.",
            f"{where}, second result",
            "sample_entropy",
            with_both(),
            -1,
        ),
        claim(
            "The attentive gate alone has a lower H_s than the original one.",
            f"{table.where}; Section 1",
            "sample_entropy",
            [("attentive", "original")],
            -1,
        ),
        claim(
            "Students have no larger error than their attentive teachers.",
            f"{table.where}; Section 1",
            "error",
            list(STUDENTS.items()),
            -1,
            least=True,
        ),
        *[
            claim(
                f"The attentive gate with L_s has {what} than the original mixture.",
                f"{table.where}; Section 8",
                number,
                [("attentive, L_s", "original")],
                sign,
            )
            for number, sign, what in (
                ("error", -1, "a lower error"),
                ("mutual_information", 1, "a higher I(E;Y)"),
                ("sample_entropy", -1, "a lower H_s"),
            )
        ],
    ]
