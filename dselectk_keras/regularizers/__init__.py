"""Scalar terms that a gate adds to the loss, in training only."""

from dselectk_keras.regularizers.entropy import EntropyRegularizer
from dselectk_keras.regularizers.importance import ImportanceRegularizer
from dselectk_keras.regularizers.load import LoadRegularizer
from dselectk_keras.regularizers.reachability import ReachabilityRegularizer
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer

__all__ = [
    "EntropyRegularizer",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "ReachabilityRegularizer",
    "ScheduledRegularizer",
]
