"""Compare models of 64 tasks by their error and by the cost of serving one task.

    python scripts/demo.py

trains four models once, in about a minute on two cores. `--all` trains all fifteen.
Their settings are those of the committed results, which are of

    python scripts/reproduce.py demo --backend jax
"""

import pathlib
import sys

from common.command_line import add_backend, choose_backend, make_parser

RESULTS = pathlib.Path(__file__).parents[1] / "docs" / "results"


def main(arguments=None):
    """Train the models, print a table, and draw pictures."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/demo", help="output folder")
    parser.add_argument("--all", action="store_true", help="train all 15, in minutes")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    from research.engine import Job, Results, Run, pages
    from research.studies.demo import FEW, Demo

    experiment = Demo()
    committed = Results(experiment, "cpu", RESULTS)
    results = Results(experiment, "demo")
    names = list(experiment.arms) if options.all else FEW
    print(f"Training {len(names)} models of {experiment.num_tasks} tasks.")
    print("test error  multiplications per served task")
    for name in names:
        job = Job(0, committed.ran(name)[0].settings)
        (found,) = experiment.run(name, [job])
        results.add(Run(name, *job, found, 0.0), {})
        error, cost = found["test_error"], found["multiplications"]
        kind = experiment.arms[name].more["kind"]
        print(f"{error:10.3f}  {cost:15,}  {kind}: {name}", flush=True)
    pages.write_pictures(results, options.out, ("errors.png", "experts.png"))
    print(f"\n{pages.block(results)}\n")
    print(f"Pictures in {options.out}: demo-errors.png (error and cost), and")
    print("demo-experts.png (the experts of each task).")


if __name__ == "__main__":
    sys.exit(main())
