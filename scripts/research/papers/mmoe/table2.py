"""Table 2: education and marital status in census data."""

import dataclasses
from typing import ClassVar

from research.papers.mmoe._census import Census, Published


@dataclasses.dataclass(frozen=True)
class Table2(Census):
    """The second group of tasks: education, and marital status beside it."""

    name = "mmoe-table2"
    title = "education, with marital status beside it, in census data"
    where = "Table 2"
    looks = 2

    group = 2
    correlation = 0.2373
    asks = "a person's education is at least college"
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
    best_other = (
        "Section 6.3.2, on group 2",
        "MMoE's mean is above that of the best other multi-task method.",
        0.0,
        "0.8826 and 0.8823",
    )
