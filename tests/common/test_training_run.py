"""A run trains, and leaves a folder with all that came out."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from helpers import numpy

from common.files import to_json
from common.training_run import Curve, TrainingRun
from dselectk_keras import ChooseExperts, GateHistory, datasets
from dselectk_keras.batches import Batches
from dselectk_keras.datasets import Dataset, Split

SIZES = {"num_train": 64, "num_validation": 16, "num_test": 16}
TINY = TrainingRun(
    data_options={"num_tasks": 16, **SIZES}, epochs=2, batch_size=32, num_nonzeros=2
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the results of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "new" / "run"
    return folder, TINY.run(folder, progress=False)


def test_everything_is_written(finished):
    folder, results = finished
    files = "expert_heatmap.png gate_history.npz gate_weights.png model.keras"
    assert {path.name for path in folder.iterdir()} == {*files.split(), "metrics.json"}
    written = json.loads((folder / "metrics.json").read_text())
    assert written == json.loads(to_json(results))
    assert results["config"] == dataclasses.asdict(TINY)
    assert results["label"] == "mmoe dselect_k"
    assert len(results["curve"]["val_task_loss"]) == 2
    assert results["test_task_loss"] == results["test"]["task_loss"] / 16
    # Four experts of four units on ten inputs; 16 gates of two selectors.
    assert results["num_params"] == 4 * (10 * 4 + 4) + 16 * (2 * 2 + 2)
    history = GateHistory.load(folder / "gate_history.npz")
    assert history.steps.tolist() == [0, 1, 2, 3, 4]
    active = history["mmoe"]["active"][-1].mean()
    assert results["gates"]["experts_per_task"] == pytest.approx(active)


def test_the_saved_model_gives_the_reported_loss(finished):
    folder, results = finished
    model = keras.saving.load_model(folder / "model.keras")
    test = datasets.load("synthetic_moe", num_tasks=16, **SIZES).test
    errors = [
        np.mean((outputs[:, 0] - test.y[:, t]) ** 2)
        for t, outputs in enumerate(
            model.predict(test.x, verbose=0)[task.name] for task in model.tasks
        )
    ]
    assert results["test_task_loss"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_a_finished_run_is_kept_unless_told_otherwise(finished):
    folder, _ = finished
    before = (folder / "metrics.json").read_bytes()
    with pytest.raises(FileExistsError, match=r"that is finished\. Choose another"):
        TINY.run(folder, progress=False)
    assert (folder / "metrics.json").read_bytes() == before


def test_a_run_that_cannot_begin_keeps_the_finished_one(tmp_path, monkeypatch):
    done = tmp_path / "metrics.json"
    done.touch()
    with pytest.raises(OSError, match=r"cannot be written to: .* Choose another"):
        TINY.run(done / "run")
    nothing = {"data": "expert_recovery", "data_options": {"num_train": 0}}
    with pytest.raises(ValueError, match="num_train=0"):
        dataclasses.replace(TINY, **nothing).run(
            tmp_path, overwrite=True, progress=False
        )
    assert done.exists()
    # One that breaks off later leaves none.
    monkeypatch.setattr(keras.Model, "compile", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        TINY.run(tmp_path, overwrite=True, progress=False)
    assert not list(tmp_path.iterdir())


def test_the_same_seed_gives_the_same_run_and_may_replace_it(tmp_path):
    run = dataclasses.replace(
        TINY,
        data="expert_recovery",
        data_options=SIZES,
        architecture="shared_bottom",
        epochs=1,
    )
    first = run.run(tmp_path, progress=False)
    for name in ("gate_history.npz", "gate_weights.png", "expert_heatmap.png"):
        (tmp_path / name).touch()  # As a run with gates leaves them.
    again = run.run(tmp_path, overwrite=True, progress=False)
    assert again["test"] == pytest.approx(first["test"], rel=1e-6)
    assert run.label == "shared_bottom"
    assert "gates" not in again
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"metrics.json", "model.keras"}


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"data": "mnist2"}, "`data` must be one of 'c.*Received: data='mnist2'"),
        ({"architecture": "mmmoe"}, "no architecture of the name 'mmmoe'"),
        ({"gate": "hard"}, "no gate of the name 'hard'. Known names: chosen, "),
        (
            {"gate": "top_k", "gate_options": {"gama": 1}},
            "'top_k' are: num_nonzeros, noise, .*seed. Received: 'gama'",
        ),
        ({"gate_options": {"num_nonzeros": 2}}, "of its own. Received: num_nonzeros."),
        (
            {"gate": "dselect_k", "gate_options": {"entropy_reg": 1.0, "gamma": 2.0}},
            "Received: entropy, gamma. Set the fields",
        ),
        ({"num_experts": 0}, "`num_experts` must be a positive .*num_experts=0"),
        ({"epochs": 0}, "`epochs` must be a positive integer. Received: epochs=0"),
        ({"batch_size": -1}, "`batch_size` must be a positive .*batch_size=-1"),
    ],
)
def test_what_no_run_can_have_is_refused_before_any_work(setting, text):
    with pytest.raises(ValueError, match=text):
        TrainingRun(**setting)


def data_of(x, info=None, num_classes=None):
    """A data set of two tasks on these inputs."""
    kinds = ("multiclass",) * 2 if num_classes else ("binary",) * 2
    part = Split(x, np.zeros((len(x), 2), "int32"))
    return Dataset(
        *(part, part, part),
        task_names=("a", "b"),
        task_kinds=kinds,
        num_classes=(num_classes,) * 2 if num_classes else None,
        info=info or {},
    )


def test_per_example_gates_are_recorded_on_the_validation_data(tmp_path):
    run = dataclasses.replace(TINY, gate="top_k", per_example=True, epochs=1)
    results = run.run(tmp_path, progress=False)
    assert results["gates"]["experts_per_task"] == 2.0


def test_images_are_flattened_and_classes_told_apart():
    data = data_of(np.zeros((4, 5, 6), "float32"), num_classes=3)
    model = TrainingRun(data="grouped_tasks").build(data)
    assert model.get_layer("mmoe").experts.weights[0].shape[1] == 30
    assert model(data.test.x)["b"].shape == (4, 3)


def test_ids_are_embedded():
    ids = np.array([[0, 6], [2, 1]], "int32")
    model = TrainingRun(data="grouped_tasks").build(
        data_of(ids, {"vocabulary_sizes": (3, 7)})
    )
    first, second = numpy(model(ids)["a"]), numpy(model(ids[::-1])["a"])
    np.testing.assert_allclose(first, second[::-1], atol=1e-6)
    assert not np.allclose(first[0], first[1])


def test_inputs_by_name_need_a_model_of_ones_own():
    data = data_of(np.zeros((4, 2), "float32"))
    parts = [Split({"text": data.train.x}, data.train.y)] * 3
    data = Dataset(*parts, task_names=("a", "b"), task_kinds=("binary",) * 2)
    with pytest.raises(ValueError, match=r"inputs in one array. Received: text"):
        TrainingRun().build(data)


def test_experts_of_a_chosen_gate_are_chosen_by_fit():
    data = datasets.load("synthetic_moe", num_tasks=16, **SIZES)
    run = dataclasses.replace(TINY, gate="chosen", decide_by=0.25)
    (choose,) = run.make_decide(run.build(data))
    assert (type(choose), choose.by) == (ChooseExperts, 0.25)
    random = dataclasses.replace(run, gate_options={"initial_choices": "random"})
    assert random.make_decide(random.build(data)) == []


def test_gates_need_not_decide():
    data = datasets.load("synthetic_moe", num_tasks=16, **SIZES)
    run = dataclasses.replace(TINY, decide_by=0.0)
    assert run.make_decide(run.build(data)) == []
    assert len(TINY.make_decide(TINY.build(data))) == 1
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        dataclasses.replace(TINY, decide_by=1.5)


def test_batches_have_the_orders_of_a_whole_training_after_an_interruption(tmp_path):
    x = np.arange(12, dtype="float32")[:, None]

    def orders(first):
        batches, seen = Batches((x, x), batch_size=4, seed=3), []
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        note = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda *_: seen.append(batches.order.tolist())
        )
        callbacks = [Curve(tmp_path / f"{first}.json", batches), note]
        form = {"epochs": 4, "initial_epoch": first, "shuffle": False, "verbose": 0}
        model.fit(batches, callbacks=callbacks, **form)
        return seen

    whole = orders(0)
    assert orders(2) == whole[2:]
    assert len({*map(tuple, whole)}) == 4
