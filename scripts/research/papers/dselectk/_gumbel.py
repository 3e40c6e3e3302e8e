"""Is the Gumbel-softmax arm of Tables 1 and 5 poor by its gate or by its grid?

    python scripts/reproduce.py dselectk-gumbel --backend jax --data-dir DATA

The page of Tables 1 and 5 shows the results.
"""

import dataclasses

from research.engine import preset
from research.papers.dselectk._movielens import MovieLensExperiment

GUMBEL = "Gumbel-softmax, static"


@dataclasses.dataclass(frozen=True)
class Gumbel(MovieLensExperiment):
    """Weights of the penalty between those of the paper's grid, and more epochs."""

    name = "dselectk-gumbel"
    title = "the Gumbel-softmax gate on MovieLens, with a finer grid and more epochs"
    shown_runs = ""
    page = "{table_losses}"

    seeds: int = preset(5, paper=100, smoke=1)
    methods: tuple[str, ...] = (GUMBEL,)
    # With lower rates no weight closes half of the experts; higher weights close all.
    learning_rates: tuple[float, ...] = (0.1, 0.2, 0.3)
    sparsities: tuple[float, ...] = (0.001, 0.003, 0.005, 0.007, 0.015)
    epochs: tuple[int, ...] = (3, 12)

    def table_losses(self, results):
        return ["alpha | loss", *([a, results.text(a, "loss", 4)] for a in self.arms)]
