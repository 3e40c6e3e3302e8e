"""Compare four models on 32 synthetic tasks: one table, and pictures of the gates.

    python scripts/demo.py

takes a few minutes on two cores. The folder can be chosen with --out.
"""

import pathlib
import sys

from train import choose_backend, make_parser

RUNS: tuple[dict, ...] = (
    {"architecture": "shared_bottom"},
    {"architecture": "mmoe", "gate": "softmax"},
    {"architecture": "mmoe", "gate": "top_k"},
    {"architecture": "mmoe", "gate": "dselect_k"},
)
COLUMNS = (
    ("test MSE", "test_task_loss", "{:.4f}"),
    ("experts/task", "experts_per_task", "{:.2f}"),
    ("Jaccard related", "jaccard_related", "{:.2f}"),
    ("unrelated", "jaccard_unrelated", "{:.2f}"),
    ("seconds", "seconds", "{:.1f}"),
)


def main(arguments=None):
    """Train the four models, and print what came out and where it is."""
    choose_backend(arguments)
    from dselectk_keras.experiments import TrainingRun

    parser = make_parser(__doc__)
    parser.add_argument("--out", default="runs/demo", help="folder to write into")
    parser.add_argument("--num-tasks", type=int, default=32, help="16, 32, 64 or 128")
    parser.add_argument("--epochs", type=int, default=50, help="passes over the data")
    parser.add_argument("--seed", type=int, default=0, help="of data and weights")
    options = parser.parse_args(arguments)

    rows = []
    for number, settings in enumerate(RUNS, start=1):
        run = TrainingRun(
            **settings,
            data_options={"num_tasks": options.num_tasks},
            epochs=options.epochs,
            seed=options.seed,
        )
        folder = pathlib.Path(options.out) / run.label.replace(" ", "_")
        print(f"[{number}/{len(RUNS)}] {run.label} on {options.num_tasks} tasks")
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
    print("Gate weights over training, and which task uses which expert:")
    for _, _, folder in rows:
        for picture in sorted(folder.glob("*.png")):
            print(f"  {picture}")
    print(f"Models, gate histories and metrics are in the folders in {options.out}.")


if __name__ == "__main__":
    sys.exit(main())
