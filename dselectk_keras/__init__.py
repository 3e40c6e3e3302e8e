"""Sparse, differentiable gates for mixtures of experts, in Keras 3."""

from dselectk_keras import baselines as baselines
from dselectk_keras import batches as batches
from dselectk_keras import datasets as datasets
from dselectk_keras import gates, plots
from dselectk_keras import metrics as metrics
from dselectk_keras import ops as ops
from dselectk_keras import regularizers as regularizers
from dselectk_keras.callbacks import (
    ChooseExperts,
    DecideGates,
    GateHistory,
    GateRecorder,
)
from dselectk_keras.experts import (
    DenseExperts,
    Experts,
)
from dselectk_keras.gates import (
    ChosenGate,
    DSelectKGate,
    Gate,
    GumbelSoftmaxGate,
    RandomGate,
    SoftmaxGate,
    SwitchGate,
    TopKGate,
)
from dselectk_keras.layers import (
    CGC,
    MMoE,
    MoE,
    SmearExperts,
)
from dselectk_keras.models import (
    GradNorm,
    MultitaskModel,
    Task,
    build_multitask_model,
    check_labels,
    condense,
    distill,
    per_task,
)
from dselectk_keras.regularizers import (
    EntropyRegularizer,
    ImportanceRegularizer,
    LoadRegularizer,
    ReachabilityRegularizer,
    RouterZRegularizer,
    SampleSimilarityRegularizer,
    SparsityRegularizer,
    SwitchLoadRegularizer,
)
from dselectk_keras.replicate import replicate
from dselectk_keras.schedules import Ramp
from dselectk_keras.tables import TableModel, read_table, table_encoder

__version__ = "0.1.0"

# Without the modules that share a name with one of Keras: `import *` must not replace
# `keras.ops`.
__all__ = [
    "CGC",
    "ChooseExperts",
    "ChosenGate",
    "DSelectKGate",
    "DecideGates",
    "DenseExperts",
    "EntropyRegularizer",
    "Experts",
    "Gate",
    "GateHistory",
    "GateRecorder",
    "GradNorm",
    "GumbelSoftmaxGate",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "MMoE",
    "MoE",
    "MultitaskModel",
    "Ramp",
    "RandomGate",
    "ReachabilityRegularizer",
    "RouterZRegularizer",
    "SampleSimilarityRegularizer",
    "SmearExperts",
    "SoftmaxGate",
    "SparsityRegularizer",
    "SwitchGate",
    "SwitchLoadRegularizer",
    "TableModel",
    "Task",
    "TopKGate",
    "build_multitask_model",
    "check_labels",
    "condense",
    "distill",
    "gates",
    "per_task",
    "plots",
    "read_table",
    "replicate",
    "table_encoder",
]
