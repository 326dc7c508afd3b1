"""`lightgc2n experiment`: an experiment of the paper from a plan to a report; `lightgc2n report` makes that anew."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightgc2n.cli.options import Json, Overrides
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.errors import SettingError, TrainingError

if TYPE_CHECKING:
    from lightgc2n.studies.running import Pace, State
    from lightgc2n.studies.setup import Setup

LIST = "list"
Speed = tuple[str, int, float, int]  # device, runs at once, seconds, runs that one process takes in turn


def experiment(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="An experiment, all of them, or list.")] = "",
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="More datasets, as in --data DIR DIR.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", metavar="DIR", help="Prepared datasets; for leak WINDOWS LOGS.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where runs and report go; with --run the archive of results."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="auto: last on logs, windows on windows; or last, time, cold-accounts, windows.")
    ] = "auto",
    models: Annotated[str, typer.Option(help="floors, all, or names, where an experiment compares models.")] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many (3 for table1 and ablation, else 1).")] = None,
    budget: Annotated[int | None, typer.Option(metavar="EPOCHS", min=1, help="Most epochs of a run.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="DIR", help="Settings by tune: DIR/DATASET/MODEL.toml, or DIR/MODEL.toml."),
    ] = None,
    set: Overrides = None,
    quick: Annotated[bool, typer.Option("--quick", help="A look in minutes, on generated households.")] = False,
    side_by_side: Annotated[
        int | None, typer.Option("--side-by-side", metavar="N", min=1, help="Runs at once (1; quick: 2).")
    ] = None,
    together: Annotated[
        int | None,
        typer.Option("--together", metavar="N", min=1, help="Runs that one process takes in turn (1; quick: 10)."),
    ] = None,
    slice: Annotated[
        float, typer.Option("--slice", metavar="SECONDS", min=0, help="Stop for now at the end of an epoch after this.")
    ] = math.inf,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    pack: Annotated[
        Path | None, typer.Option("--pack", metavar="FILE", help="Run nothing: pack all that another machine needs.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Carry out what was packed.")] = None,
    unpack: Annotated[
        Path | None, typer.Option("--unpack", metavar="FILE", help="Put results of a pack into --out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what stands at --pack.")] = False,
    json: Json = False,
) -> None:
    """Run an experiment of the paper and write its report; the same command goes on where it was stopped.

    lightgc2n experiment list tells which there are; docs/experiments.md what each one does.
    """
    if name == LIST:
        _list(json)
        return
    if sum(bool(one) for one in (name, run, unpack)) != 1:
        raise SettingError(
            "say one of: an experiment by its name (lightgc2n experiment list), --run FILE, --unpack FILE."
        )
    if unpack is not None:
        _unpack(unpack, _needed(out), json)
        return
    at_once, turns = (2, 10) if quick else (1, 1)
    speed = (device, side_by_side or at_once, slice, together or turns)
    if run is not None:
        _run(run, _needed(out), speed, json)
        return
    setup = _setup(name, [*(data or []), *(more or [])], quick, out, pack, context)
    if pack is not None:
        _pack(name, setup, _command(context), pack, force, json)
    else:
        _carry_out(name, setup, _command(context), _needed(out), speed, json)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of experiments.")],
    json: Json = False,
) -> None:
    """Make the report on the experiments of a folder anew, from their run folders alone."""
    from lightgc2n.studies.report import write

    page = write(folder)
    if json:
        print_json({"report": str(page)})
    else:
        typer.echo(f"written to {page}")


def _list(json: bool) -> None:
    from rich.table import Table

    from lightgc2n.studies.catalogue import STUDIES

    if json:
        print_json({name: {"place": study.place, "shows": study.shows} for name, study in STUDIES.items()})
        return
    table = Table("name", "in the paper", "shows", "seeds")
    for name, study in STUDIES.items():
        table.add_row(name, study.place, study.shows, str(study.seeds))
    print_table(table)


def _setup(
    name: str, data: list[Path], quick: bool, out: Path | None, pack: Path | None, context: typer.Context
) -> "Setup":
    from lightgc2n.config import parse_overrides
    from lightgc2n.studies.catalogue import choose_studies
    from lightgc2n.studies.quick import quick_data
    from lightgc2n.studies.running import DATA, require_data
    from lightgc2n.studies.setup import Setup, sources_of

    choose_studies(name)
    if quick and not data:
        data = list(quick_data((out or pack.with_suffix(".data") if pack else _needed(out)) / DATA))
    told = context.params
    config: Path | None = told["config"]
    if config is not None and not config.is_dir():
        raise SettingError(f"--config {config}: expected a folder with one TOML file a model, or one folder a dataset.")
    setup = Setup(
        sources_of(data),
        protocol=told["protocol"],
        seeds=told["seeds"],
        budget=told["budget"],
        models=told["models"],
        config=config,
        changes=parse_overrides(told["set"] or []),
        quick=quick,
    )
    require_data(setup)
    return setup


def _carry_out(name: str, setup: "Setup", command: str, out: Path, speed: Speed, json: bool) -> None:
    from lightgc2n.studies.catalogue import choose_studies
    from lightgc2n.studies.report import has_something_to_say, write
    from lightgc2n.studies.running import carry_out

    state = carry_out(choose_studies(name), setup, out, command, _pace(speed))
    page = write(out) if has_something_to_say(out) else None
    _tell(state, {"report": str(page or "")}, f"written to {page}" if page else "no run is finished yet", json)


def _pack(name: str, setup: "Setup", command: str, archive: Path, force: bool, json: bool) -> None:
    from lightgc2n.studies.catalogue import choose_studies
    from lightgc2n.studies.packing import pack

    state = pack(choose_studies(name), setup, command, archive, force)
    size = archive.stat().st_size / 1e6
    told = f"{archive}, {size:.1f} MB: lightgc2n experiment --run {archive.name} --out results.tgz"
    _tell(state, {"pack": str(archive), "megabytes": round(size, 1)}, told, json)


def _run(archive: Path, results: Path, speed: Speed, json: bool) -> None:
    from lightgc2n.studies.packing import run_pack

    state = run_pack(archive, results, _pace(speed))
    told = f"written to {results}; at home: lightgc2n experiment --unpack {results.name} --out DIR"
    _tell(state, {"results": str(results)}, told, json)


def _pace(speed: Speed) -> "Pace":
    from lightgc2n.devices import choose_device
    from lightgc2n.studies.running import Pace

    device, at_once, seconds, together = speed
    return Pace(choose_device(device), at_once, seconds, together)


def _unpack(results: Path, out: Path, json: bool) -> None:
    from lightgc2n.studies.packing import unpack
    from lightgc2n.studies.report import has_something_to_say, write

    names = unpack(results, out)
    page = write(out) if has_something_to_say(out) else None
    if json:
        print_json({"experiments": names, "report": str(page or "")})
    else:
        typer.echo(f"{', '.join(names)}: {f'written to {page}' if page else 'no run is finished yet'}")


def _tell(state: "State", told: dict[str, object], sentence: str, json: bool) -> None:
    if json:
        print_json({**told, "left": state.left, "failed": state.failed, "skipped": state.skipped})
    else:
        if state.left:
            typer.echo(f"{len(state.left)} runs are left: {', '.join(state.left)}; the same command goes on")
        typer.echo(sentence)
    if state.failed:
        raise TrainingError(
            f"{len(state.failed)} runs failed: {', '.join(state.failed)}. EXPERIMENT/logs says why; the same command "
            f"tries them again."
        )


def _needed(out: Path | None) -> Path:
    if out is None:
        raise SettingError("--out is missing: say where the results go.")
    return out


def _command(context: typer.Context) -> str:
    """What makes the same again, so that the report can tell; how fast it was made is no part of it."""
    told = context.params
    words = ["lightgc2n", "experiment", told["name"]]
    folders = [*(told["data"] or []), *(told["more"] or [])]
    words += ["--data", *map(str, folders)] if folders else []
    for option in ("protocol", "models", "seeds", "budget", "config"):
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            words += [f"--{option}", str(told[option])]
    words += [word for pair in told["set"] or [] for word in ("--set", pair)]
    words += ["--quick"] if told["quick"] else []
    words += ["--out", str(told["out"])] if told["out"] is not None else []
    return shlex.join(words)
