"""The benchmark's results as a page."""

import json
import math
import pathlib

from dselectk_keras.plots.style import (
    COLORS,
    FONT,
    GREY,
    SMALL_FONT,
    TEXT,
    tidy_axes,
)
from research.engine import pages
from research.engine.drawing import panels

INFERENCE_COLUMNS = (
    ("predict, ms", "predict_ms", "{:.3g}"),
    ("times list", "predict_times_list", "{:.2f}"),
    ("times plain", "predict_times_plain", "{:.2f}"),
    ("times bank", "predict_times_bank", "{:.2f}"),
    ("ideal", "forward_ideal", "{:.1f}"),
    ("of floor", "predict_over_floor", "{:.1f}"),
    ("call, ms", "call_ms", "{:.3g}"),
    ("times plain", "call_times_plain", "{:.2f}"),
)
TRAINING_COLUMNS = (
    ("fit, ms", "fit_ms", "{:.3g}"),
    ("times list", "fit_times_list", "{:.2f}"),
    ("times plain", "fit_times_plain", "{:.2f}"),
    ("times bank", "fit_times_bank", "{:.2f}"),
    ("ideal", "training_ideal", "{:.1f}"),
    ("of floor", "fit_over_floor", "{:.1f}"),
    ("first calls, s", "first_seconds", "{:.1f}"),
)
LABEL_COLUMNS = ("plain", "array", "by name", "by name / array", "array / plain")
REPLICATE_COLUMNS = (
    ("plain run, s", "plain_seconds", "{:.2f}"),
    ("fitted again, s", "again_seconds", "{:.2f}"),
    ("a copy, s", "copy_seconds", "{:.3f}"),
    ("copy / plain", "copy_of_plain", "{:.3f}"),
    ("copy / again", "copy_of_again", "{:.3f}"),
)
TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
# Time of the package divided by the time of the plain model.
AGAINST_PLAIN = (
    ("fit", "fit_times_plain"),
    ("fit, both with metrics", "fit_times_plain+metrics"),
    ("predict", "predict_times_plain"),
    ("call", "call_times_plain"),
)
SPARSE_FORMS = "condensed", "one task", "dispatched"
GOAL = 1.25
TICKS = 0.5, 1.0, GOAL, 2.0
# The workloads in the picture.
TITLES = {
    "W1-bare-4096": "2 tasks, no towers, batch 4,096",
    "W1-per-example-128": "2 tasks, per example, batch 128",
    "W1-per-example-4096": "the same, batch 4,096",
    "W1-static-128": "2 tasks, static, batch 128",
    "W1-static-4096": "the same, batch 4,096",
    "W2": "128 tasks",
    "W4": "64 experts, Top-2 per example",
    "W4-dselect-k": "64 experts, DSelect-k per example",
    "W4-static": "64 experts, DSelect-k, static",
}


def write_page(folder):
    """Write `benchmark.md` from the results in a folder; return its path."""
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("benchmark_*.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    ratios = plain_ratios(results)
    texts = {
        "against_plain": _against_plain(ratios) if ratios else "",
        "against_release": _against_release(results),
        "ideal": _against_ideal(results),
        "results": "\n\n".join(map(_section, results)),
    }
    # A section without numbers is left out.
    first, *sections = TEMPLATE.read_text(encoding="utf-8").split("\n\n## ")
    shown = [first]
    for section in sections:
        empty = [name for name, text in texts.items() if not text]
        if not any(f"{{{name}}}" in section for name in empty):
            shown.append("## " + section.format(goal=GOAL, **texts))
    if ratios:
        draw_ratios(ratios).savefig(folder / "benchmark.png", dpi=200)
    return pages.write(folder / "benchmark", *shown)


def plain_ratios(results):
    """Times of the package, divided by the times of the plain model.

    They are in a dict of dicts: workload, then (measurement, backend).
    """
    ratios = {}
    for result in results:
        for name, workload in result["workloads"].items():
            forms = workload["forms"]
            # One output per task is the default; the plain model has a single one.
            ours = forms.get("stacked", forms.get("bank", {}))
            for what, key in AGAINST_PLAIN:
                if ours.get(key) is not None:
                    pair = what, result["about"]["backend"]
                    ratios.setdefault(name, {})[pair] = 1 / ours[key]
    return dict(sorted(ratios.items()))


def _backends(ratios):
    return sorted({backend for found in ratios.values() for _, backend in found})


def draw_ratios(ratios):
    """Draw a panel per measurement, a row per workload, and a mark per backend."""
    figure, axes = panels(1, 3, 0.9 + 0.24 * len(ratios), sharex=True, sharey=True)
    backends = _backends(ratios)
    for ax, what in zip(axes[0], ("fit", "predict", "call"), strict=True):
        ax.axvline(1.0, color=TEXT, linewidth=0.8)
        ax.axvline(GOAL, color=GREY, linewidth=0.8, linestyle="--")
        for backend, color, marker in zip(backends, COLORS, "osD", strict=False):
            values = [each.get((what, backend), math.nan) for each in ratios.values()]
            ax.plot(values, range(len(values)), marker, color=color, label=backend)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_ticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.xaxis.set_ticks([], minor=True)
        ax.set_title(what, fontsize=FONT, loc="left")
        ax.margins(x=0.1)
        tidy_axes(ax, grid="y")
    first = axes[0, 0]
    first.set_yticks(range(len(ratios)), [TITLES.get(name, name) for name in ratios])
    first.invert_yaxis()  # The first row on top.
    figure.supxlabel("time of the package / time of the plain model", fontsize=FONT)
    place = {"loc": "outside upper right", "ncols": len(backends), "frameon": False}
    figure.legend(*first.get_legend_handles_labels(), fontsize=SMALL_FONT, **place)
    return figure


def _against_plain(ratios):
    measured = [what for what, _ in AGAINST_PLAIN]
    rows = [
        [name, backend, *(_cell("{:.2f}", found.get((w, backend))) for w in measured)]
        for name, found in ratios.items()
        for backend in _backends(ratios)
        if any((what, backend) in found for what in measured)
    ]
    heads = ["workload", "backend", *measured]
    return _lines(heads, rows, left=2)


def _against_release(results):
    rows, commands = [], set()
    for result in results:
        for name, found in result.get("release", {}).items():
            forms, about = found["forms"], found["about"]
            commands.add(f"`{about['command']}`, {about['date']}.")
            best = "stacked" if "stacked" in forms else "bank"
            theirs = forms["release"]
            for title, form in (("as it is", best), ("with XLA", "XLA")):
                if ours := forms.get(form):
                    keys = [f"{what}_ms" for what in ("fit", "predict", "call")]
                    times = [k in ours and theirs[k] / ours[k] for k in keys]
                    rows.append(
                        [name, title]
                        + [_cell("{:.1f}", time or None) for time in times]
                        + [f"{each['fit_ms']:.3g}" for each in (theirs, ours)]
                    )
    if not rows:
        return ""
    heads = ["workload", "ours", "fit", "predict", "call", "its fit, ms", "ours, ms"]
    return f"{_lines(heads, sorted(rows), 2)}\n\n{' '.join(sorted(commands))}"


def _against_ideal(results):
    keys = "predict_times_bank", "forward_ideal", "fit_times_bank", "training_ideal"
    rows = [
        [name, form, result["about"]["backend"], *(f"{found[k]:.1f}" for k in keys)]
        for result in results
        for name, workload in result["workloads"].items()
        for form, found in _with_ideal(workload["forms"]).items()
        if form in SPARSE_FORMS and found.get("fit_times_bank") is not None
    ]
    heads = ["workload", "form", "backend", "predict", "ideal", "fit", "ideal"]
    return _lines(heads, sorted(rows), left=3)


def _lines(heads, rows, left):
    """A table; the first columns are aligned to the left."""
    return pages.table([*heads[:left], *(f"{head}:" for head in heads[left:])], rows)


def _section(result):
    about = result["about"]
    parts = [f"## {about['backend']} on {about['device']}"]
    for name, workload in sorted(result["workloads"].items()):
        own, forms = workload["about"], _with_ideal(workload["forms"])
        versions = f"{own['backend']} {own['backend_version']}, Keras {own['keras']}"
        parts += [
            f"### {name} ({about['backend']}): {workload['title']}",
            (
                f"`{own['command']}`, {own['date']}, {versions}, Python "
                f"{own['python']}.\nA large matrix product runs at "
                f"{workload['matrix_gflops']:.0f} GFLOP/s."
            ),
            _table("form", INFERENCE_COLUMNS, forms),
            _table("form", TRAINING_COLUMNS, forms),
        ]
    for name, found in result.get("labels", {}).items():
        methods = {method: found[method] for method in ("fit", "evaluate")}
        parts += [
            f"### Labels of {name} ({about['backend']})",
            (
                f"`{found['about']['command']}`, {found['about']['date']}. "
                f"Milliseconds per step of a call of one epoch, {found['rows']:,} rows."
            ),
            _table("call", [(each, each, "{:.3g}") for each in LABEL_COLUMNS], methods),
        ]
    if result["replicate"]:
        parts += [
            f"### Many runs in one program ({about['backend']})",
            _table("shape", REPLICATE_COLUMNS, result["replicate"]),
        ]
    return "\n\n".join(parts)


def _with_ideal(forms):
    """The numbers of the forms, and how many operations fewer than the bank's."""
    counts = {"forward_ideal": "forward_flops", "training_ideal": "training_flops"}
    return {
        form: numbers
        | {name: forms["bank"][key] / numbers[key] for name, key in counts.items()}
        for form, numbers in forms.items()
    }


def _table(corner, columns, rows):
    """A table with a row for each item of a dict of dicts, without empty columns."""
    filled = {
        key for values in rows.values() for key in values if values[key] is not None
    }
    columns = [column for column in columns if column[1] in filled]
    cells = [
        [name, *(_cell(layout, values.get(key)) for _, key, layout in columns)]
        for name, values in rows.items()
    ]
    return _lines([corner, *(head for head, _, _ in columns)], cells, left=1)


def _cell(layout, value):
    return "-" if value is None else layout.format(value)
