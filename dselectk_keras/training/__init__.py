"""Train many copies of one architecture, on batches in an order set by a seed."""

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.replicas import Replicas
from dselectk_keras.training.replicate import replicate

__all__ = ["Batches", "Replicas", "replicate"]
