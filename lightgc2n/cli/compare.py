"""`lightgc2n compare`: models side by side on one honest split."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lightgc2n.cli.inputs import open_split, read_tables, warn_of_leaks
from lightgc2n.cli.options import ConfigFile, DatasetFolder, Force, Json, Overrides, Seed
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.errors import SettingError
from lightgc2n.experiments.markdown import chance, percent


def compare(
    folder: DatasetFolder,
    models: Annotated[str, typer.Option(help="floors, all, or names: markov,recency.")] = "floors",
    protocol: Annotated[
        str, typer.Option(help="last, time, cold-accounts or windows: see docs/protocols.md.")
    ] = "last",
    domain: Annotated[str, typer.Option(help="Use the events of this domain alone.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results.json, results.csv and ranks go.")
    ] = None,
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    cutoffs: Annotated[
        str, typer.Option(metavar="N,N,...", help="Lengths of the lists that are measured.")
    ] = "5,10,20",
    exclude_seen: Annotated[bool, typer.Option("--exclude-seen", help="Leave items of the history out.")] = False,
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Show the answer, as the released code does; stamps the table.")
    ] = False,
    config: ConfigFile = None,
    set: Overrides = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare models on one dataset, with intervals and paired tests."""
    from lightgc2n import zoo
    from lightgc2n.config import read_settings
    from lightgc2n.data.files import refuse_existing
    from lightgc2n.devices import choose_device
    from lightgc2n.experiments.compare import compare as run
    from lightgc2n.experiments.compare import write_comparison
    from lightgc2n.training.steps import TrainingConfig

    if out is not None:
        refuse_existing(out, force)
    names = zoo.choose_models(models)
    changes = read_tables(config, set, known=[*zoo.ZOO, "split", "training"])
    shares, training = changes.pop("split"), changes.pop("training")
    settings = {"protocol": protocol, "targets": targets, "target_in_input": target_in_input, "seed": seed}
    dataset, split = open_split(folder, domain, **settings, **shares)
    warn_of_leaks(dataset, split)
    compared = run(
        dataset,
        split,
        names,
        cutoffs=_cutoffs(cutoffs),
        changes=changes,
        training=read_settings(TrainingConfig, {"seed": seed, **training}, where="training"),
        exclude_seen=exclude_seen,
        device=choose_device(device),
        seed=seed,
    )
    if out is not None:
        write_comparison(compared, out, force)
    if json:
        print_json(compared.result)
        return
    for table in comparison_tables(compared.result):
        print_table(table)
    for line in comparison_notes(compared.result):
        typer.echo(line)
    if out is not None:
        typer.echo(f"written to {out}")


def _cutoffs(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise SettingError(f"--cutoffs: expected whole numbers like 5,10,20, found {text!r}.") from None


def comparison_tables(result: dict[str, Any]) -> Iterator[Table]:
    """The main table, and how each model does on targets that repeat the history and on new ones."""
    cutoffs = result["cutoffs"]
    ends = sorted({cutoffs[0], cutoffs[-1]})
    shown = [f"{metric}@{cutoff}" for metric in ("RC", "MRR", "NDCG") for cutoff in ends]
    decisive = f"MRR@{cutoffs[-1]}"
    title = f"{result['dataset']['name']}, protocol {result['split']['protocol']}, %"
    main = Table(title="\n".join([title, *result["stamps"]]))
    for heading in ("model", *shown, f"95 % of {decisive}", "p", "stored", "seconds"):
        main.add_column(heading, justify="left" if heading == "model" else "right")
    by_kind = Table(title=f"{decisive} by target, %")
    subsets = list(next(iter(result["models"].values()))["metrics"])
    for subset in ("model", *subsets):
        by_kind.add_column(subset, justify="left" if subset == "model" else "right")
    for name, facts in result["models"].items():
        found = facts["metrics"]["all"]
        interval = f"{percent(found[decisive]['low'])} - {percent(found[decisive]['high'])}"
        p = "best" if facts["paired"]["against"] == name else chance(facts["paired"]["p"])
        stored = f"{facts['parameters'] + facts['stored_numbers']:,}"
        main.add_row(name, *(percent(found[m]["value"]) for m in shown), interval, p, stored, f"{facts['seconds']:.1f}")
        by_kind.add_row(name, *(percent(facts["metrics"][subset][decisive]["value"]) for subset in subsets))
    queries = [f"{found['queries']:,}" for found in next(iter(result["models"].values()))["metrics"].values()]
    by_kind.add_section()
    by_kind.add_row("queries", *queries)
    yield main
    yield by_kind


def comparison_notes(result: dict[str, Any]) -> Iterator[str]:
    """What a reader of the tables must know."""
    counts = result["counts"]
    yield (
        f"{counts['test_queries']:,} test targets of {counts['test_accounts']:,} accounts, ranked among all "
        f"{counts['items']:,} items; {counts['test_targets_unseen_in_training']:,} never occur in training. "
        f"p: paired test on MRR@{result['cutoffs'][-1]} against the best."
    )
    if hidden := result["cutoffs"][1:-1]:
        yield f"Also measured at {', '.join(map(str, hidden))}: see --json or --out."
    yield from result["notes"]
