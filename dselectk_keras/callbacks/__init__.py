"""Callbacks for `model.fit`."""

from dselectk_keras.callbacks.checkpoints import Checkpoints
from dselectk_keras.callbacks.decide_gates import DecideGates, OnceDecided
from dselectk_keras.callbacks.gate_history import GateHistory
from dselectk_keras.callbacks.gate_recorder import GateRecorder

__all__ = [
    "Checkpoints",
    "DecideGates",
    "GateHistory",
    "GateRecorder",
    "OnceDecided",
]
