"""`lightgc2n train`: one model in a run folder, or all runs of a plan."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.on_cluster import device_of_nodes, runner_for
from lightgc2n.cli.options import ClusterAddress, ConfigFile, Json, Overrides, Seed, Threads
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.devices import DEVICE_HELP
from lightgc2n.errors import SettingError, TrainingError
from lightgc2n.progress import number_of, say

if TYPE_CHECKING:
    from lightgc2n.experiments.plan_runner import PlanState
    from lightgc2n.experiments.plan_summary import Summary
    from lightgc2n.experiments.subprocesses import Runner
    from lightgc2n.training.runs import RunPlan

OF_SPLIT, OF_TRAINING = ("protocol", "targets", "target_in_input", "seed"), ("epochs", "seed")
OF_ONE_RUN = ("folder", "from_run", "model", "domain", "config", "set", *OF_SPLIT, *OF_TRAINING)
WITHOUT_WORKERS = "needs --plan FILE, or --workers K for one model on several machines"
OF_A_PLAN = ("only", "side_by_side")


def train(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="RUN", help="The run's folder, or the folder for a plan's runs; an existing run resumes."
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")
    ] = None,
    model: Annotated[str, typer.Option(help="Name of the model: `lightgc2n models` lists all.")] = "lightgc2n-plus",
    protocol: Annotated[str, typer.Option(help="last, time, cold-accounts or windows.")] = "last",
    domain: Annotated[str, typer.Option(help="Use only the events of this domain.")] = "",
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Leave the target in the input, as the released code does.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs; the same as --set training.epochs=N.")
    ] = None,
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
    only: Annotated[str, typer.Option("--only", metavar="NAME", help="With --plan: train this run alone.")] = "",
    side_by_side: Annotated[
        int, typer.Option("--side-by-side", metavar="N", min=1, help="With --plan: train N runs at once.")
    ] = 1,
    slice: Annotated[
        float | None,
        typer.Option(
            "--slice", metavar="SECONDS", min=0, help="Time budget: pause at the end of the epoch that exceeds it."
        ),
    ] = None,
    cluster: ClusterAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="K",
            min=1,
            help="With --cluster: train one model with K workers, the first of them here.",
        ),
    ] = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    json: Json = False,
) -> None:
    """Train a model, or all runs of a plan; rerun the command to resume an interrupted run.

    Settings are in the tables of the model, `split` and `training`: --set training.learning_rate=0.01.
    """
    from lightgc2n.devices import choose_device

    seconds = math.inf if slice is None else slice
    if plan is not None:
        _refuse(context, OF_ONE_RUN, "belongs in the plan file")
        _refuse(context, ("workers",), "trains one model, not a plan")
        if cluster is not None:
            _refuse(context, ("only", "side_by_side"), "cannot be combined with --cluster, which runs as many as fit")
        if only:
            _train_only(plan, out, only, choose_device(device), seconds, json)
        else:
            with runner_for(cluster, threads, device) as (runner, chosen):
                _train_plan(plan, out, chosen, side_by_side, seconds, json, runner)
        return
    _refuse(context, OF_A_PLAN, "needs --plan")
    if folder is None:
        raise SettingError("nothing to train on. Give a prepared dataset, or --plan FILE.")
    options = {name: context.params[name] for name in OF_ONE_RUN if _is_given(context, name)}
    if "config" in options:
        options["config"] = Path(options["config"])  # text in older versions of Typer
    run = _run_of(folder, from_run, options)
    if workers is None:
        _refuse(context, ("cluster", "threads"), WITHOUT_WORKERS)
        _train_run(run, out, choose_device(device), seconds, json)
        return
    if cluster is None:
        raise SettingError("--workers needs --cluster HOST:PORT.")
    _train_run(run, out, device_of_nodes(device), seconds, json, (cluster, workers, threads or 1))


def _run_of(folder: Path, from_run: Path | None, given: "dict[str, Any]") -> "RunPlan":
    """Return the plan of the options; other settings are the defaults, or those of the run it starts from."""
    from lightgc2n.config import read_tables
    from lightgc2n.training.runs import plan_to_train

    base = plan_to_train(folder, given.get("model"), from_run)
    known = [base.model, "split", "training"]
    filed, tables = read_tables(given.get("config"), None, known), read_tables(None, given.get("set"), known)
    split, training = (  # options override a file, and --set overrides an option
        filed[name] | {option: given[option] for option in options if option in given} | tables[name]
        for name, options in (("split", OF_SPLIT), ("training", OF_TRAINING))
    )
    settings = filed[base.model] | tables[base.model]
    return base.changed(domain=given.get("domain"), settings=settings, split=split, training=training)


def _train_run(
    run: "RunPlan", out: Path, device: str, seconds: float, json: bool, on: tuple[str, int, int] | None = None
) -> None:
    """Train one run on this machine, or `on` a cluster: its address, the number of workers and their threads."""
    from dataclasses import asdict

    from lightgc2n.data.leak_audit import warn_of_leaks
    from lightgc2n.training.loop import COUNTED, was_still_improving
    from lightgc2n.training.run import open_data, train_run

    data = open_data(run)
    warn_of_leaks(*data)
    most = run.training.epochs
    from lightgc2n.zoo import entry_of

    simple = entry_of(run.model).is_simple
    say(f"counting {run.model}" if simple else f"training {run.model} on {device}, at most {number_of(most, 'epoch')}")
    if on is None:
        progress = train_run(run, out, device, seconds, data=data)
    else:
        from lightgc2n.cluster.one_model import train_on_cluster

        address, workers, threads = on
        progress = train_on_cluster(address, run, out, workers, device, threads, seconds, data)
    if json:
        print_json({"out": str(out), **asdict(progress)})
        return
    if not progress.ended_by:
        typer.echo(f"paused after {number_of(progress.epochs, 'epoch')}; rerun the command to resume")
        return
    if progress.ended_by == COUNTED:
        typer.echo(f"counted; validation MRR@20 {100 * max(progress.best_value, 0.0):.2f} %")
        typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")
        return
    if not run.split.validation:
        epochs = number_of(progress.epochs, "epoch")
        typer.echo(f"trained for {epochs} on all but the test targets; no checkpoint was selected")
        typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")
        return
    when = f"after epoch {progress.best_epoch + 1}" if progress.best_epoch >= 0 else "before training, and not improved"
    typer.echo(f"best validation MRR@20 {100 * progress.best_value:.2f} % {when}; ended by {progress.ended_by}")
    if was_still_improving(progress):
        last = f"the last of {number_of(most, 'epoch')}"
        typer.echo(
            f"Stopped too early: validation was still improving at {last}. Rerun the command with "
            f"--epochs {max(10 * most, 20)} to resume; training ends by itself when validation no longer improves."
        )
    typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")


def _refuse(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Raise an error for options that would have no effect."""
    for parameter in context.command.params:
        if parameter.name in names and _is_given(context, parameter.name):
            raise SettingError(f"{parameter.opts[0] if parameter.param_type_name == 'option' else 'DIR'} {why}.")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _train_only(plan: Path, out: Path, name: str, device: str, seconds: float, json: bool) -> None:
    from lightgc2n.experiments.plan_runner import train_one

    finished = train_one(plan, out, name, device, seconds)
    if json:
        print_json({"out": str(out / name), "finished": finished})
        return
    typer.echo(f"{out / name}: {'finished' if finished else 'paused; rerun the command to resume'}")


def _train_plan(
    plan: Path, out: Path, device: str, at_once: int, seconds: float, json: bool, runner: "Runner | None"
) -> None:
    from lightgc2n.experiments.plan_runner import LOGS, train_plan
    from lightgc2n.experiments.plan_summary import write_summary

    state = train_plan(plan, out, device, at_once, seconds, runner=runner)
    summary = write_summary(out)
    if json:
        print_json({"out": str(out), "left": state.left, "failed": state.failed, "summary": summary.rows})
    else:
        _show(state, summary, out)
    if state.failed:
        raise TrainingError(
            f"{len(state.failed)} runs failed: {', '.join(state.failed)}. See {out / LOGS}; rerun the command to "
            f"try them again."
        )


def _show(state: "PlanState", summary: "Summary", out: Path) -> None:
    from lightgc2n.experiments.plan_summary import summary_table

    print_results([summary_table(summary)])
    if state.left:
        typer.echo(f"{len(state.left)} runs are left: {', '.join(state.left)}; rerun the command to resume")
    typer.echo(f"written to {out / 'summary.md'} and {out / 'summary.csv'}")
