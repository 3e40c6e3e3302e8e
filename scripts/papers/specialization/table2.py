"""Table 2: the ways to train, on MNIST and on FMNIST."""

import dataclasses

from dselectk_keras.experiments import Claim, Picture, Report, Table
from papers import citations
from papers.specialization import _ways
from papers.specialization._images import NAMES, NUMBERS
from papers.specialization._ways import Ways

# The file aaai_2022/results/mnist_final_results.csv in the authors' repository,
# github.com/yamsgithub/modular_deep_learning: error, I(E;Y), H_s, H_u.
AUTHORS = {
    "single": (0.096, None, None, None),
    "original": (0.038, 2.022, 0.092, 2.172),
    "original, importance": (0.032, 2.262, 0.061, 2.320),
    "original, L_s": (0.029, 2.244, 0.051, 2.246),
    "attentive": (0.033, 1.797, 0.071, 2.055),
    "attentive, importance": (0.035, 2.260, 0.055, 2.266),
    "attentive, L_s": (0.032, 2.275, 0.039, 2.321),
    "distilled": (0.751, 1.288, 1.411, 2.182),
    "distilled, importance": (0.030, 2.301, 0.036, 2.320),
    "distilled, L_s": (0.028, 2.191, 0.056, 2.319),
}
TITLES = {
    "sample_entropy": "$H_s$, bits",
    "utilization_entropy": "$H_u$, bits",
    "mutual_information": "$I(E; Y)$, bits",
    "error": "test error",
}
NOTES = [
    (
        "From the paper: the ways to train, the terms, the measures. From the authors' "
        "repository: the networks, Adam with a learning rate of 0.001, and the grid of "
        "the weight of $L_{importance}$; of their runs the one with the lowest "
        "training error was taken. Ours: 5,120 training images instead of 50,000, "
        "batches of 64 and fewer epochs in the preset `cpu`; weights are chosen by the "
        "error on validation images, and all runs are reported."
    ),
    (
        "$L_s$ has two weights, of which one is tuned here, $\\beta_d$. The weights "
        "over the experts sum to one, so that the pairs at the same expert and the "
        "pairs at different experts add up to a constant, and only $\\beta_s / M + "
        "\\beta_d / (M^2 - M)$ matters. Distances are those between images, squared, "
        "with pixels of mean 0 and variance 1."
    ),
    (
        "A student takes over the teacher's experts, which are frozen, and the network "
        "of its gate, and learns without a penalty; its weight of the penalty is its "
        "teacher's. $I(E; Y)$ is between the chosen expert and the label; the authors' "
        "code has the class that the chosen expert predicts in the label's place."
    ),
]


@dataclasses.dataclass(frozen=True)
class Table2(Ways):
    """Error and specialization of nine ways to train a mixture of five experts."""

    name = "specialization-table2"
    title = "attentive gates and the sample similarity term make experts specialize"
    paper = citations.SPECIALIZATION
    where = "Table 2"
    about = (
        "A mixture of five small convolutional networks classifies digits (MNIST) and "
        "clothes (FMNIST). Three kinds of gate, the original one, the attentive one "
        "and one that is distilled from it, are trained without a penalty, with "
        "$L_{importance}$ and with $L_s$. A gate that decides has a low entropy for "
        "each image, $H_s$; one that uses all experts has a high entropy of the mean "
        "weights, $H_u$, at most log2(5) = 2.32 bits; $I(E; Y)$ is the mutual "
        "information of the chosen expert and the class."
    )

    def report(self, results):
        claims = []
        for data in self.datasets:
            for way in (way for way in _ways.LONG if way in self.ways):
                claims += [self._lowers(results, data, way)]
                claims += [self._raises(results, data, way)]
        tables = [self._table(results, data) for data in self.datasets]
        tables.append(self._best(results))
        pictures = [
            Picture(
                data.replace("_", "-"),
                f"{NAMES[data]}: every run of every way. A bar reaches one standard "
                "error to either side of the mean.",
                lambda data=data: self.draw(results, data),
            )
            for data in self.datasets
        ]
        return Report(claims, tables, pictures, NOTES)

    def _lowers(self, results, data, way):
        number = "sample_entropy"
        return Claim(
            f"{NAMES[data]}: {_ways.LONG[way]} lowers H_s, against the original MoE.",
            _ways.compared(results, data, way, number),
            _ways.below(results, data, way, number),
        )

    def _raises(self, results, data, way):
        number = "utilization_entropy"
        return Claim(
            f"{NAMES[data]}: {_ways.LONG[way]} raises H_u, against the original MoE.",
            _ways.compared(results, data, way, number),
            _ways.above(results, data, way, number),
        )

    def _table(self, results, data):
        theirs = data == "mnist"
        columns = ["way", *NUMBERS.values()]
        if theirs:
            columns += [f"{name}, authors" for name in NUMBERS.values()]
        rows = []
        for way in ("single", *self.shown):
            arm, prefix = _ways.place_of(data, way)
            numbers = list(NUMBERS)[:1] if way == "single" else list(NUMBERS)
            ours = [results.text(arm, prefix + number) for number in numbers]
            ours += [""] * (len(NUMBERS) - len(ours))
            rows.append([way, *ours, *(AUTHORS[way] if theirs else ())])
        return Table(NAMES[data], columns, rows, _ways.SOURCE[theirs])

    def _best(self, results):
        """One run of each way, as the authors report them."""
        rows = []
        for data in self.datasets:
            for way in self.ways:
                runs = results.of(_ways.arm_of(data, way))
                best = min(runs, key=lambda run: run.numbers["objective"]).numbers
                rows.append(
                    [NAMES[data], way, *(float(best[name]) for name in NUMBERS)]
                )
        return Table(
            "The best run of each way",
            ["data", "way", *NUMBERS.values()],
            rows,
            "The run with the lowest error on the validation images, of all seeds. The "
            "authors' numbers are of one run as well, chosen by the training error. "
            "The claims above are judged by the means over all runs.",
        )

    def draw(self, results, data):
        """The entropies of every run, by way."""
        return _ways.draw_runs(results, data, self.shown, TITLES)
