"""Scalar terms that a gate adds to the loss, in training only."""

from dselectk_keras.regularizers.entropy import EntropyRegularizer
from dselectk_keras.regularizers.importance import ImportanceRegularizer
from dselectk_keras.regularizers.load import LoadRegularizer
from dselectk_keras.regularizers.parameter_distance import (
    ParameterDistanceRegularizer,
)
from dselectk_keras.regularizers.reachability import ReachabilityRegularizer
from dselectk_keras.regularizers.sample_similarity import (
    SampleSimilarityRegularizer,
)
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.regularizers.sparsity import SparsityRegularizer

__all__ = [
    "EntropyRegularizer",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "ParameterDistanceRegularizer",
    "ReachabilityRegularizer",
    "SampleSimilarityRegularizer",
    "ScheduledRegularizer",
    "SparsityRegularizer",
]
