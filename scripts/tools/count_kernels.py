r"""Count the kernels of a training step on JAX, compiled for an H100 or this processor.

    python scripts/tools/count_kernels.py W4 W2 --forms plain bank dispatched
    python scripts/tools/count_kernels.py D1 D12 --forms bank dispatched  # a decoder's

needs no GPU, but JAX' compiler for it, in a folder on PYTHONPATH:

    pip install --no-deps --target build/cuda jax-cuda12-pjrt nvidia-cuda-nvcc-cu12 \
        nvidia-cuda-cupti-cu12 nvidia-cuda-runtime-cu12 nvidia-nvjitlink-cu12 \
        nvidia-cuda-nvrtc-cu12

of JAX' own version. With `--device cpu` it compiles for this processor.
"""

import functools
import os
import pathlib
import re
import sys
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from common.command_line import make_parser

# Instructions without a kernel.
FREE = "parameter|constant|tuple|get-tuple-element|bitcast|partition-id|replica-id"
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
# A type may be a tuple of types, with layouts in braces and comments.
INSTRUCTION = re.compile(r"^ +(?:ROOT )?%?[\w.\-]+ = .*?[\])}] ([a-z][\w\-]*)\(")


def main(arguments=None):
    """Print a row for each form of each workload."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("workloads", nargs="+", metavar="NAME", help="such as W4")
    add("--forms", nargs="+", default=["plain", "bank", "dispatched"], help="to count")
    add("--device", choices=("h100", "cpu"), default="h100", help="to compile for")
    options = parser.parse_args(arguments)
    os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    if options.device == "h100":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_autotune_level=0"
    from research.speed import WORKLOADS

    print("| step | kernels | conditions | temporaries, MB | seconds of a processor |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in options.workloads:
        for form in options.forms:
            is_decoder = re.fullmatch(r"D\d+", name)
            workload = Decoder(int(name[1:])) if is_decoder else WORKLOADS[name]
            found = compiled(workload, form, options.device)
            print(f"| {name} {form} | {' | '.join(map(str, found))} |", flush=True)


def compiled(workload, form, device):
    """Kernels, conditions, MB of temporaries, and seconds to trace and to compile."""
    import jax

    from research.speed.measure import labels_of

    model, (x, y) = workload.model(form), workload.data()
    data = x, labels_of(model, y)
    # A small step creates the variables of the metrics and of the optimizer.
    model.train_on_batch(*jax.tree.map(lambda each: each[:2], data))
    parts = model.trainable_variables, model.non_trainable_variables
    parts = *parts, model.optimizer.variables, model.metrics_variables
    state = tuple([variable.value for variable in part] for part in parts)
    place = h100() if device == "h100" else None
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), (state, data)
    )
    began = time.process_time()
    program = jax.jit(model.train_step, donate_argnums=0).lower(*shapes).compile()
    seconds = time.process_time() - began
    kernels, conditions = count(program.as_text())
    temporaries = program.memory_analysis().temp_size_in_bytes / 1e6
    return kernels, conditions, round(temporaries), f"{seconds:.1f}"


class Decoder:
    """Layers of 64 SwiGLU experts, 2 of them for each of 4,096 tokens."""

    def __init__(self, layers):
        self.layers = layers

    def model(self, form):
        """A compiled model."""
        import keras

        import dselectk_keras as dk

        x = inputs = keras.Input((1024, 256))
        for _ in range(self.layers):
            units = {"units": [512, 256], "activation": ["silu", None], "gated": True}
            moe = dk.MoE(
                dk.DenseExperts(64, **units),
                dk.TopKGate(2),
                per_example=True,
                dispatch=form == "dispatched",
            )
            x = keras.layers.add([x, moe(keras.layers.LayerNormalization()(x))])
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    def data(self):
        """Tokens of four sequences."""
        return [np.zeros((4, 1024, 256), "float32")] * 2


@functools.cache  # JAX knows a plugin once.
def h100():
    """An H100 that only the compiler knows."""
    import jax
    from jax._src import xla_bridge
    from jax.experimental import topologies

    xla_bridge.discover_pjrt_plugins()
    config = pathlib.Path(__file__).parents[1] / "research/speed/h100.txtpb"
    found = topologies.get_topology_desc(
        platform="cuda", target_config=config.read_text(), topology="1x1x1"
    )
    mesh = topologies.make_mesh(topo=found, mesh_shape=(1,), axis_names=("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def count(text):
    """Kernels and conditions in the text of a program; those of all branches count."""
    bodies, inner = {}, set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", text))
    # A `call` applies a part of the program, not the body of a kernel.
    inner -= set(re.findall(r" call\(.*to_apply=%?([\w.\-]+)", text))
    body = []
    for line in text.splitlines():
        if head := HEAD.match(line):
            body = bodies.setdefault(head[1], [])
        elif found := INSTRUCTION.match(line):
            body.append(found[1])
    found = [
        each for name, body in bodies.items() if name not in inner for each in body
    ]
    conditions = found.count("conditional")
    others = [
        each
        for each in found
        if not re.fullmatch(f"{FREE}|conditional|while|call", each)
    ]
    return len(others), conditions


if __name__ == "__main__":
    main()
