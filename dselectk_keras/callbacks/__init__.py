"""Callbacks for `model.fit`."""

from dselectk_keras.callbacks.choose_experts import ChooseExperts
from dselectk_keras.callbacks.decide_gates import DecideGates
from dselectk_keras.callbacks.gate_history import GateHistory
from dselectk_keras.callbacks.gate_recorder import GateRecorder

__all__ = ["ChooseExperts", "DecideGates", "GateHistory", "GateRecorder"]
