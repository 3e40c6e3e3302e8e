"""Every test starts from the same backend, seed and drawing surface."""

import collections
import functools
import gc
import os
import pathlib
import random

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow's other kernels sum in an order that depends on the processor, which shows
# in golden gradients that are differences of nearly equal sums.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
if "PYTEST_XDIST_WORKER" in os.environ:
    from common.command_line import COMPILE_FAST

    # Each worker keeps to one core: threads of several would fight for them.
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
    ):
        os.environ.setdefault(name, "1")
    os.environ.setdefault(
        "XLA_FLAGS",
        # Tests compile far longer than they compute.
        f"--xla_cpu_multi_thread_eigen=false {COMPILE_FAST}",
    )
    # And what one test has compiled another need not, in whatever worker. What one
    # reads while another writes it is no whole program, and compiled again.
    cache = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    # To write and read a single operation would take as long as to compile it.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def patched(name):
    """Check whether tests change a part of a backend, to save time.

    `DSELECTK_UNPATCHED=1` leaves all parts as users have them. It can also be the
    names of some parts, separated by commas. A change stays if it saves a twentieth of
    the time. Without the one that is named, a sample of layers, gates, callbacks and
    models takes, in seconds of a core:

    | TensorFlow, 362 tests | 53 | JAX, 179 tests | 42 |
    | --- | --- | --- | --- |
    | without `kept_kernels` | 69 | without `one_context` | 55 |
    | without `run_functions_eagerly` | 89 | | |
    | without `sliced_batches` | 59 | | |
    """
    unpatched = os.environ.get("DSELECTK_UNPATCHED", "")
    return unpatched != "1" and name not in unpatched.split(",")


# The first words of the reason of a skip by the marker `backends`.
ELSEWHERE = "Runs on "
WITH_XLA = os.environ.get("DSELECTK_XLA") == "1"
# Tests whose result does not depend on the backend, beside those that are marked: of
# data, pages, commands and research. Torch runs them: it neither traces nor compiles.
BACKEND_INDEPENDENT = (
    "common/test_files.py",
    "common/test_gates_and_architectures.py",
    "common/test_rivals.py",
    "common/test_scores.py",
    "common/test_set_fields.py",
    "common/test_spaces.py",
    "common/test_table_run.py",
    "common/test_training_run.py",
    "datasets/",
    "docs/",
    "plots/",
    "research/",
    "scripts/test_reproduce.py",
    "scripts/test_scripts.py::test_what_cannot_be_trained",
    "scripts/test_serving_latency.py",
    "test_import.py",
    "test_methods_page.py",
    "test_registry.py",
    "test_toy_gate.py",
)
# Tests that take long come first, so that no worker runs one alone at the end.
LONGEST = (
    "accelerators/",
    "models/test_export.py",
    "distribution/",
    "scripts/",
    "research/studies/",
    "test_wheel.py",
    "test_toy_gate.py",
    "research/papers/test_experiments.py",
    "test_readme.py",
    "research/speed/",
)


def pytest_collection_modifyitems(items):
    """Order the tests, mark those that torch alone runs, and skip those of others."""
    import keras

    def place(item):
        return item.path.relative_to(pathlib.Path(__file__).parent).as_posix()

    for item in items:
        if f"{place(item)}::{item.name}".startswith(BACKEND_INDEPENDENT):
            item.add_marker(pytest.mark.backend_independent)
        marker = item.get_closest_marker("backends")
        if marker and keras.backend.backend() not in marker.args:
            names, why = " or ".join(marker.args), marker.kwargs["reason"]
            item.add_marker(pytest.mark.skip(reason=f"{ELSEWHERE}{names}: {why}"))
    items.sort(key=lambda item: not place(item).startswith(LONGEST))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Count the tests that were left to other backends."""
    yield
    reasons = [
        report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())
    ]
    left = [each.partition(ELSEWHERE)[2].partition(":")[0] for each in reasons]
    counts = collections.Counter(filter(None, left))
    if counts:
        shown = ", ".join(f"{n} to {names}" for names, n in sorted(counts.items()))
        terminalreporter.write_line(f"Tests left to other backends: {shown}.")


def pytest_addoption(parser):
    """Add an option with which a run refuses tests that take long."""
    text = "seconds of a core that a test may take, its processes included"
    parser.addoption("--most-seconds", type=float, help=text)


def busy_seconds():
    """For how long this process and those that have ended kept a core busy."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that takes longer than it may."""
    report = yield
    most = item.config.getoption("most_seconds")
    if most and call.when == "teardown" and report.passed:
        spent = busy_seconds() - item.began
        if spent > most:
            report.outcome = "failed"
            report.longrepr = f"A test may take {most:g} seconds. Received: {spent:.0f}"
    return report


def pytest_collection_finish():
    """Spare the garbage collector the imports and the tests, which stay to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Have TensorFlow run functions step by step, except in tests marked `traced`.

    To trace and compile a function takes longer than the few steps of most tests. With
    `DSELECTK_XLA=1`, all tests do, and XLA compiles what it would compile on a GPU.
    """
    import keras

    item.began = busy_seconds()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        traced = WITH_XLA or item.get_closest_marker("traced") is not None
        tf.config.run_functions_eagerly(patched("run_functions_eagerly") and not traced)


@pytest.fixture(autouse=True, scope="session")
def one_context():
    """Have JAX write all programs in one context of its compiler.

    Most programs of tests are single operations, and a context for each takes a
    seventh of the time to compile them.
    """
    import keras

    if keras.backend.backend() == "jax" and patched("one_context"):
        from jax._src.interpreters import mlir

        mlir.make_ir_context = functools.cache(mlir.make_ir_context)


@pytest.fixture(autouse=True, scope="session")
def with_xla():
    """With `DSELECTK_XLA=1`, have Keras compile TensorFlow's steps as with a GPU."""
    import keras

    if keras.backend.backend() == "tensorflow" and WITH_XLA:
        from keras.src.trainers import trainer

        trainer.Trainer._resolve_auto_jit_compile = trainer.model_supports_jit


@pytest.fixture(autouse=True, scope="session")
def kept_kernels():
    """Have TensorFlow keep its kernels when a seed is set.

    It drops them all, so that random operations with a state begin anew, and to make
    them again takes longer than most tests. The random operations of Keras have no
    state. If an operation with a state has drawn a seed, the kernels are dropped.
    """
    import keras

    if keras.backend.backend() == "tensorflow" and patched("kept_kernels"):
        from tensorflow.python.eager.context import Context

        set_and_drop = Context._set_global_seed

        def set_global_seed(context, seed):
            before = context._seed
            if before is None or (
                context._rng.getstate() != random.Random(before).getstate()
            ):
                set_and_drop(context, seed)
            else:
                context._seed, context._rng = seed, random.Random(seed)

        Context._set_global_seed = set_global_seed


@pytest.fixture(autouse=True, scope="session")
def sliced_batches():
    """Have TensorFlow slice arrays into batches where it runs functions eagerly.

    A data set of TensorFlow is a graph, and each pass over it starts threads. Both
    take several times as long as a step of a small model. Keras has its own code for
    arrays, which the other backends use. Tests marked `traced` use the data sets.
    """
    import keras

    if keras.backend.backend() == "tensorflow" and patched("sliced_batches"):
        import tensorflow as tf
        from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

        make_graph = ArrayDataAdapter.get_tf_dataset

        class Batches:
            def __init__(self, adapter):
                self.adapter = adapter

            def __iter__(self):
                for batch in self.adapter.get_numpy_iterator():
                    yield keras.tree.map_structure(
                        tf.convert_to_tensor,
                        keras.tree.lists_to_tuples(batch),
                        none_is_leaf=False,
                    )

        def get_tf_dataset(adapter):
            if tf.config.functions_run_eagerly() and not tf.distribute.has_strategy():
                return Batches(adapter)
            return make_graph(adapter)

        ArrayDataAdapter.get_tf_dataset = get_tf_dataset


@pytest.fixture
def full_precision():
    """Have products of float32 not round their factors to 11 bits on a GPU.

    Tests against recorded numbers use it. The others run as users run.
    """
    import keras

    if keras.backend.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
        yield
        tf.config.experimental.enable_tensor_float_32_execution(True)
    else:
        yield


@pytest.fixture(autouse=True)
def seeded():
    """Seed Python, NumPy and the backend before each test."""
    # Here, and not above: only the workers need a backend, not what starts them.
    import keras

    keras.utils.set_random_seed(0)
