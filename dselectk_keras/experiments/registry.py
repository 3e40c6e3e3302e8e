"""All experiments, by name."""

from dselectk_keras.experiments import dselectk, mmoe, smear, specialization

EXPERIMENTS = {
    kind.name: kind
    for paper in (dselectk, mmoe, specialization, smear)
    for kind in paper.EXPERIMENTS
}
