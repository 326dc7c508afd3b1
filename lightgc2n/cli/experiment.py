"""`lightgc2n experiment` runs an experiment of the paper and writes its report; `lightgc2n report` rewrites that."""

import math
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightgc2n.cli.on_cluster import runner_for
from lightgc2n.cli.options import ClusterAddress, Json, Overrides, Threads
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.devices import DEVICE_HELP
from lightgc2n.errors import SettingError, TrainingError

if TYPE_CHECKING:
    from lightgc2n.experiments.subprocesses import Runner
    from lightgc2n.paper.experiment_plan import Setup
    from lightgc2n.paper.experiment_runner import Pace, State

LIST = "list"


def experiment(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of an experiment, or all, or list.")] = "",
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="DIR", help="More datasets, as in --data DIR DIR.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", metavar="DIR", help="Prepared datasets; for leak WINDOWS LOGS.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder for runs and report; with --run the archive of results."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="auto: last on logs, windows on windows; or last, time, cold-accounts, windows.")
    ] = "auto",
    models: Annotated[str, typer.Option(help="simple, all, or names; for experiments that compare models.")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds (3 for table1 and ablation, else 1).")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(metavar="EPOCHS", min=1, help="Maximum number of epochs of a run.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="DIR", help="Settings files of tune: DIR/DATASET/MODEL.toml, or DIR/MODEL.toml."
        ),
    ] = None,
    set: Overrides = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use generated households and small settings: takes minutes.")
    ] = False,
    side_by_side: Annotated[
        int | None, typer.Option("--side-by-side", metavar="N", min=1, help="Runs at once (default 1; quick: 2).")
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            "--together",
            metavar="N",
            min=1,
            help="Runs that each process trains one after the other (default 1; quick: 10).",
        ),
    ] = None,
    slice: Annotated[
        float,
        typer.Option(
            "--slice", metavar="SECONDS", min=0, help="Time budget: pause at the end of the epoch that exceeds it."
        ),
    ] = math.inf,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    pack: Annotated[
        Path | None,
        typer.Option("--pack", metavar="FILE", help="Do not run: write an archive that another machine can run."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="FILE", help="Run the experiments of an archive written by --pack.")
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option("--unpack", metavar="FILE", help="Copy the results of an archive written by --run to --out."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file at --pack.")] = False,
    json: Json = False,
) -> None:
    """Run an experiment of the paper and write its report; rerun the command to resume.

    lightgc2n experiment list names them; docs/experiments.md describes each.
    """
    if name == LIST:
        _list(json)
        return
    if sum(bool(one) for one in (name, run, unpack)) != 1:
        raise SettingError(
            "give one of: an experiment by its name (lightgc2n experiment list), --run FILE, --unpack FILE."
        )
    if unpack is not None:
        _unpack(unpack, _required(out), json)
        return
    at_once, turns = (2, 10) if quick else (1, 1)
    pace = partial(_pace, side_by_side or at_once, slice, together or turns)
    if run is not None:
        with runner_for(cluster, threads, device) as where:
            _run(run, _required(out), pace(*where), json)
        return
    setup = _setup(name, [*(data or []), *(more or [])], quick, out, pack, context)
    if pack is not None:
        _pack(name, setup, _command(context), pack, force, json)
        return
    with runner_for(cluster, threads, device) as where:
        _run_experiments(name, setup, _command(context), _required(out), pace(*where), json)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of experiments.")],
    records: Annotated[
        Path | None,
        typer.Option(
            "--records", metavar="OUT", help="Write records of the runs to OUT, and the report there: it needs no runs."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Rewrite the report on the experiments of a folder from their run folders, or from records of them."""
    from lightgc2n.paper.report import ship, write

    page = write(folder) if records is None else ship(folder, records)
    if json:
        print_json({"report": str(page)})
    else:
        typer.echo(f"written to {page}")


def _list(json: bool) -> None:
    from lightgc2n.experiments.table import plain_table
    from lightgc2n.paper.catalogue import EXPERIMENTS

    if json:
        print_json({name: {"place": one.place, "shows": one.shows} for name, one in EXPERIMENTS.items()})
        return
    rows = ((name, one.place, one.shows, one.seeds) for name, one in EXPERIMENTS.items())
    print_results([plain_table("experiments", ("name", "in the paper", "shows", "seeds"), rows, text_columns=3)])


def _setup(
    name: str, data: list[Path], quick: bool, out: Path | None, pack: Path | None, context: typer.Context
) -> "Setup":
    from lightgc2n.config import parse_overrides
    from lightgc2n.paper.catalogue import choose_experiments
    from lightgc2n.paper.experiment_plan import Setup, sources_of
    from lightgc2n.paper.experiment_runner import DATA, claim_experiments, require_data
    from lightgc2n.paper.quick_data import quick_data

    choose_experiments(name)
    if quick and not data:
        if out is not None:
            claim_experiments(out, [])  # before data is generated in it
        data = list(quick_data((out or pack.with_suffix(".data") if pack else _required(out)) / DATA))
    options = context.params
    config = Path(options["config"]) if options["config"] else None  # text in older versions of Typer
    if config is not None and not config.is_dir():
        raise SettingError(
            f"--config {config}: expected a folder with one TOML file per model, or one folder per dataset."
        )
    setup = Setup(
        sources_of(data),
        protocol=options["protocol"],
        seeds=options["seeds"],
        budget=options["budget"],
        models=options["models"],
        config=config,
        changes=parse_overrides(options["set"] or []),
        quick=quick,
    )
    require_data(setup)
    return setup


def _run_experiments(name: str, setup: "Setup", command: str, out: Path, pace: "Pace", json: bool) -> None:
    from lightgc2n.paper.catalogue import choose_experiments
    from lightgc2n.paper.experiment_runner import run_experiments
    from lightgc2n.paper.report import has_results, write

    state = run_experiments(choose_experiments(name), setup, out, command, pace)
    page = write(out) if has_results(out) else None
    _report_state(state, {"report": str(page or "")}, f"written to {page}" if page else "no run is finished yet", json)


def _pack(name: str, setup: "Setup", command: str, archive: Path, force: bool, json: bool) -> None:
    from lightgc2n.paper.catalogue import choose_experiments
    from lightgc2n.paper.experiment_pack import pack

    state = pack(choose_experiments(name), setup, command, archive, force)
    size = archive.stat().st_size / 1e6
    sentence = f"{archive}, {size:.1f} MB: lightgc2n experiment --run {archive.name} --out results.tgz"
    _report_state(state, {"pack": str(archive), "megabytes": round(size, 1)}, sentence, json)


def _run(archive: Path, results: Path, pace: "Pace", json: bool) -> None:
    from lightgc2n.paper.experiment_pack import run_pack

    state = run_pack(archive, results, pace)
    sentence = f"written to {results}; on your machine: lightgc2n experiment --unpack {results.name} --out DIR"
    _report_state(state, {"results": str(results)}, sentence, json)


def _pace(at_once: int, seconds: float, per_process: int, runner: "Runner | None", device: str) -> "Pace":
    from lightgc2n.paper.experiment_runner import Pace

    return Pace(device, at_once, seconds, per_process, runner)


def _unpack(results: Path, out: Path, json: bool) -> None:
    from lightgc2n.paper.experiment_pack import unpack
    from lightgc2n.paper.report import has_results, write

    names = unpack(results, out)
    page = write(out) if has_results(out) else None
    if json:
        print_json({"experiments": names, "report": str(page or "")})
    else:
        typer.echo(f"{', '.join(names)}: {f'written to {page}' if page else 'no run is finished yet'}")


def _report_state(state: "State", facts: dict[str, object], sentence: str, json: bool) -> None:
    if json:
        print_json({**facts, "left": state.left, "failed": state.failed, "skipped": state.skipped})
    else:
        if state.left:
            typer.echo(f"{len(state.left)} runs are left: {', '.join(state.left)}; rerun the command to resume")
        typer.echo(sentence)
    if state.failed:
        raise TrainingError(
            f"{len(state.failed)} runs failed: {', '.join(state.failed)}. See EXPERIMENT/logs; rerun the command to "
            f"try them again."
        )


def _required(out: Path | None) -> Path:
    if out is None:
        raise SettingError("--out is missing: give the folder for the results.")
    return out


def _command(context: typer.Context) -> str:
    """Return the command that reproduces the numbers, for the report; options that only affect speed are omitted."""
    options = context.params
    words = ["lightgc2n", "experiment", options["name"]]
    folders = [*(options["data"] or []), *(options["more"] or [])]
    words += ["--data", *map(str, folders)] if folders else []
    for option in ("protocol", "models", "seeds", "budget", "config"):
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            words += [f"--{option}", str(options[option])]
    words += [word for pair in options["set"] or [] for word in ("--set", pair)]
    words += ["--quick"] if options["quick"] else []
    words += ["--out", str(options["out"])] if options["out"] is not None else []
    return shlex.join(words)
