"""Compute what a step of a large mixture of experts needs, before it is built.

    python scripts/plan.py --experts 1000 --tasks 20 --batch 65536 --devices 1 8

prints the parameters, the bytes per device, the operations of a step, and the minutes
of an epoch. docs/plan.md has the formulas.
"""

import argparse
import dataclasses
import itertools
import math
import sys

from command_line import make_parser

BYTES = 4  # A number in float32.


@dataclasses.dataclass(frozen=True)
class Plan:
    """A multi-gate mixture of dense experts, trained on a mesh of devices.

    Args:
        features: Width of the inputs, d.
        experts: The number of experts, n.
        units: Widths of the layers of an expert.
        tasks: The number of tasks, t; each has a gate and a tower.
        tower: Widths of the hidden layers of a tower.
        nonzeros: Experts per task, k.
        gate: `"dselect_k"` or `"top_k"`.
        per_example: Whether the gates see the examples.
        dispatch: Whether each expert is evaluated only on the examples that chose it,
            with a capacity of 1.5. `dispatch=True` also needs the activations without
            dispatch on JAX.
        batch: Examples in a step on all devices, b.
        devices: The mesh: devices that split the batch, and devices that split the
            experts.
        slots: Variables of the optimizer per parameter; Adam has two.
    """

    features: int = 256
    experts: int = 1000
    units: tuple[int, ...] = (512, 256)
    tasks: int = 20
    tower: tuple[int, ...] = (64,)
    nonzeros: int = 2
    gate: str = "top_k"
    per_example: bool = True
    dispatch: bool = False
    batch: int = 65536
    devices: tuple[int, int] = (1, 1)
    slots: int = 2

    @property
    def expert_parameters(self):
        """Kernels and biases of all experts."""
        return self.experts * _dense((self.features, *self.units))

    @property
    def other_parameters(self):
        """Gates and towers, which every device holds."""
        bias = self.per_example and self.gate == "dselect_k"
        inputs = self.features if self.per_example else 1
        towers = self.tasks * _dense((self.units[-1], *self.tower, 1))
        return self.tasks * self._logits * (inputs + bias) + towers

    @property
    def state_bytes(self):
        """Parameters, gradients and optimizer on the fullest device."""
        held = self.expert_parameters / self.devices[1] + self.other_parameters
        return BYTES * (2 + self.slots) * held

    @property
    def activation_bytes(self):
        """Outputs of the experts' layers and mixtures, and their gradients."""
        rows = self.batch / self.devices[0]
        if self.dispatch:
            experts = self._slots * (self.features + sum(self.units))
        else:
            experts = rows * self.experts / self.devices[1] * sum(self.units)
        return 2 * BYTES * (experts + rows * self.tasks * self.units[-1])

    @property
    def sent_bytes(self):
        """What a device sends in a step, around rings of devices.

        The gradients go to the devices that split the batch, the mixtures and the
        gradients of the gates' weights to those that split the experts.
        """
        data, experts = self.devices
        gradients = self.expert_parameters / experts + self.other_parameters
        # Dispatched, each choice is sent, and mixed afterwards.
        sent = self._chosen if self.dispatch else self.tasks
        weights = self.tasks * self.experts / 2 * self.per_example
        mixtures = self.batch / data * (sent * self.units[-1] + weights)
        if self.dispatch and experts > 1:
            # Slots are for the whole batch: their inputs, and gradients of outputs.
            gradients += self._slots * (self.features + self.units[-1])
        return BYTES * (_ring(data) * gradients + _ring(experts) * mixtures)

    @property
    def forward_flops(self):
        """Operations of the forward pass of a batch, on all devices."""
        return self.batch * sum(self._flops)

    @property
    def training_flops(self):
        """Operations of a step: the first layer has no gradient of its inputs."""
        first, *rest = self._flops
        return self.batch * (2 * first + 3 * sum(rest))

    def epoch_seconds(self, rows, speed):
        """Seconds for an epoch if each device does `speed` operations a second."""
        parts = self._dispatching if self.dispatch else math.prod(self.devices)
        return rows / self.batch * self.training_flops / parts / speed

    @property
    def _logits(self):
        if self.gate == "top_k":
            return self.experts
        return self.nonzeros * ((self.experts - 1).bit_length() + 1)

    @property
    def _chosen(self):
        return min(self.experts, self.tasks * self.nonzeros)

    @property
    def _dispatching(self):
        """The number of devices that split dispatched work.

        Where devices split the experts, those that split the batch do not split slots.
        """
        data, experts = self.devices
        return experts if experts > 1 else data

    @property
    def _slots(self):
        """Slots on a device."""
        return 1.5 * self.batch * self._chosen / self._dispatching

    @property
    def _flops(self):
        """Operations per example: first layers, others, gates, mixtures, towers."""
        evaluated = self._chosen if self.dispatch else self.experts
        widths = (self.features, *self.units)
        first, *rest = (2 * evaluated * a * b for a, b in itertools.pairwise(widths))
        gates = 2 * self.features * self._logits * self.tasks * self.per_example
        mixtures = 2 * evaluated * self.units[-1] * self.tasks
        tower = itertools.pairwise((self.units[-1], *self.tower, 1))
        return first, sum(rest), gates, mixtures, 2 * self.tasks * _sum_products(tower)

    def needs(self, rows=10**9, speed=10**14):
        """Texts by name: what a step needs, and the time of an epoch."""
        return {
            "parameters": _si(self.expert_parameters + self.other_parameters),
            "state": f"{_si(self.state_bytes)}B",
            "activations": f"{_si(self.activation_bytes)}B",
            "sent": f"{_si(self.sent_bytes)}B",
            "operations": _si(self.training_flops),
            "minutes": f"{self.epoch_seconds(rows, speed) / 60:.3g}",
        }


def table():
    """The examples of docs/plan.md, as lines of Markdown."""
    meshes = (1, 1), (64, 1), (8, 8)
    examples = [*((mesh, False) for mesh in meshes), ((64, 1), True), ((1, 40), True)]
    lines = []
    for devices, dispatch in examples:
        plan = Plan(devices=devices, dispatch=dispatch)
        needs = {
            "devices (batch x experts)": f"{devices[0]} x {devices[1]}",
            "dispatch": "yes" if dispatch else "no",
            **plan.needs(),
        }
        if not lines:
            lines = [_row(needs), _row(["---"] * 2 + ["---:"] * (len(needs) - 2))]
        lines.append(_row(needs.values()))
    return lines


def _row(cells):
    return f"| {' | '.join(cells)} |"


def _dense(widths):
    """Parameters of dense layers of these widths."""
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def _sum_products(pairs):
    return sum(a * b for a, b in pairs)


def _ring(devices):
    """How often a device sends a tensor that is reduced over several."""
    return 2 * (devices - 1) / devices


def _si(number):
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} "


def main(arguments=None):
    """Print what a plan needs."""
    parser = make_parser(__doc__)
    for field in dataclasses.fields(Plan):
        name = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(
                name, action=argparse.BooleanOptionalAction, default=field.default
            )
        elif isinstance(field.default, tuple):
            parser.add_argument(name, type=int, nargs="*", default=field.default)
        else:
            parser.add_argument(name, type=type(field.default), default=field.default)
    parser.add_argument("--rows", type=float, default=1e9, help="rows of an epoch")
    parser.add_argument(
        "--speed", type=float, default=1e14, help="operations a second of a device"
    )
    options = vars(parser.parse_args(arguments))
    rows, speed = options.pop("rows"), options.pop("speed")
    tuples = {k: tuple(v) for k, v in options.items() if isinstance(v, (list, tuple))}
    for name, text in Plan(**{**options, **tuples}).needs(rows, speed).items():
        print(f"{name:12s} {text}")


if __name__ == "__main__":
    sys.exit(main())
