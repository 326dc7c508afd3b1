"""`lightgc2n compare`: several models on one split."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.on_cluster import runner_for
from lightgc2n.cli.options import ClusterAddress, DatasetFolder, Force, Json, Overrides, Seed, Threads
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.devices import DEVICE_HELP
from lightgc2n.errors import SettingError


def compare(
    folder: DatasetFolder,
    models: Annotated[str, typer.Option(help="simple, all, or names separated by commas.")] = "simple",
    protocol: Annotated[
        str, typer.Option(help="last, time, cold-accounts or windows: see docs/protocols.md.")
    ] = "last",
    domain: Annotated[str, typer.Option(help="Use only the events of this domain.")] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder for results, ranks and trained runs; needed to resume."),
    ] = None,
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    cutoffs: Annotated[str, typer.Option(metavar="N,N,...", help="List lengths of the metrics.")] = "5,10,20",
    metrics: Annotated[
        str,
        typer.Option(
            help="accuracy, or all: also catalogue coverage, novelty, diversity and popularity bias of the lists."
        ),
    ] = "accuracy",
    examples: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Also show the lists of N random test accounts, with titles where known."
        ),
    ] = 0,
    exclude_seen: Annotated[
        bool, typer.Option("--exclude-seen", help="Exclude items of the history from the lists.")
    ] = False,
    target_in_input: Annotated[
        bool,
        typer.Option(
            "--target-in-input", help="Leave the target in the input, as the released code does; marks the table."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE|DIR", help="A TOML file with settings, or a folder with one per model."),
    ] = None,
    set: Overrides = None,
    seed: Seed = 0,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
    force: Force = False,
    json: Json = False,
) -> None:
    """Train and compare models on one dataset, with intervals and paired tests.

    With --out, finished models are stored in DIR.partial, and rerunning the command resumes.
    """
    from lightgc2n import zoo
    from lightgc2n.experiments.comparison_examples import example_tables
    from lightgc2n.experiments.comparison_tables import comparison_notes, comparison_tables, conclusion
    from lightgc2n.experiments.plans import read_model_tables
    from lightgc2n.experiments.run_comparison import run_comparison, wants_beyond_accuracy
    from lightgc2n.files.atomic_writes import refuse_existing

    if out is not None:
        refuse_existing(out, force)
    names = zoo.choose_models(models)
    model_tables = read_model_tables(config, set, names, known=[*zoo.ZOO, "split", "training"])
    settings = {"protocol": protocol, "targets": targets, "target_in_input": target_in_input, "seed": seed}
    with runner_for(cluster, threads, device) as (runner, chosen):
        compared = run_comparison(
            folder,
            names,
            model_tables,
            domain=domain,
            split=settings | model_tables[names[0]]["split"],
            cutoffs=_cutoffs(cutoffs),
            # A model that does not fit is an error where it is named, and left out of `all` and `simple`.
            optional=[name for name in names if name not in models.split(",")],
            exclude_seen=exclude_seen,
            device=chosen,
            seed=seed,
            out=out,
            force=force,
            beyond_accuracy=wants_beyond_accuracy(metrics),
            examples=examples,
            runner=runner,
        )
    if json:
        print_json(compared.result | ({"examples": compared.examples} if examples else {}))
        return
    tables = [*comparison_tables(compared.result), *example_tables(compared.result, compared.examples)]
    print_results(tables, comparison_notes(compared.result))
    if hidden := compared.result["cutoffs"][1:-1]:
        typer.echo(f"Also measured at {', '.join(map(str, hidden))}: see --json or --out.")
    if out is not None:
        typer.echo(f"written to {out}")
    given = {"protocol": protocol if protocol != "last" else "", "domain": domain}
    options = "".join(f" --{name} {value}" for name, value in given.items() if value)
    typer.echo(conclusion(compared.result, folder, out, options))


def _cutoffs(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise SettingError(f"--cutoffs: expected whole numbers like 5,10,20, found {text!r}.") from None
