"""`lightgc2n simulate`: merge users into shared accounts with known members."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import DatasetFolder, Force, Json, Seed
from lightgc2n.cli.printing import print_json
from lightgc2n.config import read_settings
from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.files.atomic_writes import refuse_own_input
from lightgc2n.synthetic.merged_accounts import SimulateOptions
from lightgc2n.synthetic.merged_accounts import simulate as simulate_accounts

HELP = {field.name: field.metadata["help"] for field in dataclasses.fields(SimulateOptions)}
DEFAULT = SimulateOptions()


def simulate(
    folder: DatasetFolder,
    out: Annotated[Path, typer.Option("--out", metavar="OUT", help="The folder for the new dataset.")],
    members: Annotated[str, typer.Option("--members", help=HELP["members"])] = DEFAULT.members,
    seed: Seed = DEFAULT.seed,
    min_events: Annotated[int, typer.Option("--min-events", help=HELP["min_events"])] = DEFAULT.min_events,
    accounts: Annotated[int, typer.Option("--accounts", help=HELP["accounts"])] = DEFAULT.accounts,
    fragments: Annotated[str, typer.Option("--fragments", help=HELP["fragments"])] = DEFAULT.fragments,
    min_events_per_domain: Annotated[
        int, typer.Option("--min-events-per-domain", help=HELP["min_events_per_domain"])
    ] = DEFAULT.min_events_per_domain,
    overlap: Annotated[float, typer.Option("--overlap", help=HELP["overlap"])] = DEFAULT.overlap,
    balanced: Annotated[bool, typer.Option("--balanced", help=HELP["balanced"])] = DEFAULT.balanced,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Merge single users by time into households whose members are known.

    --fragments year --min-events-per-domain 5 reproduces the procedure that made HAMAZON.
    """
    chosen = {
        "members": members,
        "seed": seed,
        "min_events": min_events,
        "accounts": accounts,
        "fragments": fragments,
        "min_events_per_domain": min_events_per_domain,
        "overlap": overlap,
        "balanced": balanced,
    }
    options = read_settings(SimulateOptions, chosen, "simulate")
    refuse_own_input(out, folder)
    verify_dataset(folder)
    manifest = simulate_accounts(load_dataset(folder), options, out, force)
    if as_json:
        print_json(manifest)
        return
    counts = manifest["counts"]
    typer.echo(
        f"{out}: {counts['accounts']:,} accounts of {counts['users_used']:,} users, "
        f"{counts['sequences']:,} sequences, {counts['events']:,} events."
    )
    for note in manifest["notes"]:
        typer.echo(f"- {note}")
