"""A record of what gates have routed, and of the experts that were mixed."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from keras import ops

from dselectk_keras.gates.routing import Routing
from dselectk_keras.utils import Tensor


class GateCall(NamedTuple):
    """One call of a gate, by a layer or alone.

    Args:
        gate: The gate.
        routing: What it has returned, with its logits.
        experts: The outputs of the experts, `(batch, n, ...)`; `None` if not all were
            evaluated on all examples, but dispatched or merged.
        mixture: What the experts were combined to, `(batch, [num_gates,] ...)`.
        own: The outputs of experts that only one gate has, `(batch, num_gates * s,
            ...)`, if there are any. They come after the others in the routing.
    """

    gate: Any
    routing: Routing
    experts: Tensor
    mixture: Tensor
    own: Tensor = None


class _Recorder(threading.local):  # Replicas of `tf.distribute` are threads.
    note: Any = None


_recorder = _Recorder()


@contextlib.contextmanager
def recording(note: Callable[[GateCall], Any]) -> Iterator[None]:
    """Call a function with each `GateCall` of this thread, such as a list's `append`.

    In a compiled program, the calls have symbolic tensors, which end with the program.
    """
    before, _recorder.note = _recorder.note, note
    try:
        yield
    finally:
        _recorder.note = before


def record_call(
    gate: Any, routing: Routing, experts: Any, mixture: Tensor, own: Tensor = None
) -> None:
    """Record a call; experts may be a list, or a tuple of tensors of some each."""
    if _recorder.note is None:
        return
    if isinstance(experts, (list, tuple)):
        join = ops.stack if isinstance(experts, list) else ops.concatenate
        experts = join(experts, axis=1)
    _recorder.note(GateCall(gate, routing, experts, mixture, own))
