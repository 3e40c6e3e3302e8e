"""Sparse, differentiable gates for mixtures of experts, in Keras 3."""

from dselectk_keras import datasets, gates, metrics, ops, plots, regularizers
from dselectk_keras.callbacks import GateHistory, GateRecorder
from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.gates import DSelectKGate, Gate, SoftmaxGate, TopKGate
from dselectk_keras.layers import MMoE, MoE
from dselectk_keras.models import MultitaskModel, Task, build_multitask_model
from dselectk_keras.regularizers import (
    EntropyRegularizer,
    ImportanceRegularizer,
    LoadRegularizer,
    ReachabilityRegularizer,
)
from dselectk_keras.schedules import Ramp

__version__ = "0.1.0"

__all__ = [
    "DSelectKGate",
    "DenseExperts",
    "EntropyRegularizer",
    "Experts",
    "Gate",
    "GateHistory",
    "GateRecorder",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "MMoE",
    "MoE",
    "MultitaskModel",
    "Ramp",
    "ReachabilityRegularizer",
    "SoftmaxGate",
    "Task",
    "TopKGate",
    "build_multitask_model",
    "datasets",
    "gates",
    "metrics",
    "ops",
    "plots",
    "regularizers",
]
