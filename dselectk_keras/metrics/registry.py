"""The streaming metrics by name."""

from dselectk_keras.registry import Registry

METRICS = Registry("metric")
