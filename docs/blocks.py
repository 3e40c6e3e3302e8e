"""Fill the blocks of numbers in README.md and the pages from the committed results.

python docs/blocks.py
"""

import collections
import functools
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}
BLOCK = r"(?s)<!-- numbers: (\w+) -->\n(.*?)<!-- /numbers -->"

# What is compared, the workload of the benchmark, the form, and the form it is
# compared with.
SPEEDUPS = (
    ("128 tasks in one layer, against a list of layers", "W2", "stacked", "list"),
    ("against products written for it, without metrics", "W2", "stacked", "plain"),
    ("against these with a metric per task", "W2", "stacked", "plain+metrics"),
    ("against the original code, without metrics", "W2", "stacked", "release"),
    ("8 of 64 experts, condensed", "W4-static", "condensed", "bank"),
    ("one of these 4 tasks alone", "W4-static", "one task", "bank"),
    ("4 of 8 convolutional experts, condensed", "W3", "condensed", "bank"),
    ("at most 8 of 64 experts per example, dispatched", "W4", "dispatched", "bank"),
)
# The rows of the README: what, compared with what, workload, form, the other form, and
# what is timed.
README_ROWS = (
    (
        "one training step of 128 tasks with one gate per task",
        "a list of Keras layers with one gate layer per task",
        "W2",
        "stacked",
        "list",
        "fit",
    ),
    (
        "the same",
        "a model with stacked products, written for it, without metrics",
        "W2",
        "stacked",
        "plain",
        "fit",
    ),
    (
        "the same",
        "that model with a metric per task, as the package has",
        "W2",
        "stacked",
        "plain+metrics",
        "fit",
    ),
    (
        "the same",
        "the original code in Keras 2, without metrics",
        "W2",
        "stacked",
        "release",
        "fit",
    ),
    (
        "inference for 4 tasks that use 8 of 64 experts, condensed",
        "evaluating all experts",
        "W4-static",
        "condensed",
        "bank",
        "predict",
    ),
    (
        "inference for one of these tasks alone",
        "evaluating all experts",
        "W4-static",
        "one task",
        "bank",
        "predict",
    ),
    (
        "training 4 tasks, Top-2 of 64 experts per example, dispatched",
        "evaluating all experts",
        "W4",
        "dispatched",
        "bank",
        "fit",
    ),
)
# What is compared in one epoch, and the name of the ratio in the results.
LABELS = (
    ("labels by name, against one array", "by name / array"),
    ("one array, against the same layers in a plain Keras model", "array / plain"),
)


def benchmark(backend):
    """The results of the benchmark on a backend."""
    path = ROOT / "docs" / "results" / f"benchmark_cpu_{backend}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def times(found, kind, name, form, other):
    """The speed of a form, in multiples of another form's: `predict` or `fit`."""
    if other == "release":
        forms = found["release"].get(name, {}).get("forms")
        if not forms:
            return "-"
        number = forms["release"][f"{kind}_ms"] / forms[form][f"{kind}_ms"]
    else:
        number = found["workloads"][name]["forms"][form].get(f"{kind}_times_{other}")
    return "-" if number is None else two_digits(number)


def speedup():
    """The table of the README."""
    found = benchmark("tensorflow")
    rows = [
        [what, times(found, kind, name, form, other), compared]
        for what, compared, name, form, other, kind in README_ROWS
    ]
    return table(["", "speedup", "compared with"], rows, "l r l")


def performance():
    """The table of docs/performance.md, and which backend is the fastest."""
    every, found = list(map(benchmark, BACKENDS)), of_backends()
    rows = [
        [what]
        + [
            " / ".join(times(each, kind, *forms) for kind in ("predict", "fit"))
            for each in every
        ]
        for what, *forms in SPEEDUPS
    ]
    parts = [table(["", *BACKENDS.values()], rows, "l r r r"), fastest(found)]
    parts += [faster_lists(found), with_xla(found["tensorflow"])]
    return "\n\n".join(parts)


def labels():
    """Times of one epoch by the form of the labels, over those of other forms."""
    found = benchmark("jax")["labels"]["W2"]
    rows = [
        [what, *(f"{found[method][key]:.2f}" for method in ("fit", "evaluate"))]
        for what, key in LABELS
    ]
    return table(["", "`fit`", "`evaluate`"], rows, "l r r")


def of_backends():
    """The workloads of the benchmark, by backend."""
    return {backend: benchmark(backend)["workloads"] for backend in BACKENDS}


def fastest(found):
    """Count how often each backend is the fastest, with all experts evaluated."""
    times = {
        backend: {
            name: workload["forms"]["bank"]["fit_ms"]
            for name, workload in workloads.items()
        }
        for backend, workloads in found.items()
    }
    names = set.intersection(*(set(each) for each in times.values()))
    first = [min(times, key=lambda backend: times[backend][name]) for name in names]
    counts = {title: first.count(key) for key, title in BACKENDS.items()}
    best, *others = sorted(counts.items(), key=lambda each: -each[1])
    rest = "".join(f", {title} in {count}" for title, count in others if count)
    return (
        f"**In training,** {best[0]} was fastest in {best[1]} of {len(names)} "
        f"workloads{rest}."
    )


def faster_lists(found):
    """The number of workloads in which a list of layers is faster than a bank."""
    texts = []
    for backend, title in BACKENDS.items():
        banks = (workload["forms"]["bank"] for workload in found[backend].values())
        known = [each["fit_times_list"] for each in banks if "fit_times_list" in each]
        slower = sum(number < 1 for number in known)
        texts.append(f"{slower} of {len(known)} workloads on {title}")
    return (
        "**With all experts evaluated, a list of layers trains faster** than a bank\n"
        f"in {', '.join(texts[:-1])} and {texts[-1]}."
    )


def with_xla(workloads):
    """Effects of XLA on TensorFlow."""
    factors = []
    for workload in workloads.values():
        forms = workload["forms"]
        if "XLA" in forms:
            without = forms.get("stacked", forms["bank"])["fit_times_bank"]
            factors.append(without / forms["XLA"]["fit_times_bank"])
    low, high = (two_digits(each(factors)) for each in (min, max))
    return (
        "**`compile(jit_compile=True)` on TensorFlow** multiplies the time of `fit`\n"
        f"by {low} to {high}, in {len(factors)} workloads.\n"
        "On a CPU, it is not Keras' default."
    )


def two_digits(number):
    """A number with two digits, or all of an integer's."""
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


def table(heads, rows, align):
    """A Markdown table."""
    marks = ["---:" if each == "r" else "---" for each in align.split()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, marks, *rows])


# Gates that may use four experts per task: the arm of Figure 5, and its row.
MANY_TASKS = (
    ("`TopKGate` with noise, tuned", "noisy Top-k"),
    ("`TopKGate` with `dense_steps`, tuned", "Top-k, dense first"),
    ("`TopKGate`, tuned", "Top-k"),
    ("the same with Keras' initial values", "Top-k, Keras' start"),
    ("`DSelectKGate(gamma=3.0)` and `DecideGates`, not tuned", "DSelect-k, recipe"),
    ("the same with `gamma=1.0`", "DSelect-k, recipe, gamma 1"),
    ("`DSelectKGate` with an entropy penalty, tuned", "DSelect-k"),
)


def many_tasks():
    """The errors of Figure 5 of DSelect-k at 128 tasks."""
    from research.engine import Results
    from research.papers import EXPERIMENTS

    experiment = EXPERIMENTS["dselectk-fig5"].presets()["cpu"]
    results = Results(experiment, "cpu", ROOT / "docs" / "results")
    rows = [
        [what, results.text(f"{arm}, 128 tasks", "mse")] for what, arm in MANY_TASKS
    ]
    return table(["gate", "test error"], rows, "l r")


def gatebench():
    """The ratios of errors on the problems of GateBench."""
    from research.benches.gates.bench import Gates
    from research.benches.gates.page import block

    return block(Gates.committed())


def routers():
    """The errors of a few routers, over that of one expert."""
    from research.benches.routers.bench import Routers
    from research.benches.routers.page import block

    return block(Routers.committed())


def latency():
    """Milliseconds of one example, by each method to call a model, on each backend."""
    rows, about, forms = [], {}, {}
    for backend, title in BACKENDS.items():
        path = ROOT / "docs" / "results" / f"serving_cpu_{backend}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        about = found["about"]
        for method, forms in found["milliseconds"].items():
            cells = [f"{times['1']:.2g}" for times in forms.values()]
            rows.append([f"{title}, {method}", *cells])
    heads = ["milliseconds", *forms]
    lines = table(heads, rows, "l r r r r")
    return (
        f"{lines}\n\nOn {about['device']}; one task uses 2 of 64 experts of 512 units."
    )


def study(name):
    """The text of an experiment of our own."""
    from research.engine import Results, pages
    from research.studies.catalog import STUDIES

    experiment = STUDIES[name].presets()["cpu"]
    return pages.block(Results(experiment, "cpu", ROOT / "docs" / "results"))


def each_table():
    """The models of the study of tables on each table."""
    from research.engine import Results, pages
    from research.studies.tables import Tables

    experiment = Tables()
    results = Results(experiment, "cpu", ROOT / "docs" / "results")
    head, *rows = experiment.each_table(results)
    return pages.table(head, rows)


def trees():
    """Whether one network is as good as other models, on real tables."""
    from research.engine import Results, gap_of
    from research.studies.tables import (
        BEST,
        ESTIMATOR,
        Tables,
        UnseenTables,
        interval,
        wins,
    )

    means, unseen = (
        kind().means(Results(kind(), "cpu", ROOT / "docs" / "results"), ESTIMATOR, BEST)
        for kind in (Tables, UnseenTables)
    )
    won, mean = wins(means), gap_of([*means.values()]).mean
    established = {
        True: "the rivals are better on the mean",
        False: "it is better on the mean",
        None: "on the mean, the difference is not established",
    }[gap_of([*means.values()]).is_positive()]
    share = f"On {won} of {len(means)} real tables, a `TableModel`"
    if 2 * won <= len(means) or mean >= 0:
        return (
            f"**Trees are better on most tables.** {share} without settings\n"
            f"has a lower error than the best tuned rival; {established}."
        )
    return (
        f"**As good as trees.** {share} without settings has a lower error\n"
        "than the tuned boosted trees, extra trees or linear model that validation "
        f"chooses for each\ntarget. The mean log ratio is {mean:+.3f}; {established}. "
        f"On {len(unseen)}\n[further tables](docs/results/tables.md#fifteen-further-"
        f"tables), which no choice was made on, it\nwins {wins(unseen)}: "
        f"{interval([*unseen.values()])}. The model has boosted trees, too, beside its "
        "networks,\nin one file of Keras."
    )


def claims():
    """What became of all claims of the papers."""
    from research.engine import Results
    from research.engine.template import fill_template
    from research.papers import EXPERIMENTS

    every = []
    for name, kind in EXPERIMENTS.items():
        if (ROOT / f"docs/reproduction/{name}.md").exists():
            experiment = kind.presets()["cpu"]
            results = Results(experiment, "cpu", ROOT / "docs" / "results")
            filled = fill_template(results)
            every += [(claim, filled.trains) for claim in filled.counted]
    return sentence_of(every)


def sentence_of(every):
    """The counts of claims in words.

    Args:
        every: Pairs of a claim that was judged, and whether its experiment trains.
    """
    from research.engine.compare import NOT_RUN
    from research.engine.judging import NIL, UNTESTABLE

    count = collections.Counter(claim.holds for claim, _ in every)
    held = [(claim, trains) for claim, trains in every if claim.holds is True]
    other_data = sum(claim.stand_in for claim, _ in held)
    formulas = sum(claim.fact or not trains for claim, trains in held)
    without = count[UNTESTABLE] + count[NOT_RUN]
    return (
        f"Of {len(every)} claims, {without} were not testable or not run. Of the other "
        f"{len(every) - without}, {count[True]} hold\n({other_data} of them on "
        f"substitute data; {formulas} are formulas or counts), {count[False]} are "
        f"refuted, {count[NIL]} differ by less\nthan half of what the paper says, and "
        f"{count[None]} are undecided."
    )


# Devices that split the batch, and the experts; and whether work is dispatched.
MESHES = ("1 1", "no"), ("8 8", "no"), ("64 1", "yes"), ("1 40", "yes")


def example_plans():
    """The example of scripts/plan.py on several meshes."""
    import plan

    rows, names = [], []
    for devices, dispatch in MESHES:
        given = ["--devices", *devices.split(), *["--dispatch"] * (dispatch == "yes")]
        needs = plan.plan(plan.parse(given))
        del needs["operations, forward"]
        names = list(needs)
        cells = map(plan.readable, needs.values())
        rows.append([devices.replace(" ", " x "), dispatch, *cells])
    heads = ["devices (batch x experts)", "dispatch", *names]
    return table(heads, rows, "l l r r r r r r")


def decoder():
    """The time and the memory of the blocks of docs/decoder.md."""
    rows, found = [], {}
    for backend, title in BACKENDS.items():
        path = ROOT / "docs" / "results" / f"decoder_{backend}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        for form, kinds in found["forms"].items():
            cells = [
                f"{numbers[name]:,.0f}"
                for name in ("milliseconds", "megabytes")
                for numbers in kinds.values()
            ]
            rows.append([f"{title}, {form}", *cells])
    heads = ["", "predict, ms", "train, ms", "predict, MB", "train, MB"]
    lines = table(heads, rows, "l r r r r")
    return f"{lines}\n\nTime is that of the processor, on {found['machine']}."


# Verdicts of the pages of claims, as a guide says them.
IN_WORDS = {
    "hold on a stand-in": "hold on substitute data",
    "refuted on a stand-in": "refuted on substitute data",
    "not testable here": "not testable",
}


def verdicts():
    """Count the verdicts of each paper's claims, for the index of the pages."""
    from research.engine.claims import COUNTED

    text = (ROOT / "docs/reproduction/index.md").read_text(encoding="utf-8")
    lines = []
    for part in text.split("\n## ")[1:]:
        counts = collections.Counter()
        # Those of its pages, and not those of its abstract, which are among them.
        for cell in re.findall(r"(\d+ of \d+ claims hold[^|]*)\. \| `python", part):
            first, *others = cell.split(", ")
            hold, claims = re.findall(r"\d+", first)
            counts.update(claims=int(claims), hold=int(hold))
            for number, word in (other.split(" ", maxsplit=1) for other in others):
                counts[word] += int(number)
        words = ["claims", "hold", *COUNTED.values()]
        found = ", ".join(
            f"{counts[word]} {IN_WORDS.get(word, word)}"
            for word in words
            if counts[word]
        )
        paper = part.partition(" (")[0].removeprefix("Improving ")
        lines.append(f"- {paper.removesuffix(' in Mixture of Experts')}: {found}.")
    return "\n".join(lines)


PAGES = {
    "docs/papers.md": {"verdicts": verdicts},
    "docs/collapse.md": {"collapse": functools.partial(study, "collapse")},
    "docs/collapse.zh.md": {"collapse": functools.partial(study, "collapse")},
    "docs/decoder.md": {"decoder": decoder},
    "docs/scaling.md": {"plan": example_plans},
    "docs/serving.md": {"latency": latency},
    "docs/compared.md": {"ranking": functools.partial(study, "ranking")},
    "docs/tables.md": {"tables": functools.partial(study, "tables")},
    "docs/results/tables.md": {
        "each_table": each_table,
        "unseen": functools.partial(study, "unseen-tables"),
    },
    "docs/choosing.md": {
        "many_tasks": many_tasks,
        "gatebench": gatebench,
        "routers": routers,
    },
    "README.md": {
        "trees": trees,
        "demo": functools.partial(study, "demo"),
        "claims": claims,
        "speedup": speedup,
    },
    "docs/performance.md": {"performance": performance, "labels": labels},
}


def filled(text, blocks):
    """A page with its blocks of numbers as the results have them."""

    def fill(match):
        name = match[1]
        return f"<!-- numbers: {name} -->\n{blocks[name]()}\n<!-- /numbers -->"

    return re.sub(BLOCK, fill, text)


if __name__ == "__main__":
    for page, blocks in PAGES.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), blocks), "utf-8")
