"""Sparse, differentiable gates for mixtures of experts, in Keras 3."""

from dselectk_keras import datasets as datasets
from dselectk_keras import gates, plots
from dselectk_keras import metrics as metrics
from dselectk_keras import ops as ops
from dselectk_keras import regularizers as regularizers
from dselectk_keras.baselines import (
    AttentiveGate,
    AttentiveMoE,
    CrossStitch,
    HashGate,
    L2Constrained,
    LatentSkillsGate,
    ReinforceGate,
    RoutedModel,
    SoftmaxSelectorGate,
    SoftMoE,
    STGumbelGate,
    TagGate,
    TuckerExperts,
    single_expert,
)
from dselectk_keras.batches import Batches
from dselectk_keras.callbacks import (
    ChooseExperts,
    DecideGates,
    GateHistory,
    GateRecorder,
)
from dselectk_keras.experts import (
    DenseExperts,
    Experts,
    expert_layout_map,
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
from dselectk_keras.replicate import Replicas, replicate
from dselectk_keras.schedules import Ramp
from dselectk_keras.tables import TableModel, read_table, table_encoder

__version__ = "0.1.0"

# Without the modules that share a name with one of Keras: `import *` must not replace
# `keras.ops`.
__all__ = [
    "CGC",
    "AttentiveGate",
    "AttentiveMoE",
    "Batches",
    "ChooseExperts",
    "ChosenGate",
    "CrossStitch",
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
    "HashGate",
    "ImportanceRegularizer",
    "L2Constrained",
    "LatentSkillsGate",
    "LoadRegularizer",
    "MMoE",
    "MoE",
    "MultitaskModel",
    "Ramp",
    "RandomGate",
    "ReachabilityRegularizer",
    "ReinforceGate",
    "Replicas",
    "RoutedModel",
    "RouterZRegularizer",
    "STGumbelGate",
    "SampleSimilarityRegularizer",
    "SmearExperts",
    "SoftMoE",
    "SoftmaxGate",
    "SoftmaxSelectorGate",
    "SparsityRegularizer",
    "SwitchGate",
    "SwitchLoadRegularizer",
    "TableModel",
    "TagGate",
    "Task",
    "TopKGate",
    "TuckerExperts",
    "build_multitask_model",
    "check_labels",
    "condense",
    "distill",
    "expert_layout_map",
    "gates",
    "per_task",
    "plots",
    "read_table",
    "replicate",
    "single_expert",
    "table_encoder",
]
