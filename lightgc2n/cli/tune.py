"""`lightgc2n tune`: search better settings for a model on validation targets."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.on_cluster import runner_for
from lightgc2n.cli.options import ClusterAddress, ConfigFile, DatasetFolder, Json, Overrides, Seed, Threads
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.devices import DEVICE_HELP
from lightgc2n.experiments.table import BUDGET, BUDGET_NOTE, Cell, Table
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.experiments.tuning import Tuned


def tune(
    folder: DatasetFolder,
    model: Annotated[str, typer.Option(help="Name of a model that is trained.")] = "lightgc2n-plus",
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials; the first has the model's defaults, or --first.")
    ] = 10,
    epochs: Annotated[int | None, typer.Option(min=1, help="Maximum number of epochs of a trial (default 45).")] = None,
    protocol: Annotated[str, typer.Option(help="last, time, cold-accounts or windows.")] = "last",
    domain: Annotated[str, typer.Option(help="Use only the events of this domain.")] = "",
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The search's folder; an existing search resumes.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="File for the best settings, for --config.")
    ] = None,
    config: ConfigFile = None,
    set: Overrides = None,
    first: Annotated[
        Path | None,
        typer.Option("--first", metavar="FILE", help="Settings of the first trial, such as a paper's; still searched."),
    ] = None,
    sampler: Annotated[str, typer.Option(help="How settings are proposed: random, or optuna (an extra).")] = "random",
    halving: Annotated[
        bool,
        typer.Option(
            "--halving/--no-halving", help="Continue with the best third of the trials, or give every trial all epochs."
        ),
    ] = True,
    side_by_side: Annotated[int, typer.Option("--side-by-side", min=1, help="Trials trained at once.")] = 1,
    slice: Annotated[
        float,
        typer.Option(
            "--slice", metavar="SECONDS", min=1, help="Time budget: pause at the end of the epoch that exceeds it."
        ),
    ] = math.inf,
    seed: Seed = 0,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the file at --save.")] = False,
    json: Json = False,
) -> None:
    """Search better settings for a model, scored on validation targets; rerun the command to resume.

    A setting given by --set or --config is fixed and not searched: --set lightgc2n.capsule_width=16.
    """
    from lightgc2n import zoo
    from lightgc2n.config import read_settings, read_tables
    from lightgc2n.data.leak_audit import warn_of_leaks
    from lightgc2n.data.splits import SplitConfig
    from lightgc2n.experiments.settings_file import refuse_other_settings, write_tuned
    from lightgc2n.experiments.tuning import BEST_SETTINGS, DEFAULT_EPOCHS, TuningPlan
    from lightgc2n.experiments.tuning import tune as search
    from lightgc2n.training.loop import TrainingConfig
    from lightgc2n.training.run import open_data
    from lightgc2n.training.runs import RunPlan

    zoo.entry_of(model)
    tables = read_tables(config, set, known=[model, "split", "training"])
    fixed = {f"{table}.{name}" for table in (model, "training") for name in tables[table]}
    start = read_tables(first, None, known=[model, "split", "training"])
    tables = {table: {**start[table], **values} for table, values in tables.items()}
    training = {"seed": seed, "epochs": DEFAULT_EPOCHS, **tables["training"]}
    training |= {} if epochs is None else {"epochs": epochs}
    split = {"protocol": protocol, "targets": targets, "seed": seed, **tables["split"]}
    run = RunPlan(
        data=folder,
        model=model,
        domain=domain,
        settings=tables[model],
        split=read_settings(SplitConfig, split, where="split"),
        training=read_settings(TrainingConfig, training, where="training"),
    )
    started = {f"{table}.{name}": value for table in (model, "training") for name, value in start[table].items()}
    plan = TuningPlan(run, frozenset(fixed), trials, sampler, halving, started, str(first or ""))
    out = out or Path("tuning") / f"{folder.name}-{model}"
    if save is not None:
        refuse_other_settings(save, out, force)
    data = open_data(run)
    warn_of_leaks(*data)
    say(f"tuning {model} in {out}; Ctrl-C stops, rerun the command to resume")
    with runner_for(cluster, threads, device) as (runner, chosen):
        tuned = search(plan, out, chosen, side_by_side, slice, data, runner)
    if tuned.finished:
        if save is not None:
            refuse_other_settings(save, out, force)  # it may have appeared since the search began
        for path in (out / BEST_SETTINGS, *([save] if save else [])):
            write_tuned(tuned, path, force=True)
    if json:
        print_json({"out": str(out), "model": model, "finished": tuned.finished, "trials": tuned.rows})
    else:
        print_results([trials_table(tuned)], _notes(tuned, out, save))


def trials_table(tuned: "Tuned") -> Table:
    """One row per trial, the best first, with the settings that vary."""
    rows = tuned.rows
    names = [name for name in tuned.plan.space if len({repr(row["settings"][name]) for row in rows}) > 1]
    short = [name.rsplit(".", 1)[1].replace("_", "\n") for name in names]  # two lines, or the table is twice as wide
    cells = []
    for row in rows:
        number = f"{row['trial']} (defaults)" if row["trial"] == 0 else str(row["trial"])
        settings = [str(row["settings"][name]) for name in names]
        cells.append((number, *settings, str(row["rung"]), str(row["epochs"]), _percent(row), _ended(row)))
    caption = f"{tuned.plan.run.model} on {tuned.dataset.name}, validation, %"
    columns = ("trial", *short, "rung", "epochs", "MRR@20", "ended by")
    return Table("trials", caption, columns, tuple(tuple(map(Cell, row)) for row in cells))


def _notes(tuned: "Tuned", out: Path, save: Path | None) -> Iterator[str]:
    plan, rows = tuned.plan, tuned.rows
    spent = sum(row["epochs"] for row in rows)
    rungs = ", then ".join(f"{count} to epoch {epochs}" for count, epochs in plan.rungs)
    yield f"{len(rows)} of {plan.trials} trials, {spent} epochs in all: {rungs}. Test targets were not used."
    if any(row["ended_by"] == "budget" for row in rows):
        yield BUDGET_NOTE
    yield from (f"trial {row['trial']} failed: {row['failure']}" for row in rows if row["failure"])
    if not tuned.finished:
        yield "paused; rerun the command to resume"
        return
    where = save or out / "best.toml"
    yield f"best settings in {where}; train with them: lightgc2n train ... --model {plan.run.model} --config {where}"


def _percent(row: dict[str, Any]) -> str:
    return f"{100 * row['validation']:.2f}" if row["validation"] >= 0 else "-"


def _ended(row: dict[str, Any]) -> str:
    return f"budget {BUDGET}" if row["ended_by"] == "budget" else str(row["ended_by"])
