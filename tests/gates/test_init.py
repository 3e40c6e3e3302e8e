import inspect

import pytest
from helpers import refusals

from dselectk_keras import gates

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("name", gates.GATES)
def test_get_makes_a_gate_by_its_name(name):
    takes = inspect.signature(gates.GATES[name]).parameters
    settings = {"num_nonzeros": 3} if "num_nonzeros" in takes else {}
    settings |= {"units": 3} if "units" in takes else {}
    settings |= {"choices": [[0], [1]]} if "choices" in takes else {}
    gate = gates.get(name, num_gates=2, **settings)
    assert type(gate) is gates.GATES[name]
    assert gate.get_config().items() >= {"num_gates": 2, **settings}.items()


test_get_lists_what_it_knows = refusals(
    (gates.get, r"no gate of the name 'dselectk'.*dselect_k", "dselectk"),
    (
        lambda: gates.get("dselect_k", noise=True, dtype="float32"),
        r"'dselect_k' are: num_nonzeros, .*num_gates, .*Received: 'noise'\.",
    ),
)
