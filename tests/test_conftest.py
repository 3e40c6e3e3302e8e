"""The tests change TensorFlow and Keras to save time, and no result changes."""

import ast
import pathlib
import re
from types import SimpleNamespace
from unittest import mock

import conftest
import keras
import numpy as np
import pytest
from conftest import patched
from helpers import numbers, numpy

pytestmark = pytest.mark.backend_independent
on_tensorflow = pytest.mark.backends("tensorflow", reason="It is TensorFlow's part.")
BACKEND, X = keras.backend.backend(), numbers((10, 3))
sliced = pytest.mark.skipif(
    not patched("sliced_batches"), reason="TensorFlow makes the batches."
)


def after_each_seed(draw, times=2):
    """Results of some calls after each of two settings of the same seed."""
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        found.append([numpy(draw()) for _ in range(times)])
    return np.array(found)


@on_tensorflow
@pytest.mark.parametrize("state", [False, True])
def test_operations_start_anew_with_the_seed(state):
    import tensorflow as tf

    normal = tf.random.normal if state else keras.random.normal
    first, second = after_each_seed(lambda: normal((3,)))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


@on_tensorflow
@pytest.mark.parametrize("eager", [False, True])
def test_shuffled_training_starts_anew_with_the_seed(eager):
    import tensorflow as tf

    tf.config.run_functions_eagerly(eager)

    def losses():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        log = model.fit(X, X[:, 0], batch_size=4, epochs=2, verbose=0)
        return log.history["loss"]

    first, second = after_each_seed(losses, times=1)
    np.testing.assert_array_equal(first, second)


@on_tensorflow
@sliced
@pytest.mark.parametrize(
    "arrays",
    [
        (X,),
        ((X.astype("float64"), X > 0), {"a": np.arange(10), "b": np.float16(X)}),
        ([X, X[:, 0]], [X, X], np.ones(10)),
        ({"x": X}, None, np.ones(10)),
    ],
    ids=["x", "types", "lists", "no labels"],
)
def test_batches_are_those_of_tensorflow(arrays):
    import tensorflow as tf
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    found, wanted = [], []
    for eager, batches in [(True, found), (False, wanted)]:
        tf.config.run_functions_eagerly(eager)
        data = ArrayDataAdapter(*arrays, batch_size=4, shuffle=False).get_tf_dataset()
        assert isinstance(data, tf.data.Dataset) != eager
        batches.extend(data)
    assert len(found) == len(wanted) == 3
    keras.tree.assert_same_structure(found, wanted)
    for one, other in zip(*map(keras.tree.flatten, (found, wanted)), strict=True):
        if not isinstance(other, tf.experimental.Optional):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@on_tensorflow
@sliced
def test_shuffled_batches_have_each_example_once_and_in_another_order():
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    data = ArrayDataAdapter(np.arange(10), batch_size=4, shuffle=True).get_tf_dataset()
    passes = [np.concatenate([numpy(batch) for batch in data]) for _ in range(2)]
    assert (passes[0] != passes[1]).any()
    np.testing.assert_array_equal(np.sort(passes), [np.arange(10)] * 2)


@pytest.mark.parametrize(
    ("unpatched", "wanted"),
    [("", [True, True]), ("1", [False, False]), ("kept_kernels,other", [False, True])],
)
def test_each_change_can_be_left_out(monkeypatch, unpatched, wanted):
    monkeypatch.setenv("DSELECTK_UNPATCHED", unpatched)
    assert [patched(name) for name in ("kept_kernels", "sliced_batches")] == wanted


@pytest.mark.parametrize(
    ("place", "backends", "wanted"),
    [
        ("gates/test_gate.py::test_a", None, set()),
        ("gates/test_gate.py::test_a", [BACKEND], set()),
        ("gates/test_gate.py::test_a", ["a", "b"], {"skip"}),
        ("research/studies/test_demo.py::test_a[1]", None, {"backend_independent"}),
        (
            "scripts/test_scripts.py::test_what_cannot_be_trained_ends",
            ["a", "b"],
            {"backend_independent", "skip"},
        ),
        ("scripts/test_scripts.py::test_a_run_is_stopped", None, set()),
    ],
)
def test_a_test_has_the_marks_of_its_place_and_its_backends(place, backends, wanted):
    path, _, name = place.partition("::")
    path, found = pathlib.Path(conftest.__file__).parent / path, []
    given = backends and pytest.mark.backends(*backends, reason="so").mark
    item = SimpleNamespace(path=path, name=name, add_marker=found.append)
    item.get_closest_marker = {"backends": given}.get
    conftest.pytest_collection_modifyitems([item])
    assert {each.name for each in found} == wanted
    reasons = [each.kwargs["reason"] for each in found if each.name == "skip"]
    assert reasons == ["Runs on a or b: so"] * ("skip" in wanted)


def test_what_is_left_to_other_backends_is_counted():
    reasons = ["Runs on jax: a", "Runs on jax: b", "Runs on jax or torch: c", "none"]
    reports = [mock.Mock(longrepr=("", 1, f"Skipped: {each}")) for each in reasons]
    reporter = mock.Mock(stats={"skipped": reports})
    list(conftest.pytest_terminal_summary(reporter))
    reporter.write_line.assert_called_once_with(
        "Tests left to other backends: 2 to jax, 1 to jax or torch."
    )


def test_no_test_skips_by_the_backend_but_by_the_marker():
    # Its skips are counted, and it is known that another backend runs the test.
    found = [
        path.name
        for path in pathlib.Path(__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "pytest.mark.skipif"
        and re.search(r"backend\(\)|BACKEND|ON_", ast.unparse(call.args[0]))
    ]
    assert not found


@pytest.mark.parametrize(
    ("most", "began", "passes"), [(None, -99, True), (9, -99, False), (9, -8, True)]
)
def test_a_test_that_takes_long_fails_if_asked_for(monkeypatch, most, began, passes):
    monkeypatch.setattr(conftest, "busy_seconds", lambda: 0)
    config = SimpleNamespace(getoption={"most_seconds": most}.get)
    item, call = SimpleNamespace(config=config, began=began), mock.Mock(when="teardown")
    report = SimpleNamespace(passed=True, outcome="passed")
    hook = conftest.pytest_runtest_makereport(item, call)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    assert report.outcome == ("passed" if passes else "failed")
    assert passes or report.longrepr == "A test may take 9 seconds. Received: 99"


def test_each_wait_for_another_process_has_a_limit():
    # And each process is closed, which `jobs.py` does.
    wrong = []
    for path in pathlib.Path(__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            waits = name.endswith((".wait", ".communicate"))
            limited = {each.arg for each in call.keywords} & {"timeout", None}
            starts = name in {"subprocess.run", "subprocess.Popen"}
            if (waits and name != "jobs.wait" and not limited) or (
                starts and path.name != "jobs.py"
            ):
                wrong.append(f"{path.name}:{call.lineno}")
    assert not wrong
