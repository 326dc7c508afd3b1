"""`lightgc2n models`: list all models and what each needs."""

from typing import Annotated

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json, print_results


def models(
    ablations: Annotated[bool, typer.Option("--ablations", help="Also list models with one part taken out.")] = False,
    json: Json = False,
) -> None:
    """List all models, what each does, and which can be exported and served."""
    from lightgc2n import zoo
    from lightgc2n.experiments.table import plain_table

    entries = {name: entry for name, entry in zoo.ZOO.items() if ablations or json or "-wo-" not in name}
    if json:
        print_json(
            [
                {"name": name, "about": zoo.about(name), "simple": entry.is_simple, "exports": entry.exports}
                for name, entry in entries.items()
            ]
        )
        return
    rows = [
        (name, "counted" if entry.is_simple else "trained", "yes" if entry.exports else "no", zoo.about(name))
        for name, entry in entries.items()
    ]
    print_results([plain_table("models", ("model", "kind", "exports", "what it does"), rows, text_columns=4)])
    typer.echo("counted: a simple baseline, which counts events and needs no epochs.")
    typer.echo("exports: a run can become a bundle, which lightgc2n serve serves.")
    typer.echo("account-markov and session-knn cannot: they look up the logs of all accounts,")
    typer.echo("and the model of a bundle is loaded by browsers.")
    typer.echo("Compare models with: lightgc2n compare DIR --models simple,lightgc2n-plus")
