"""The preset `paper` of SMEAR's experiments on images reads DomainNet."""

import dataclasses
import types

import numpy as np
import pytest

from research.engine import Results, reproduce
from research.engine.plan import plan
from research.papers import EXPERIMENTS
from research.papers.data.domainnet import DOMAINS, NUM_IMAGES
from research.papers.smear import _backbone, _comparison, _routers

TRAIN, TEST = 4, 2
PAPER = EXPERIMENTS["smear-table3-small"].presets()["paper"]


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """Six domains in the format of DomainNet, with a few small pictures."""
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        monkeypatch.setitem(NUM_IMAGES, domain, (TRAIN, TEST))
        for part, size in {"train": TRAIN, "test": TEST}.items():
            lines = [f"{domain}/thing/{part}_{i}.png {i}" for i in range(size)]
            (tmp_path / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
            for line in lines:
                path = tmp_path / line.split()[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                image = rng.integers(256, size=(9, 6, 3), dtype="uint8")
                path.write_bytes(tf.io.encode_png(image).numpy())
    monkeypatch.setattr(_comparison, "PHOTO_SIZE", 16)
    return tmp_path


@pytest.fixture
def tiny(monkeypatch, data_dir):
    """The preset with a backbone of this shape, in place of one from KerasHub."""
    asked = []

    def backbone(preset, image_shape):
        asked.append((preset, image_shape))
        return _backbone.resnet18(image_shape, 2)

    monkeypatch.setattr(_backbone, "from_keras_hub", backbone)
    sizes = {"num_train": 3, "num_test": 2, "epochs": 1, "batch_size": 6, "units": 2}
    more = {"num_adapters": 2, "turns": 1, "seeds": 1, "data_dir": str(data_dir)}
    routers = {"routers": ("1x compute", "Tag", "Hash", "SMEAR")}
    return dataclasses.replace(PAPER, **sizes, **more, **routers), asked


def test_the_preset_runs_on_pictures_in_the_format_of_domainnet(tiny):
    experiment, asked = tiny
    results = reproduce(experiment, progress=False)
    assert results.complete
    assert asked == [("resnet_18_imagenet", (16, 16, 3))]
    for run in results.runs:
        assert len(run.numbers["accuracies"]) == len(DOMAINS)
    model = experiment._model("SMEAR")
    assert model.output_shape == (None, 345)


def test_all_routers_have_weights_to_look_at():
    smoke = EXPERIMENTS["smear-table3-small"].presets()["smoke"]
    every = _routers.ROUTERS + _routers.ABLATED + _routers.OURS
    smoke = dataclasses.replace(smoke, routers=every, num_test=1, num_adapters=1)
    inputs, _ = smoke._prepared.test
    for router in every:
        copy = types.SimpleNamespace(model=smoke._model(router))
        ((predicted, looked),) = _routers.look_at_copies([copy], inputs)
        assert predicted.shape == (smoke.num_experts,)
        experts = _routers.num_experts_of(router, smoke.num_experts)
        is_single = router in _routers.SINGLE
        assert [None if each is None else each.shape for each in looked] == [
            None if is_single else (smoke.num_experts, experts)
        ]


def test_the_accuracy_is_that_of_all_images_though_domains_differ_in_size():
    domains = np.array([0, 0, 0, 0, 1, 2, 3, 4, 5, 5])
    hits = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 1], bool)
    found = _comparison._numbers(hits, [], domains)
    assert found["accuracy"] == 0.4
    assert found["accuracies"] == [0.75, 0.0, 0.0, 0.0, 0.0, 0.5]


def test_pictures_are_whitened_and_have_domains_and_ids(data_dir):
    (train, labels), (test, _) = _comparison.photographs(3, 2, str(data_dir))
    assert train["image"].shape == (18, 16, 16, 3)
    assert train["image"].min() < -1 < 1 < train["image"].max()
    assert train["domain"].shape == train["id"].shape == labels.shape == (18, 1)
    assert np.unique([*train["id"], *test["id"]]).size == 18 + 12
    assert set(test["domain"].ravel()) == set(range(6))


def test_the_plan_says_what_domainnet_takes():
    text = plan(PAPER, Results(type(PAPER)(), "cpu"))
    # Twice 6 x 9,900 images of 56 x 56 x 64 numbers in float32, and 1.5 GB.
    assert text == "95 runs; DomainNet; 97 GB; time not known"
