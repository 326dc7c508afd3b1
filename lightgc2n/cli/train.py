"""`lightgc2n train`: one model, in a folder of its own, or all runs of a plan."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.options import ConfigFile, Json, Overrides, Seed
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.errors import SettingError, TrainingError
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.experiments.side_by_side import PlanState
    from lightgc2n.experiments.summary import Summary
    from lightgc2n.training.runs import RunPlan

OF_SPLIT, OF_TRAINING = ("protocol", "targets", "target_in_input", "seed"), ("epochs", "seed")
OF_ONE_RUN = ("folder", "from_run", "model", "domain", "config", "set", *OF_SPLIT, *OF_TRAINING)
OF_A_PLAN = ("only", "side_by_side")


def train(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="RUN", help="The run's folder, or the folder for a plan's; a run there goes on."),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")
    ] = None,
    model: Annotated[str, typer.Option(help="A model of the zoo.")] = "lightgc2n",
    protocol: Annotated[str, typer.Option(help="last, time, cold-accounts or windows.")] = "last",
    domain: Annotated[str, typer.Option(help="Use the events of this domain alone.")] = "",
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Show the answer, as the released code does.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; the same as --set training.epochs=N.")] = None,
    config: ConfigFile = None,
    set: Overrides = None,
    seed: Seed = 0,
    from_run: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Start from the weights and settings of this run, on newer data."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Train all runs of a TOML file: see docs/training.md.")
    ] = None,
    only: Annotated[str, typer.Option("--only", metavar="NAME", help="Of a plan: train this run alone.")] = "",
    side_by_side: Annotated[
        int, typer.Option("--side-by-side", metavar="N", min=1, help="Of a plan: so many runs at once.")
    ] = 1,
    slice: Annotated[
        float | None,
        typer.Option("--slice", metavar="SECONDS", min=0, help="Stop for now at the end of an epoch after this."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json: Json = False,
) -> None:
    """Train a model, or all runs of a plan; the same command goes on where a stopped run ended.

    Settings stand in the tables of the model, `split` and `training`: --set training.learning_rate=0.01.
    """
    from lightgc2n.devices import choose_device

    seconds = math.inf if slice is None else slice
    if plan is not None:
        _refuse(context, OF_ONE_RUN, "stands in the plan")
        if only:
            _train_only(plan, out, only, choose_device(device), seconds, json)
        else:
            _train_plan(plan, out, choose_device(device), side_by_side, seconds, json)
        return
    _refuse(context, OF_A_PLAN, "needs --plan")
    if folder is None:
        raise SettingError("nothing to train on. Give a prepared dataset, or --plan FILE.")
    said = {name: context.params[name] for name in OF_ONE_RUN if _is_said(context, name)}
    run = _run_of(folder, from_run, said)
    _train_run(run, out, choose_device(device), seconds, json)


def _run_of(folder: Path, from_run: Path | None, said: "dict[str, Any]") -> "RunPlan":
    """The run that the options ask for; what they do not say is the default, or as in the run it starts from."""
    from dataclasses import asdict

    from lightgc2n import zoo
    from lightgc2n.cli.inputs import read_tables
    from lightgc2n.config import read_settings
    from lightgc2n.data.splits import SplitConfig
    from lightgc2n.training.runs import RunPlan, plan_of
    from lightgc2n.training.steps import TrainingConfig

    base = plan_of(from_run) if from_run is not None else RunPlan(folder, said.get("model", "lightgc2n"))
    if said.get("model", base.model) != base.model:
        raise SettingError(f"{from_run}: a run of {base.model}. Its weights cannot start {said['model']}.")
    if zoo.entry_of(base.model).is_floor:
        raise SettingError(f"{base.model} is a floor: it needs no training. Use lightgc2n compare.")
    known = [base.model, "split", "training"]
    filed, tables = read_tables(said.get("config"), None, known), read_tables(None, said.get("set"), known)
    parts = {  # what is typed beats a file, and --set an option that says the same
        name: asdict(settings)
        | filed[name]
        | {option: said[option] for option in options if option in said}
        | tables[name]
        for name, settings, options in (("split", base.split, OF_SPLIT), ("training", base.training, OF_TRAINING))
    }
    return RunPlan(
        data=folder,
        model=base.model,
        domain=said.get("domain", base.domain),
        settings=base.settings | filed[base.model] | tables[base.model],
        split=read_settings(SplitConfig, parts["split"], where="split"),
        training=read_settings(TrainingConfig, parts["training"], where="training"),
        from_run=from_run,
    )


def _train_run(run: "RunPlan", out: Path, device: str, seconds: float, json: bool) -> None:
    from dataclasses import asdict

    from lightgc2n.cli.inputs import warn_of_leaks
    from lightgc2n.experiments.single import open_data, train_run

    warn_of_leaks(*open_data(run))
    most = run.training.epochs
    say(f"training {run.model} on {device}, at most {most} epochs; Ctrl-C stops it, the same command goes on")
    progress = train_run(run, out, device, seconds)
    if json:
        print_json({"out": str(out), **asdict(progress)})
        return
    if not progress.ended_by:
        typer.echo(f"stopped for now after {progress.epochs} epochs; the same command goes on")
        return
    if not run.split.validation:
        typer.echo(f"trained for {progress.epochs} epochs on all but the test targets; nothing was chosen")
        typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")
        return
    when = f"after epoch {progress.best_epoch + 1}" if progress.best_epoch >= 0 else "as it started, and not beaten"
    typer.echo(f"best validation MRR@20 {100 * progress.best_value:.2f} % {when}; ended by {progress.ended_by}")
    typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")


def _refuse(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Stops at what was said and would not be listened to."""
    for parameter in context.command.params:
        if parameter.name in names and _is_said(context, parameter.name):
            raise SettingError(f"{parameter.opts[0] if parameter.param_type_name == 'option' else 'DIR'} {why}.")


def _is_said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _train_only(plan: Path, out: Path, name: str, device: str, seconds: float, json: bool) -> None:
    from lightgc2n.experiments.side_by_side import train_one

    finished = train_one(plan, out, name, device, seconds)
    if json:
        print_json({"out": str(out / name), "finished": finished})
        return
    typer.echo(f"{out / name}: {'finished' if finished else 'stopped for now; the same command goes on'}")


def _train_plan(plan: Path, out: Path, device: str, at_once: int, seconds: float, json: bool) -> None:
    from lightgc2n.experiments.side_by_side import LOGS, train_plan
    from lightgc2n.experiments.summary import write_summary

    state = train_plan(plan, out, device, at_once, seconds)
    summary = write_summary(out)
    if json:
        print_json({"out": str(out), "left": state.left, "failed": state.failed, "summary": summary.rows})
    else:
        _show(state, summary, out)
    if state.failed:
        raise TrainingError(
            f"{len(state.failed)} runs failed: {', '.join(state.failed)}. {out / LOGS} says why; the same command "
            f"tries them again."
        )


def _show(state: "PlanState", summary: "Summary", out: Path) -> None:
    from rich.table import Table

    from lightgc2n.experiments.summary import HEADINGS, summary_cells, summary_notes

    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for row in summary.rows:
        table.add_row(*summary_cells(row))
    print_table(table)
    for note in summary_notes(summary):
        typer.echo(note)
    if state.left:
        typer.echo(f"{len(state.left)} runs are left: {', '.join(state.left)}; the same command goes on")
    typer.echo(f"written to {out / 'summary.md'} and {out / 'summary.csv'}")
