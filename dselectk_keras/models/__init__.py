"""Multi-task models by the name of their architecture."""

from dselectk_keras.models.build import ARCHITECTURES, build_multitask_model
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.task import Task

__all__ = ["ARCHITECTURES", "MultitaskModel", "Task", "build_multitask_model"]
