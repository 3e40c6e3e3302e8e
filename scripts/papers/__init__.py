"""The papers' figures and tables, by name."""

from papers import dselectk, mmoe, smear, specialization

EXPERIMENTS = {
    kind.name: kind
    for paper in (dselectk, mmoe, specialization, smear)
    for kind in paper.EXPERIMENTS
}
