"""Runs: a frozen config, and what it gives."""

from dselectk_keras.experiments.training_run import TrainingRun

__all__ = ["TrainingRun"]
