"""A history keeps what is appended, and gives it as arrays or a file."""

import random

import numpy as np
import pytest
from checks import assert_equal
from helpers import refusals

from dselectk_keras import GateHistory

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def history():
    """Two records of a layer with two tasks and one of a layer with a single gate."""
    history = GateHistory({"mmoe": ["click", "like"], "moe": ["gate_0"]})
    for i, step in enumerate((0, 10)):
        weights = np.array([[1.0, 0.0, 0.0], [0.25, 0.25, 0.5]]) + i
        of_tasks = {
            "weights": weights,
            "active": np.array([1.0, 3.0]) + i,
            "binary": np.array([[1.0, 0.0], [0.0, 1.0]]) + i,
            "penalty_entropy": np.float32(0.5 + i),
        }
        history.append(step, {"mmoe": of_tasks, "moe": {"weights": weights[:1, :2]}})
    return history


def test_a_history_is_a_mapping_by_layer_of_arrays_with_an_axis_for_records(history):
    assert history.steps.tolist() == [0, 10]
    assert {name: array.shape for name, array in history["mmoe"].items()} == {
        "weights": (2, 2, 3),
        "active": (2, 2),
        "binary": (2, 2, 2),
        "penalty_entropy": (2,),
    }
    assert history["moe"]["weights"][1].tolist() == [[2.0, 1.0]]
    assert [*history] == ["mmoe", "moe"]
    assert len(history) == 2
    assert "gate" not in history
    with pytest.raises(KeyError, match=r"layer 'gate'. Recorded: mmoe, moe"):
        history["gate"]


def test_what_a_layer_lacks_is_unknown_in_records_before_or_after(tmp_path):
    history = GateHistory({"mmoe": ["a"]})
    weights = {"weights": np.ones((1, 2), "float32")}
    binary = {"binary": np.ones((1, 1), "float32")}
    for step in range(4):
        history.append(step, {"mmoe": weights if step < 2 else {**weights, **binary}})
    assert_equal(history["mmoe"]["binary"][:, 0, 0], [np.nan, np.nan, 1.0, 1.0])
    history = GateHistory({"a": ["x"], "b": ["x"]})
    weights = {"weights": np.ones((1, 2))}
    history.append(0, {"a": weights, "b": weights})
    history.append(5, {"a": weights})
    history.save(tmp_path / "history.npz")
    loaded = GateHistory.load(tmp_path / "history.npz")
    assert loaded["a"]["weights"].tolist() == [[[1, 1]], [[1, 1]]]
    assert loaded["b"]["weights"][0].tolist() == [[1, 1]]
    assert np.isnan(loaded["b"]["weights"][1]).all()


def test_a_saved_history_is_the_same_and_can_be_continued(history, tmp_path):
    path = tmp_path / "folder" / "run.1"
    history.save(path)
    loaded = GateHistory.load(path)
    assert loaded.tasks == history.tasks
    for both in (history, loaded):
        both.append(20, {"moe": {"weights": np.ones((1, 2))}})
    assert loaded.steps.tolist() == [0, 10, 20]
    for layer in history.tasks:
        assert list(loaded[layer]) == list(history[layer])
        assert_equal(loaded[layer], dict(history[layer]))


test_arguments_of_other_kinds_are_refused_by_name = refusals(
    (GateHistory.load, r"`path` must be a path\. Received: path=5", 5),
    (GateHistory({}).save, r"`path` must be a path\. Received: path=5", 5),
    (GateHistory, r"`tasks` must be a dict .* tasks=\['a'\]", ["a"]),
    (GateHistory({"moe": ["a"]}).append, r"`step` must be .* step=1\.5", (1.5, {})),
    (GateHistory({}).cut, r"`step` must be .* step=1\.5", 1.5),
)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"events": []}, "steps"),
        ({"steps": [0, 1], "events": [], "weights": np.ones(2)}, "unpack"),
        ({"steps": [0, 1, 2], "events": [], "weights|moe": np.ones(2)}, "shorter"),
        ({"steps": np.array([object()])}, "allow_pickle=False"),
    ],
)
def test_a_file_that_is_no_history_is_refused_by_name(arrays, text, tmp_path):
    np.savez(tmp_path / "history.npz", *arrays.values(), names=list(arrays))
    with pytest.raises(ValueError, match=f"history.npz is damaged.*{text}"):
        GateHistory.load(tmp_path / "history.npz")


@pytest.mark.parametrize("kind", ["bit", "truncated", "longer"])
def test_an_altered_file_is_refused_or_has_the_same_records(kind, history, tmp_path):
    path = tmp_path / "history.npz"
    history.save(path)
    content, draw = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(100):
        place = draw.randrange(len(content))
        altered = bytearray(content)
        altered[place] ^= 1 << draw.randrange(8)
        altered = {
            "bit": bytes(altered),
            "truncated": content[:place],
            "longer": content + draw.randbytes(1 + place % 100),
        }[kind]
        path.write_bytes(altered)
        try:
            loaded = GateHistory.load(path)
        except ValueError as error:
            refused += "history.npz is damaged" in str(error)
        else:
            np.testing.assert_equal(dict(loaded), dict(history))
            np.testing.assert_equal(loaded.steps, history.steps)
    assert refused >= {"bit": 50, "truncated": 100, "longer": 0}[kind]


def test_a_file_that_cannot_be_completed_does_not_replace_the_one_before(
    history, tmp_path, monkeypatch
):
    def full(file, *arrays, **named):
        file.write(b"half")
        raise OSError("No space left on device")

    path = tmp_path / "history.npz"
    history.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        history.save(path)
    assert path.read_bytes() == before
