"""The runs that the figure and the table of SMEAR share."""

import dataclasses
import functools
from typing import Any, NamedTuple

import keras
import numpy as np

from common.timing import medians_in_turns
from research.engine import Experiment, preset
from research.papers import citations
from research.papers.data import styles
from research.papers.data.domainnet import DOMAINS, NUM_CLASSES, domainnet
from research.papers.smear import _backbone, _routers

PHOTO_SIZE = 224  # Of a photograph, as in the release.
REFERENCE = "1x compute"  # What the costs are relative to.


@dataclasses.dataclass(frozen=True)
class DomainComparison(Experiment):
    """Routers of adapters in a frozen network, on one problem in six domains."""

    seeds: int = preset(10, paper=5, smoke=1)
    stand_in: bool = preset(False, smoke=True)
    routers: tuple[str, ...] = preset(
        _routers.ROUTERS + _routers.ABLATED + _routers.OURS,
        smoke=(REFERENCE, "Tag", "SMEAR"),
    )
    num_train: int = preset(1000, paper=9_900, smoke=16)  # Images of each domain.
    num_test: int = preset(1000, paper=1_666, smoke=8)
    epochs: int = preset(8, paper=216, smoke=1)  # 216 are 100,000 steps.
    batch_size: int = preset(128, smoke=48)
    learning_rate: float = preset(3e-3, paper=1e-3)  # Of Adam.
    # A preset of KerasHub, for DomainNet; `None` is a small network that is trained on
    # digits first, for images in made-up domains.
    backbone: str | None = preset(None, paper="resnet_18_imagenet")
    width: int = 8  # Channels in the first stack of the small network.
    num_digits: int = preset(6000, smoke=48)
    digit_epochs: int = preset(3, smoke=1)
    num_adapters: int = preset(3, paper=8, smoke=2)  # Blocks with one, from the last.
    units: int = preset(8, paper=32, smoke=2)  # Of an adapter.
    turns: int = preset(21, smoke=1)  # How often inference is timed.

    paper = citations.SMEAR
    shown_runs = "smear-table3-small"  # All pages on domains show the same runs.

    @property
    def arms(self):
        return {router: router for router in self.routers}

    @property
    def shown(self):
        """The arms without those with another dropout."""
        return [arm for arm in self.arms if _routers.base_of(arm) == arm]

    @property
    def needs(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        """The data; in memory are the features before the first adapter."""
        if self.backbone is None:
            return "MNIST and Fashion-MNIST, in six made-up domains", 6 * 28 * 28
        # Those of ResNet18 have a quarter of the height and width, and 64 channels.
        return "DomainNet", 6 * (PHOTO_SIZE // 4) ** 2 * 64

    @property
    def stands_in_for(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        """The paper's images, if others are read."""
        return "DomainNet" if self.backbone is None else ""

    @property
    def fields(self) -> dict[str, Any]:
        images = "Fashion-MNIST: ten classes, each image in one of six styles"
        network = (
            f"the same blocks with {self.width} channels in the first stack, behind a "
            f"stem for small images, trained on {self.num_digits:,} handwritten digits "
            f"for {self.digit_epochs} epochs, frozen"
        )
        photos = {
            "images": "DomainNet, read by `research.papers.data.domainnet`",
            "on_average": " on average",
            "network": f"`{self.backbone}` of KerasHub, trained on ImageNet, frozen",
            "image_size": "224 x 224",
        }
        small = dict(zip(photos, (images, "", network, "28 x 28"), strict=True))
        found = photos if self.backbone else small
        return found | {"twice": 2 * self.num_experts}

    @property
    def num_classes(self):
        """Of the problem that all domains share."""
        return styles.NUM_CLASSES if self.backbone is None else NUM_CLASSES

    @property
    def num_experts(self):
        """One for each domain, as in the paper."""
        return len(styles.DOMAINS)

    @property
    def shared(self):
        """The adapters that all routers share."""
        steps = self.epochs * -(-self.num_experts * self.num_train // self.batch_size)
        return _routers.Adapters(self.num_experts, self.units, steps)

    def run(self, arm, jobs):
        ready = self._prepared
        (inputs, labels), (test_inputs, test_labels) = ready.train, ready.test
        seen = [name for name in ("features", _routers.ROUTED_BY.get(arm)) if name]
        examples = {name: inputs[name] for name in seen}, labels
        build = functools.partial(self._model, arm)
        copies = _routers.trained(self, build, jobs, examples)
        found = []
        for predicted, weights in _routers.look_at_copies(copies, test_inputs):
            hits, domains = predicted == test_labels[:, 0], test_inputs["domain"][:, 0]
            numbers = _numbers(hits, weights, domains)
            found.append(numbers | self.flops(arm, numbers["experts_used"]))
        found[0] |= self._times(arm, copies[0].model)
        return found

    def flops(self, arm, used):
        """Operations for one image, with the experts that each layer uses."""
        ready = self._prepared
        adapters = 0
        for block, passes in zip(ready.blocks, used, strict=True):
            _, height, width, channels = block.inputs[0].shape
            adapters += self.shared.flops(arm, height * width, channels, passes)
        frozen = _backbone.convolution_flops([ready.features, *ready.blocks])
        return {"adapter_flops": adapters, "flops": adapters + frozen}

    @functools.cached_property
    def _prepared(self):
        source = self.data_dir, self.stand_in
        if self.backbone is None:
            parts = styles.load_domains(self.num_train, self.num_test, *source)
            # One network for all seeds, as there is one that knows ImageNet.
            keras.utils.set_random_seed(0)
            network = _backbone.resnet18(styles.IMAGE_SHAPE, self.width)
            images = styles.load_digits(self.num_digits, *source)
            _backbone.pretrain(network, *images, self.digit_epochs)
        else:
            parts = photographs(self.num_train, self.num_test, self.data_dir)
            shape = parts[0][0]["image"].shape[1:]
            network = _backbone.from_keras_hub(self.backbone, shape)
        features, blocks = _backbone.cut(network, self.num_adapters)
        features.trainable = False
        for inputs, _ in parts:
            inputs["features"] = features.predict(
                inputs["image"], batch_size=256, verbose=0
            )
        return _Ready(features, blocks, *parts)

    def _model(self, arm, dispatch=False):
        shared = dataclasses.replace(self.shared, dispatch=dispatch)
        size = self.num_classes, self.learning_rate
        return _routers.build_model(arm, self._prepared.blocks, shared, *size)

    def _times(self, arm, model):
        """The time of inference from images, relative to that of a single expert."""
        ready, wholes = self._prepared, []
        for router in (arm, REFERENCE):
            rest = self._model(router, dispatch=True)
            if router == arm:
                rest.set_weights(model.get_weights())
            wholes.append(_routers.whole(ready.features, rest))
        batch = {name: x[: self.batch_size] for name, x in ready.test[0].items()}
        calls = [
            functools.partial(
                m.predict_on_batch, {name: batch[name] for name in m.input}
            )
            for m in wholes
        ]
        one, reference = medians_in_turns(calls, self.turns)
        return {"time_ratio": one / reference, "milliseconds": 1e3 * one}


class _Ready(NamedTuple):
    """The network, and what its frozen beginning makes of the images."""

    features: keras.Model
    blocks: list[keras.Model]
    train: Any
    test: Any


def photographs(num_train, num_test, data_dir=None):
    """DomainNet, so many images per domain on average: inputs and labels, twice.

    The domains have shares of the images as in the whole, which are not the same.
    """
    count = len(DOMAINS)
    data = domainnet(
        image_size=PHOTO_SIZE,
        num_train=count * num_train,
        num_validation=count,  # Which nothing looks at.
        num_test=count * num_test,
        data_dir=data_dir,
    )
    parts, first = [], 0
    for x, labels in (data.train, data.test):
        ids = first + np.arange(len(labels), dtype="int32")[:, None]
        first += len(labels)
        image = _backbone.as_photographs(x["image"])
        inputs = {"image": image, "domain": x["domain"][:, None], "id": ids}
        parts.append((inputs, labels))
    return parts


def _numbers(hits, weights, domains):
    """The accuracy by domain, and how each layer routes the domains."""
    count = len(styles.DOMAINS)
    by_domain = [float(hits[domains == number].mean()) for number in range(count)]
    used = (1.0 if w is None else (w > 0).sum(-1).mean() for w in weights)
    return {
        # Not the mean over the domains, of which some have more images in DomainNet.
        "accuracy": float(hits.mean()),
        "accuracies": by_domain,
        "routing": [_routers.mean_routing(each, domains, count) for each in weights],
        "experts_used": [round(float(each), 3) for each in used],
    }
