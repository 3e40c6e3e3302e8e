"""Auxiliary losses: scalar terms that a gate or a layer adds to the training loss."""

from dselectk_keras.regularizers.entropy import EntropyRegularizer
from dselectk_keras.regularizers.importance import ImportanceRegularizer
from dselectk_keras.regularizers.load import LoadRegularizer
from dselectk_keras.regularizers.reachability import ReachabilityRegularizer
from dselectk_keras.regularizers.router_z import RouterZRegularizer
from dselectk_keras.regularizers.sample_similarity import SampleSimilarityRegularizer
from dselectk_keras.regularizers.scheduled import (
    ScheduledRegularizer,
    WeightsRegularizer,
)
from dselectk_keras.regularizers.sparsity import SparsityRegularizer
from dselectk_keras.regularizers.switch_load import SwitchLoadRegularizer

__all__ = [
    "EntropyRegularizer",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "ReachabilityRegularizer",
    "RouterZRegularizer",
    "SampleSimilarityRegularizer",
    "ScheduledRegularizer",
    "SparsityRegularizer",
    "SwitchLoadRegularizer",
    "WeightsRegularizer",
]
