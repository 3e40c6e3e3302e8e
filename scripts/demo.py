"""Compare four models on 32 synthetic tasks in a table, and plot their gates.

    python scripts/demo.py

takes a few minutes on two cores. Choose the output folder with --out.
"""

import pathlib
import sys

from command_line import add_backend, choose_backend, make_parser, note_selection

RUNS: tuple[dict, ...] = (
    {"architecture": "shared_bottom"},
    {"architecture": "mmoe", "gate": "softmax"},
    {"architecture": "mmoe", "gate": "top_k"},
    {"architecture": "mmoe", "gate": "dselect_k"},
)
# A fifth of the paper's examples, to take minutes.
SIZES = {"num_train": 20_000, "num_validation": 5_000, "num_test": 5_000}
COLUMNS = (
    ("test MSE", "test_task_loss", "{:.4f}"),
    ("experts/task", "experts_per_task", "{:.2f}"),
    ("binary", "binary_selectors", "{:.0%}"),
    ("experts used", "experts_used", "{}"),
    ("Jaccard related", "jaccard_related", "{:.2f}"),
    ("unrelated", "jaccard_unrelated", "{:.2f}"),
    ("seconds", "seconds", "{:.1f}"),
)


def main(arguments=None):
    """Train the four models, and print the results and where they are."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/demo", help="output folder")
    parser.add_argument(
        "--num-tasks", type=int, default=32, help="number of tasks: 16, 32, 64 or 128"
    )
    parser.add_argument("--epochs", type=int, default=50, help="number of epochs")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the data and the initial weights"
    )
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    from experiments import TrainingRun

    rows = []
    for number, settings in enumerate(RUNS, start=1):
        run = TrainingRun(
            **settings,
            data_options={"num_tasks": options.num_tasks, **SIZES},
            epochs=options.epochs,
            seed=options.seed,
        )
        folder = pathlib.Path(options.out) / run.label.replace(" ", "_")
        print(f"[{number}/{len(RUNS)}] {run.label} on {options.num_tasks} tasks")
        note_selection(run)
        results = run.run(folder, overwrite=True)
        rows.append((run.label, {**results, **results.get("gates", {})}, folder))

    print()
    print("  ".join([f"{'model':16s}", *(f"{title:>15s}" for title, *_ in COLUMNS)]))
    for label, results, _ in rows:
        cells = (
            form.format(results[key]) if key in results else "-"
            for _, key, form in COLUMNS
        )
        print("  ".join([f"{label:16s}", *(f"{cell:>15s}" for cell in cells)]))
    print()
    print("Figures of the gate weights during training, and of each task's experts:")
    for _, _, folder in rows:
        for picture in sorted(folder.glob("*.png")):
            print(f"  {picture}")
    print(f"Models, gate histories and metrics are in the folders in {options.out}.")


if __name__ == "__main__":
    sys.exit(main())
