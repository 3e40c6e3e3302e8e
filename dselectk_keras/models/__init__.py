"""Multi-task models, and functions that change trained models."""

from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.models.build import build_multitask_model
from dselectk_keras.models.check_labels import check_labels
from dselectk_keras.models.condense import condense
from dselectk_keras.models.distill import distill
from dselectk_keras.models.grad_norm import GradNorm
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.per_task import per_task
from dselectk_keras.models.task import Task

__all__ = [
    "ARCHITECTURES",
    "GradNorm",
    "MultitaskModel",
    "Task",
    "build_multitask_model",
    "check_labels",
    "condense",
    "distill",
    "per_task",
]
