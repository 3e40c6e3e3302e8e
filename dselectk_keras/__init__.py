"""Sparse, differentiable gates for mixtures of experts, in Keras 3."""

__version__ = "0.1.0"
