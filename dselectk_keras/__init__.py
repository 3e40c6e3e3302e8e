"""Sparse, differentiable gates for mixtures of experts, in Keras 3."""

from dselectk_keras import datasets as datasets
from dselectk_keras import gates, plots
from dselectk_keras import metrics as metrics
from dselectk_keras import ops as ops
from dselectk_keras import regularizers as regularizers
from dselectk_keras.callbacks import CondenseWhenBinary, GateHistory, GateRecorder
from dselectk_keras.experts import (
    DenseExperts,
    Experts,
    TuckerExperts,
    single_expert,
)
from dselectk_keras.gates import (
    AttentiveGate,
    DSelectKGate,
    Gate,
    GumbelSoftmaxGate,
    HashGate,
    LatentSkillsGate,
    RandomGate,
    ReinforceGate,
    SoftmaxGate,
    SoftmaxSelectorGate,
    STGumbelGate,
    SwitchGate,
    TagGate,
    TopKGate,
)
from dselectk_keras.layers import (
    CGC,
    CrossStitch,
    L2Constrained,
    MMoE,
    MoE,
    SmearExperts,
    SoftMoE,
)
from dselectk_keras.models import (
    MultitaskModel,
    RoutedModel,
    Task,
    build_multitask_model,
    condense,
    distill,
    per_task,
)
from dselectk_keras.regularizers import (
    EntropyRegularizer,
    ImportanceRegularizer,
    LoadRegularizer,
    ParameterDistanceRegularizer,
    ReachabilityRegularizer,
    SampleSimilarityRegularizer,
    SparsityRegularizer,
)
from dselectk_keras.schedules import Ramp
from dselectk_keras.training import Replicas, replicate

__version__ = "0.1.0"

# Without the modules that share a name with one of Keras: `import *` must not replace
# `keras.ops`.
__all__ = [
    "CGC",
    "AttentiveGate",
    "CondenseWhenBinary",
    "CrossStitch",
    "DSelectKGate",
    "DenseExperts",
    "EntropyRegularizer",
    "Experts",
    "Gate",
    "GateHistory",
    "GateRecorder",
    "GumbelSoftmaxGate",
    "HashGate",
    "ImportanceRegularizer",
    "L2Constrained",
    "LatentSkillsGate",
    "LoadRegularizer",
    "MMoE",
    "MoE",
    "MultitaskModel",
    "ParameterDistanceRegularizer",
    "Ramp",
    "RandomGate",
    "ReachabilityRegularizer",
    "ReinforceGate",
    "Replicas",
    "RoutedModel",
    "STGumbelGate",
    "SampleSimilarityRegularizer",
    "SmearExperts",
    "SoftMoE",
    "SoftmaxGate",
    "SoftmaxSelectorGate",
    "SparsityRegularizer",
    "SwitchGate",
    "TagGate",
    "Task",
    "TopKGate",
    "TuckerExperts",
    "build_multitask_model",
    "condense",
    "distill",
    "gates",
    "per_task",
    "plots",
    "replicate",
    "single_expert",
]
