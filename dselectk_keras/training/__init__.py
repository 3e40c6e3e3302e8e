"""Many runs of one architecture, and batches in an order that a seed decides."""

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.replicas import Replicas
from dselectk_keras.training.replicate import replicate

__all__ = ["Batches", "Replicas", "replicate"]
