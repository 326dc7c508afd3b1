"""`lightgc2n pipeline`: renew the served model from the event store, or return to an earlier one."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json
from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.pipeline.settings import PipelineSettings


class Action(StrEnum):
    init = "init"
    run = "run"
    status = "status"
    rollback = "rollback"
    forget = "forget"


def pipeline(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="init, run, status, rollback or forget.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The settings of the pipeline, a TOML file.")],
    store: Annotated[str, typer.Option(help="init: the event store that the file names.")] = "events.db",
    to: Annotated[int | None, typer.Option("--to", metavar="ROUND", help="rollback: the round to return to.")] = None,
    json: Json = False,
) -> None:
    """Renew the model that a service follows: snapshot, challenger, judgement, export, swap of the link.

    run completes one round, or the round that was interrupted. rollback makes an earlier bundle live at once. forget
    removes accounts that were erased from the store from all bundles, runs and datasets that are kept; run does so too.
    """
    from lightgc2n.pipeline.settings import read_pipeline, write_template

    if to is not None and action is not Action.rollback:
        raise SettingError(f"--to is for pipeline rollback, not for pipeline {action.value}.")
    if action is Action.init:
        write_template(file, store)
        _print({"written": str(file)}, f"written to {file}; edit it, then: lightgc2n pipeline run {file}", json)
        return
    _ACTIONS[action](read_pipeline(file), to, json)


def _run(settings: "PipelineSettings", _to: int | None, json: bool) -> None:
    from dataclasses import asdict

    from lightgc2n.pipeline.run_pipeline import run_round

    outcome = run_round(settings)
    what = "promoted" if outcome.promoted else "the live model stays"
    _print(asdict(outcome), f"round {outcome.round}: {what}: {outcome.reason}", json)


def _rollback(settings: "PipelineSettings", to: int | None, json: bool) -> None:
    from lightgc2n.pipeline.run_pipeline import roll_back

    number = roll_back(settings, to)
    _print({"live": number}, f"round {number} is live again", json)


def _forget(settings: "PipelineSettings", _to: int | None, json: bool) -> None:
    from lightgc2n.pipeline.run_pipeline import forget_erased

    gone = forget_erased(settings)
    _print({"forgotten": gone}, f"{gone:,} erased accounts removed", json)


def _status(settings: "PipelineSettings", _to: int | None, json: bool) -> None:
    from lightgc2n.pipeline.run_pipeline import state

    facts = state(settings)
    if json:
        print_json(facts)
        return
    typer.echo(f"live: {'none yet' if facts['live'] is None else 'round ' + str(facts['live'])}")
    typer.echo(f"kept bundles: {', '.join(map(str, facts['kept'])) or 'none'}")
    if facts["unfinished"]:
        done = ", ".join(facts["unfinished"]["done"]) or "nothing"
        typer.echo(f"unfinished: round {facts['unfinished']['round']}, done: {done}; pipeline run resumes it")
    for entry in facts["history"][-10:]:
        typer.echo(
            f"{entry['at'][:16].replace('T', ' ')} UTC  round {entry['round']}  {entry['kind']}: {entry['reason']}"
        )
    typer.echo(f"log: {facts['folder']}/pipeline.log")


def _print(facts: dict[str, Any], sentence: str, json: bool) -> None:
    if json:
        print_json(facts)
    else:
        typer.echo(sentence)


_ACTIONS = {Action.run: _run, Action.rollback: _rollback, Action.forget: _forget, Action.status: _status}
