"""Table 2: education and marital status in census data."""

import dataclasses
from typing import ClassVar

from experiments import Fact, Question, Results, format_gap
from papers import citations
from papers.mmoe._census import Census, about
from papers.mmoe._census_report import Published, gain
from papers.mmoe.table1 import Table1


@dataclasses.dataclass(frozen=True)
class Table2(Census):
    """The second group of tasks: education, and marital status beside it.

    The arguments are those of `Census`.
    """

    name = "mmoe-table2"
    title = "education, with marital status beside it, in census data"
    paper = citations.MMOE
    where = "Table 2"
    about = about("whether a person's education is at least college")

    group = 2
    correlation = 0.2373
    main = "education"
    published: ClassVar = {
        "single-task": Published(0.8843, 0.8792, 0.9933, 0.9922),
        "shared-bottom": Published(0.8836, 0.8813, 0.9927, 0.9917),
        "L2-constrained": Published(0.8855, 0.8823, 0.9923, 0.9918),
        "cross-stitch": Published(0.8855, 0.8819, 0.9919, 0.9921),
        "tensor factorization": Published(0.7367, 0.7256, 0.7453, 0.7497),
        "OMoE": Published(0.8852, 0.8813, 0.9915, 0.9912),
        "MMoE": Published(0.8860, 0.8826, 0.9932, 0.9924),
    }

    def report(self, results):
        report = super().report(results)
        remark = (
            "Section 6.3.2 calls the tasks of this group less related than those of "
            "Table 1. The correlations of the labels in Section 6.3.1 say the "
            f"opposite: {self.correlation} here and {Table1.correlation} there."
        )
        label = Fact(
            "Label of education",
            "at least college",
            "an associate's degree or more",
            "The paper does not say where college begins. With this reading the "
            "correlation of the labels is closest to the paper's.",
        )
        return dataclasses.replace(
            report,
            questions=[self._less_related(results)],
            notes=[*report.notes, remark],
            protocol=[label, *report.protocol],
        )

    def _less_related(self, results):
        """How much MMoE gains over OMoE in both groups."""
        asks = "Does MMoE gain more over OMoE where the labels are less correlated?"
        first = self._first_table(results)
        if first is None:
            return Question(asks, "The runs of Table 1 are not there.")
        texts = [
            f"{format_gap(*gain(each))} for {each.experiment.main}, with a correlation "
            f"of {each.experiment.correlation}"
            for each in (first, results)
        ]
        return Question(asks, f"MMoE is above OMoE by {'; '.join(texts)}.")

    def _first_table(self, results):
        """The runs of Table 1, if they are in the same folder, and alike."""
        if results.path is None:
            return None
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        try:
            first = Results(Table1(**fields), results.preset, results.path.parent)
        except ValueError:
            return None
        complete = all(first.of(arm) for arm in ("OMoE", "MMoE"))
        return first if complete else None
