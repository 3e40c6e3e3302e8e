"""The benchmark's results as a page."""

import json
import pathlib

FORM_COLUMNS = (
    ("predict, ms", "predict_ms", "{:.3g}"),
    ("times list", "predict_times_list", "{:.2f}"),
    ("times plain", "predict_times_plain", "{:.2f}"),
    ("times bank", "predict_times_bank", "{:.2f}"),
    ("ideal", "forward_ideal", "{:.1f}"),
    ("of floor", "predict_over_floor", "{:.1f}"),
    ("call, ms", "call_ms", "{:.3g}"),
    ("times plain", "call_times_plain", "{:.2f}"),
    ("fit, ms", "fit_ms", "{:.3g}"),
    ("times list", "fit_times_list", "{:.2f}"),
    ("times plain", "fit_times_plain", "{:.2f}"),
    ("times bank", "fit_times_bank", "{:.2f}"),
    ("ideal", "training_ideal", "{:.1f}"),
    ("of floor", "fit_over_floor", "{:.1f}"),
    ("first calls, s", "first_seconds", "{:.1f}"),
    ("peak, MB", "peak_mb", "{:.0f}"),
)
REPLICATE_COLUMNS = (
    ("plain run, s", "plain_seconds", "{:.2f}"),
    ("fitted again, s", "again_seconds", "{:.2f}"),
    ("a copy, s", "copy_seconds", "{:.3f}"),
    ("copy / plain", "copy_of_plain", "{:.3f}"),
    ("copy / again", "copy_of_again", "{:.3f}"),
)
HEAD = """<!-- Written by scripts/benchmark.py from the JSON files beside it. -->

# Benchmark

What to take from it stands in [speed and memory](../performance.md).

*list*: a plain list of Keras layers with a gate layer for each task, summed one by
one. *plain*: a Keras model written for this workload alone, with stacked kernels, one
loss and one output (`scripts/benchmarks/plain.py`). *bank*: `build_multitask_model`,
every expert evaluated. *stacked*: the same with one output in place of one per task.
*Call* is `model(x)`, not compiled. *condensed*: static gates
have decided, and what no task uses is gone. *one task*: `per_task`. *dispatched*: each
example sees only the experts that it chose. *Times* tells how many times as fast a form
is as the other: the median of ratios of turns that followed one another. *Ideal* is how
many times fewer operations than the bank it has, towers included. *Of floor* is the
time as a multiple of what the counted products would take at the speed of one large
matrix product in the same run. First calls are building, the first batch predicted and
the first step fitted. Peak is by how much a fresh process grew at its highest in its
first steps, compilation included.

In W5, 1024 tokens choose two experts each. *batched product*: one product of all
tokens with all experts, as in the Mixtral block of KerasHub. *capacity*:
`dispatch=1.25`. *one-hot*: the same with products by a one-hot table of tokens by
slots, as in GShard. Both drop the choices beyond the capacity. *FFN*: a dense network
with the operations of two experts, which is the limit.
"""


def write_page(folder):
    """Write `benchmark.md` from the results in a folder.

    Args:
        folder: A path with `benchmark_*.json`.

    Returns:
        The path of the page.
    """
    folder = pathlib.Path(folder)
    parts = [HEAD]
    for path in sorted(folder.glob("benchmark_*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        parts.append(_section(result))
    page = folder / "benchmark.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _section(result):
    about = result["about"]
    lines = [f"## {about['backend']} on {about['device']}"]
    for name, workload in sorted(result["workloads"].items()):
        own = workload["about"]
        versions = f"{own['backend']} {own['backend_version']}, Keras {own['keras']}"
        lines += [
            "",
            f"### {name} ({about['backend']}): {workload['title']}",
            "",
            f"`{own['command']}`, {own['date']}, {versions}, Python {own['python']}.",
            f"A large matrix product runs at {workload['matrix_gflops']:.0f} GFLOP/s.",
            "",
            *_table("form", FORM_COLUMNS, _with_ideal(workload["forms"])),
        ]
    if result["replicate"]:
        lines += [
            "",
            f"### Many runs in one program ({about['backend']})",
            "",
            *_table("shape", REPLICATE_COLUMNS, result["replicate"]),
        ]
    return "\n".join(lines) + "\n"


def _with_ideal(forms):
    """The numbers of the forms, and how many operations fewer than the bank's."""
    counts = {"forward_ideal": "forward_flops", "training_ideal": "training_flops"}
    return {
        form: numbers
        | {name: forms["bank"][key] / numbers[key] for name, key in counts.items()}
        for form, numbers in forms.items()
    }


def _table(corner, columns, rows):
    """A table with a row for each item of a dict of dicts."""
    heads = [corner, *(head for head, _, _ in columns)]
    lines = [_row(heads), _row(["---"] + ["---:"] * len(columns))]
    for name, values in rows.items():
        cells = (
            layout.format(values[key]) if values.get(key) is not None else "-"
            for _, key, layout in columns
        )
        lines.append(_row([name, *cells]))
    return lines


def _row(cells):
    return f"| {' | '.join(cells)} |"
