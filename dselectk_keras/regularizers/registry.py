"""The regularizers by name."""

from dselectk_keras.registry import Registry

REGULARIZERS = Registry("regularizer")
