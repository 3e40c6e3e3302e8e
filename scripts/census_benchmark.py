"""Compare the AUC of every architecture on census data with the committed one.

    python scripts/census_benchmark.py --data-dir data

trains each model with three seeds on the 99,762 people in `census-income.test.gz`, and
ends with an error if a mean AUC differs from the committed one by more than 0.003.
Nothing is tuned: it is a test of the package, not a ranking of models. The folder is as
for `census_income` in docs/datasets.md. The committed results are of

    python scripts/census_benchmark.py --data-dir DATA --write

and `python docs/blocks.py` makes a table of them. It takes some minutes on one core.
"""

import json
import pathlib
import statistics
import sys

from command_line import (
    add_backend,
    choose_backend,
    make_parser,
    registered,
    without_data_dir,
)

RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "results"
TASKS = ("income", "never_married")
EXPERTS, UNITS, TOWER = 8, 16, 8
EPOCHS, BATCH_SIZE, RATE = 4, 512, 0.002
SEEDS, TOLERANCE = (0, 1, 2), 0.003
# Static gates, beside each architecture with its default gate, which sees the examples.
DECIDED, CHOSEN = "mmoe, DSelectKGate", "mmoe, ChooseExperts"
ARMS = (*registered("ARCHITECTURES", "models"), DECIDED, CHOSEN)


def build(arm, num_inputs):
    """A compiled model of one arm."""
    import keras

    from dselectk_keras import ChosenGate, DSelectKGate, Task, build_multitask_model
    from dselectk_keras.experts import DenseExperts

    gates = {DECIDED: DSelectKGate(2, gamma=3.0), CHOSEN: ChosenGate(2)}
    model = build_multitask_model(
        num_inputs,
        [Task(name, "binary", tower=(TOWER,)) for name in TASKS],
        arm.partition(",")[0],
        experts=DenseExperts(EXPERTS, [UNITS]),
        gate=gates.get(arm, "softmax"),
        per_example=arm not in gates,
    )
    model.compile(keras.optimizers.Adam(RATE))
    return model


def measure(arm, data):
    """The test AUC of each task, with each seed."""
    from dselectk_keras import ChooseExperts, DecideGates, replicate
    from experiments.scores import area_under_curve

    callbacks = {DECIDED: [DecideGates], CHOSEN: [ChooseExperts]}.get(arm, [])
    runs = replicate(
        lambda _: build(arm, data.train.x.shape[1]),
        tuple(data.train),
        seeds=SEEDS,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        callbacks=lambda: [make() for make in callbacks],
        verbose=0,
    )
    found = {name: [] for name in TASKS}
    for copy in runs.copies:
        scores = copy.model.predict(data.test.x, batch_size=4096, verbose=0)
        for name, labels in zip(TASKS, data.test.y.T, strict=True):
            found[name].append(float(area_under_curve(labels, scores[name][:, 0])))
    return found


def differences(found, committed):
    """Lines about each mean that is too far from the committed one."""
    return [
        f"{arm}, {name}: AUC {mean:.4f}, committed {wanted:.4f}"
        for arm, by_task in found.items()
        for name, values in by_task.items()
        for mean in [statistics.mean(values)]
        for wanted in [statistics.mean(committed[arm][name])]
        # A NaN is no agreement.
        if not abs(mean - wanted) <= TOLERANCE
    ]


def table(arms):
    """The means and their standard deviations over the seeds, in Markdown."""
    rows = ["| model | AUC of income | AUC of never married |", "| --- | ---: | ---: |"]
    for arm, found in arms.items():
        cells = [
            f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
            for values in found.values()
        ]
        rows.append(f"| {' | '.join([arm, *cells])} |")
    return "\n".join(rows)


def main(arguments=None):
    """Train all models; write the results, or compare them with the committed ones."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add("--data-dir", required=True, help="folder with census-income.test.gz")
    add("--write", action="store_true", help="replace the committed results")
    add("--results", default=str(RESULTS), help="folder of census_benchmark.json")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    from experiments.environment import environment
    from experiments.files import write_json
    from papers.data import census_income

    data = census_income(test_file_only=True, data_dir=options.data_dir)
    found = {}
    for arm in ARMS:
        found[arm] = measure(arm, data)
        print(table({arm: found[arm]}).splitlines()[-1], flush=True)
    path = pathlib.Path(options.results) / "census_benchmark.json"
    if options.write:
        given = without_data_dir(sys.argv[1:] if arguments is None else arguments)
        command = " ".join(["python scripts/census_benchmark.py", *given])
        results = {"command": command, "about": environment(), "arms": found}
        write_json(path, results)
        return
    committed = json.loads(path.read_text(encoding="utf-8"))["arms"]
    if lines := differences(found, committed):
        sys.exit("\n".join(["Some means differ from those committed:", *lines]))


if __name__ == "__main__":
    main()
