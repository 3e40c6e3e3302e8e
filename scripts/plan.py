"""Compute what a step of a large mixture of experts needs, before it is built.

    python scripts/plan.py --experts 1000 --tasks 20 --batch 65536 --devices 8 8

prints the parameters, the bytes per device, the operations of a step, and the minutes
of an epoch, for d features, n experts, t tasks, k experts per task, and b examples.
"""

import argparse
import itertools
import math
import sys

from common.command_line import make_parser

BYTES = 4  # A number in float32.
CAPACITY = 1.5


def parse(arguments=None):
    """Read the sizes of a mixture of dense experts, and of a mesh of devices."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--features", type=size, default=256, help="width of the inputs, d")
    add("--experts", type=size, default=1000, help="number of experts, n")
    add("--units", type=size, nargs="+", default=[512, 256], help="layers of an expert")
    add("--tasks", type=size, default=20, help="number of tasks, t")
    add("--tower", type=size, nargs="*", default=[64], help="hidden layers of a tower")
    add("--nonzeros", type=size, default=2, help="experts per task, k")
    add("--gate", choices=("dselect_k", "top_k"), default="top_k", help="gate")
    add("--static", action="store_true", help="the gates do not depend on the inputs")
    add("--dispatch", action="store_true", help="evaluate chosen experts only")
    add("--batch", type=size, default=65536, help="examples per step, b")
    add("--devices", type=size, nargs=2, default=[1, 1], help="for batch and experts")
    add("--slots", type=int, choices=(0, 1, 2), default=2, help="optimizer variables")
    add("--rows", type=size, default=10**9, help="rows of an epoch")
    add("--speed", type=size, default=10**14, help="operations a second of a device")
    options = parser.parse_args(arguments)
    if options.nonzeros > options.experts:
        parser.error("--nonzeros must be at most --experts")
    if options.static and options.dispatch:
        parser.error("--dispatch needs per-example gates: leave out --static")
    for name, parts in zip(("batch", "experts"), options.devices, strict=True):
        if getattr(options, name) % parts:
            parser.error(f"--{name} must be a multiple of its number of --devices")
    return options


def size(text):
    """A positive integer, which may be written as 1e9."""
    number = float(text)
    if number < 1 or number % 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, received {text}")
    return int(number)


def plan(options):
    """The needs of a step, a dict of numbers: in all, or on the fullest device."""
    d, n, t, b = options.features, options.experts, options.tasks, options.batch
    units, per_example, dispatch = options.units, not options.static, options.dispatch
    split_batch, split_experts = options.devices
    tower = [units[-1], *options.tower, 1]
    logits, inputs = n, d if per_example else 1
    if options.gate == "dselect_k":
        logits = options.nonzeros * ((n - 1).bit_length() + 1)
        inputs += per_example  # A bias.
    chosen = min(n, t * options.nonzeros)
    of_experts = n * parameters([d, *units])
    others = t * (logits * inputs + parameters(tower))
    held, rows = of_experts / split_experts + others, b / split_batch
    workers, evaluated, mixed = split_batch * split_experts, n, t
    outputs, gradients = rows * n / split_experts * sum(units), held
    if dispatch:
        workers = split_experts if split_experts > 1 else split_batch
        slots = CAPACITY * b * chosen / workers
        evaluated, mixed, outputs = chosen, chosen, slots * (d + sum(units))
        if split_experts > 1:
            # Slots are for the whole batch: their inputs, and gradients of outputs.
            gradients += slots * (d + units[-1])
    # The gradients of the gates' weights, too.
    mixtures = rows * (mixed * units[-1] + per_example * t * n / 2)
    sent = ring(split_batch) * gradients + ring(split_experts) * mixtures
    first, *rest = (evaluated * a * c for a, c in itertools.pairwise([d, *units]))
    gates = per_example * t * d * logits
    towers = t * sum(a * c for a, c in itertools.pairwise(tower))
    rest = sum(rest) + gates + evaluated * t * units[-1] + towers
    training = 2 * b * (2 * first + 3 * rest)  # No gradient of the inputs.
    return {
        "parameters": of_experts + others,
        "state, B": BYTES * (2 + options.slots) * held,
        "activations, B": 2 * BYTES * (outputs + rows * t * units[-1]),
        "sent, B": BYTES * sent,
        "operations, forward": 2 * b * (first + rest),
        "operations": training,
        "minutes": options.rows / b * training / workers / options.speed / 60,
    }


def parameters(widths):
    """Parameters of dense layers of these widths."""
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def ring(devices):
    """Count how often a device sends a tensor that is reduced over several."""
    return 2 * (devices - 1) / devices


def readable(number):
    """A number with three digits, and k, M, G, T or P for a power of 1,000."""
    number = float(f"{number:.3g}")
    power = min(5, int(math.log10(number) // 3)) if number >= 1 else 0
    return f"{number / 1000**power:.3g} {' kMGTP'[power]}".rstrip()


def main(arguments=None):
    """Print what a step needs."""
    for name, number in plan(parse(arguments)).items():
        print(f"{name:20s} {readable(number)}")


if __name__ == "__main__":
    sys.exit(main())
