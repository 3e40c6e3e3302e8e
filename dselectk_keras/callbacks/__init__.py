"""Callbacks for `model.fit`."""

from dselectk_keras.callbacks.gate_history import GateHistory
from dselectk_keras.callbacks.gate_recorder import GateRecorder

__all__ = ["GateHistory", "GateRecorder"]
