"""The frozen network: its shape, where it is cut, and where its weights come from."""

import sys
import types

import keras
import numpy as np
import pytest

from papers.smear import _backbone

# A few steps of many models: TensorFlow would trace graphs most of the time.

IMAGES = np.random.default_rng(0).uniform(size=(3, 28, 28, 1)).astype("float32")


@pytest.fixture(scope="module")
def network():
    model = _backbone.resnet18((28, 28, 1), width=2)
    rng = np.random.default_rng(1)
    weights = model.get_weights()
    # Averages and scales that are not those of a new network.
    weights = [w if w.ndim > 1 else rng.uniform(0.5, 1.5, w.shape) for w in weights]
    model.set_weights(weights)
    return model


def test_has_eighteen_layers(network):
    convolutions = [n.name for n in network.layers if n.name.endswith("_conv")]
    # Three stacks begin with a shortcut of one convolution, which is not counted; the
    # classifier is the eighteenth.
    assert len([name for name in convolutions if not name.endswith("_0_conv")]) == 17
    assert len([name for name in convolutions if name.endswith("_0_conv")]) == 3
    assert network.output.shape == (None, 4, 4, 16)


@pytest.mark.parametrize("num_adapters", [1, 3, 8])
def test_parts_make_the_whole(network, num_adapters):
    features, blocks = _backbone.cut(network, num_adapters)
    assert len(blocks) == num_adapters
    x = features(IMAGES)
    for block in _backbone.copies(blocks):
        assert not block.trainable_variables
        x = block(x, training=True)
    found, wanted = (keras.ops.convert_to_numpy(y) for y in (x, network(IMAGES)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_copies_share_no_weight(network):
    _, (block,) = _backbone.cut(network, 1)
    (copy,) = _backbone.copies([block])
    before = block.get_weights()
    copy.set_weights([0 * weight for weight in before])
    for now, then in zip(block.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_cut_says_what_it_needs(network):
    with pytest.raises(ValueError, match="4 stacks of 2 residual blocks"):
        _backbone.cut(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]), 1)
    with pytest.raises(ValueError, match="1 to 8 adapters"):
        _backbone.cut(network, 9)


def test_flops_of_a_convolution():
    model = keras.Sequential(
        [keras.Input((6, 6, 3)), keras.layers.Conv2D(5, 3, 2, "same")]
    )
    # 3 x 3 places, 5 filters, each of 3 x 3 x 3 products and sums.
    assert _backbone.convolution_flops([model]) == 2 * 9 * 5 * 27


def test_training_changes_the_weights():
    model = _backbone.resnet18((28, 28, 1), width=8)
    before = model.get_weights()
    _backbone.pretrain(model, IMAGES, np.array([[0], [1], [2]], "int32"), epochs=1)
    pairs = zip(model.get_weights(), before, strict=True)
    assert not any(np.array_equal(now, then) for now, then in pairs if now.ndim > 1)


def test_keras_hub_is_asked_for(monkeypatch):
    asked = {}

    class Backbone:
        @staticmethod
        def from_preset(preset, load_weights, image_shape):
            asked.update(preset=preset, load_weights=load_weights)
            return _backbone.resnet18(image_shape, width=2)

    hub = types.SimpleNamespace(models=types.SimpleNamespace(Backbone=Backbone))
    monkeypatch.setitem(sys.modules, "keras_hub", hub)
    images = _backbone.as_photographs(IMAGES)
    model = _backbone.from_keras_hub("resnet_18_imagenet", images.shape[1:], False)
    assert asked == {"preset": "resnet_18_imagenet", "load_weights": False}
    features, blocks = _backbone.cut(model, 3)
    x = features(images)
    for block in blocks:
        x = block(x)
    assert x.shape == (3, 7, 7, 16)


def test_a_preset_of_keras_hub(tmp_path):
    """Where it is installed: random weights, saved as a preset and loaded again."""
    hub = pytest.importorskip("keras_hub")
    images = _backbone.as_photographs(IMAGES)
    saved = hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 8, 8, 8],
        stackwise_num_blocks=[2, 2, 2, 2],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="basic_block",
    )
    saved.save_to_preset(str(tmp_path / "preset"))
    model = _backbone.from_keras_hub(str(tmp_path / "preset"), images.shape[1:])
    features, blocks = _backbone.cut(model, 8)
    x = features(images)
    for block in _backbone.copies(blocks):
        x = block(x)
    found, wanted = (keras.ops.convert_to_numpy(y) for y in (x, saved(images)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_keras_hub_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match=r"needs keras_hub.*\[pretrained\]"):
        _backbone.from_keras_hub("resnet_18_imagenet", (28, 28, 1))


def test_photographs_by_hand():
    images = np.array([0.485, 0.714]).reshape(1, 1, 2, 1)
    found = _backbone.as_photographs(images)
    assert found.shape == (1, 2, 4, 3)
    red, green = [[0, 0, 1, 1]] * 2, (0.485 - 0.456) / 0.224
    np.testing.assert_allclose(found[0, ..., 0], red, atol=1e-6)
    np.testing.assert_allclose(found[0, :, :2, 1], green, rtol=1e-5)
