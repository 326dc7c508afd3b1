"""`lightgc2n evaluate`: evaluate a run on its test targets."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Json, RunData
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.devices import DEVICE_HELP


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run (made by train).")],
    data: RunData = None,
    fold_in: Annotated[
        bool,
        typer.Option(
            "--fold-in", help="Also fold in the accounts from their test histories, with and without their ids."
        ),
    ] = False,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    json: Json = False,
) -> None:
    """Rank the test targets of a run with its best weights."""
    from lightgc2n.devices import choose_device
    from lightgc2n.experiments.compare import measured
    from lightgc2n.experiments.comparison_tables import comparison_notes, comparison_tables, run_tables
    from lightgc2n.training.run import evaluate_run

    tested = evaluate_run(run, data, choose_device(device), fold_in)
    result = measured(tested.dataset, tested.split, tested.ranks, tested.facts).result
    if json:
        print_json(result)
        return
    tables = run_tables if len(result["models"]) == 1 else comparison_tables
    print_results(tables(result), comparison_notes(result))
