"""`lightgc2n compare`: models side by side on one honest split."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightgc2n.cli.comparison import comparison_notes, comparison_tables
from lightgc2n.cli.inputs import open_split, read_model_tables, warn_of_leaks
from lightgc2n.cli.options import DatasetFolder, Force, Json, Overrides, Seed
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.errors import SettingError
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.experiments.compare import Compared


def compare(
    folder: DatasetFolder,
    models: Annotated[str, typer.Option(help="floors, all, or names: markov,recency.")] = "floors",
    protocol: Annotated[
        str, typer.Option(help="last, time, cold-accounts or windows: see docs/protocols.md.")
    ] = "last",
    domain: Annotated[str, typer.Option(help="Use the events of this domain alone.")] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where results, ranks and trained runs go; needed to go on."),
    ] = None,
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    cutoffs: Annotated[
        str, typer.Option(metavar="N,N,...", help="Lengths of the lists that are measured.")
    ] = "5,10,20",
    exclude_seen: Annotated[bool, typer.Option("--exclude-seen", help="Leave items of the history out.")] = False,
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Show the answer, as the released code does; stamps the table.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE|DIR", help="A TOML file with settings, or a folder with one a model."),
    ] = None,
    set: Overrides = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    force: Force = False,
    json: Json = False,
) -> None:
    """Train and compare models on one dataset, with intervals and paired tests.

    With --out, finished models are kept in DIR.partial, and the same command goes on where it was stopped.
    """
    from lightgc2n import zoo
    from lightgc2n.config import read_settings
    from lightgc2n.data.files import refuse_existing
    from lightgc2n.devices import choose_device
    from lightgc2n.experiments.compare import compare as run
    from lightgc2n.training.runs import RunPlan
    from lightgc2n.training.steps import TrainingConfig

    if out is not None:
        refuse_existing(out, force)
    names = zoo.choose_models(models)
    tables = read_model_tables(config, set, names, known=[*zoo.ZOO, "split", "training"])
    settings = {"protocol": protocol, "targets": targets, "target_in_input": target_in_input, "seed": seed}
    dataset, split = open_split(folder, domain, **settings, **tables[names[0]]["split"])
    warn_of_leaks(dataset, split)
    plans = {
        name: RunPlan(
            data=folder,
            model=name,
            domain=domain,
            settings=own[name],
            split=split.config,
            training=read_settings(TrainingConfig, {"seed": seed, **own["training"]}, where="training"),
        )
        for name, own in tables.items()
    }
    contest = partial(
        run,
        dataset,
        split,
        names,
        cutoffs=_cutoffs(cutoffs),
        plans=plans,
        # Who asks for a model by its name is told that it does not fit; who asks for all gets all that do.
        optional=[name for name in names if name not in models.split(",")],
        exclude_seen=exclude_seen,
        device=choose_device(device),
        seed=seed,
    )
    compared = contest() if out is None else _in_folder(contest, out, force)
    if json:
        print_json(compared.result)
        return
    for table in comparison_tables(compared.result):
        print_table(table)
    for line in comparison_notes(compared.result):
        typer.echo(line)
    if out is not None:
        typer.echo(f"written to {out}")


def _in_folder(contest: "Callable[..., Compared]", out: Path, force: bool) -> "Compared":
    """The comparison kept model by model beside `out`, so that the same command goes on if it is stopped."""
    from lightgc2n.data.files import kept_folder
    from lightgc2n.experiments.compare import RESULTS, write_results
    from lightgc2n.experiments.kept import Kept

    with kept_folder(out, force, marker=RESULTS) as folder:
        say(f"finished models are kept in {folder}; Ctrl-C stops, the same command goes on")
        kept = Kept(folder, force)
        compared = contest(kept=kept)
        kept.clear()
        write_results(compared, folder)
    return compared


def _cutoffs(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise SettingError(f"--cutoffs: expected whole numbers like 5,10,20, found {text!r}.") from None
