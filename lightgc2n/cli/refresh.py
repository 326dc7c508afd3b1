"""`lightgc2n refresh`: bring the counts of a run up to a newer log, without training."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Force, Json
from lightgc2n.cli.printing import print_json


def refresh(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run (made by train).")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="A prepared dataset with newer events.")],
    out: Annotated[Path, typer.Option("--out", metavar="NEWRUN", help="The folder for the refreshed run.")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Count the events of a newer log for a trained run, without training: followers, neighbours and trends.

    New accounts and items can be queried at once. Learned weights do not change, and RUN stays as it is.
    """
    from dataclasses import asdict

    from lightgc2n.training.refresh_run import refresh_run

    counted = refresh_run(run, data, out, force)
    if json:
        print_json({"out": str(out), **asdict(counted)})
        return
    until = f", the newest of {counted.newest} UTC" if counted.newest else ""
    typer.echo(
        f"counted {counted.events:,} events{until}; new: {counted.new_items:,} items, {counted.new_accounts:,} accounts"
    )
    typer.echo(f"written to {out}; export it with: lightgc2n export {out} --out BUNDLE")
