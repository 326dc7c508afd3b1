"""Errors that Python can reach speak of Python arguments; the command line spells the same options its own way."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import lightgc2n as lg
from lightgc2n.errors import FORCE, HISTORY, OUT, DataError, OutputError, option
from tests.api.world import COLUMNS, data, pandas_frame, run

OPTION = re.compile(r"(^|[\s(`'])--?[a-z]")
QUIET = {"progress": False}


def test_a_message_has_three_spellings() -> None:
    problem = OutputError(f"x--out: taken. Choose another {OUT}, replace it with {FORCE}, or give {HISTORY}.")
    assert str(problem) == "x--out: taken. Choose another out=, replace it with force=True, or give history=."
    assert problem.command_line == "x--out: taken. Choose another --out, replace it with --force, or give --history."
    assert problem.service == "x--out: taken. Choose another out, replace it with force=True, or give history."
    assert problem.args == (str(problem),)


@pytest.mark.parametrize("text", ["\ue000", "\ue000a\ue002", "a\ue001b", "--force", "\ue000a\ue000b\ue001c"])
def test_other_text_stays_as_it_is(text: str) -> None:
    problem = DataError(f"{text}: {option('--x', 'x=')}")
    assert (str(problem), problem.command_line) == (f"{text}: x=", f"{text}: --x")


@dataclass(frozen=True)
class Case:
    """A call that fails, and what the command line says of it; the rest of the message is the same in Python."""

    call: Callable[[Path], object]
    command_line: str


def frame(**columns: Any) -> Callable[[Path], object]:
    return lambda _: lg.Dataset.from_frame(pd.DataFrame(columns), **QUIET)


def from_path(text: str, **options: Any) -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        (folder / "log.csv").write_text(text)
        return lg.Dataset.from_path(folder / "log.csv", **options, **QUIET)

    return call


def train(**options: Any) -> Callable[[Path], object]:
    given = {"model": "sasrec", "epochs": 1, "settings": {"width": 8}} | options
    return lambda _: lg.train(data(), **given, **QUIET)


def in_folder(call: Callable[[Path], object], name: str = "mine.txt") -> Callable[[Path], object]:
    """The call with a folder that holds a file of somebody else."""

    def make(folder: Path) -> object:
        (folder / "taken").mkdir()
        (folder / "taken" / name).write_text("mine")
        return call(folder / "taken")

    return make


def another_run(**options: Any) -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        train(out=folder / "run")(folder)
        return train(out=folder / "run", **options)(folder)

    return call


def another_start(folder: Path) -> object:
    train(out=folder / "first")(folder)
    train(out=folder / "run")(folder)
    return train(out=folder / "run", from_run=folder / "first")(folder)


def another_comparison(folder: Path) -> object:
    """An unfinished comparison of another model stands in the place of its folder."""
    partial = folder / "out.partial"
    (partial / "finished").mkdir(parents=True)
    (partial / "finished" / "markov.json").write_text("{}")
    return lg.compare(data(), models=["popularity"], out=folder / "out", **QUIET)


def moved_data(folder: Path) -> object:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, **QUIET).save(folder / "data")
    lg.train(made, model="sasrec", epochs=1, settings={"width": 8}, out=folder / "run", **QUIET)
    shutil.move(folder / "data", folder / "moved")
    return lg.load(folder / "run")


def other_data(folder: Path) -> object:
    train(out=folder / "run")(folder)
    lg.Dataset.from_frame(pandas_frame().head(100), **COLUMNS, **QUIET).save(folder / "other")
    return lg.load(folder / "run", data=folder / "other")


@cache
def bundle_without(*parts: str) -> lg.Bundle:
    folder = run().folder.parent.with_name(f"{run().folder.parent.name}-{'-'.join(parts)}")
    try:
        run().export(folder, **dict.fromkeys(parts, False))
        found = lg.load(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert isinstance(found, lg.Bundle)
    return found


def damaged_bundle(folder: Path) -> object:
    run().export(folder / "bundle")
    (folder / "bundle" / "items.txt").write_text("x\n")
    return lg.load(folder / "bundle")


def windows(**options: Any) -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        lines = [f"u{user}\ti{user}\ti{user + 1}\ti{user + 2}\t\n" for user in range(9)]
        (folder / "test_data.txt").write_text("".join(lines))
        made = lg.Dataset.from_path(folder / "test_data.txt", format="windows", **QUIET)
        return lg.compare(made, models=["popularity"], **options, **QUIET)

    return call


def two_domains(folder: Path) -> object:
    table = pl.DataFrame({"user": ["a", "a", "a"], "item": ["x", "y", "z"], "domain": ["v", "w", "v"]})
    made = lg.Dataset.from_frame(table, **QUIET)
    return lg.compare(made, models=["popularity"], split={"ask": "each-domain", "target_in_input": True}, **QUIET)


CASES = {
    "a missing value": Case(frame(user=["a", None], item=["x", "y"]), "or import with --skip-bad, which drops"),
    "an unknown column": Case(lambda _: lg.Dataset.from_frame(pandas_frame(), item="thing", **QUIET), "--item-column"),
    "no account": Case(frame(a=[1], item=["x"]), "Name it with --account-column, or give --columns if"),
    "one column, two roles": Case(
        lambda _: lg.Dataset.from_frame(pandas_frame(), account="item_id", item="item_id", **QUIET),
        "Name another with --account-column or --item-column.",
    ),
    "a column twice": Case(from_path("user,user,item\na,a,x\n"), "or give --columns with a name for each"),
    "a unit": Case(lambda _: lg.Dataset.from_frame(pandas_frame(), time_unit="sec", **QUIET), "--time-unit: unknown"),
    "ties": Case(lambda _: lg.Dataset.from_frame(pandas_frame(), ties="x", **QUIET), "--ties: unknown order 'x'"),
    "a delimiter": Case(from_path("user,item\na,x\n", delimiter="ab"), "--delimiter: expected one character"),
    "a format": Case(from_path("user,item\na,x\n", format="cvs"), "--format: unknown format 'cvs'"),
    "options without columns": Case(from_path("a\tx\n", format="logs", account="a"), "or name a --format."),
    "a format that is not told": Case(
        in_folder(lambda folder: lg.Dataset.from_path(folder / "mine.txt", **QUIET)), "Name it with --format, one of"
    ),
    "no dataset": Case(lambda folder: lg.Dataset.load(folder), "lightgc2n import SOURCE --out "),
    "a dataset where it is saved": Case(in_folder(lambda folder: data().save(folder)), "replace it with --force."),
    "a foreign folder, by force": Case(
        in_folder(lambda folder: data().save(folder, force=True)), "so --force leaves it alone"
    ),
    "a foreign folder": Case(in_folder(lambda folder: train(out=folder)(folder)), "Choose another --out."),
    "a file": Case(lambda folder: train(out=Path(__file__))(folder), "is a file. Choose another --out."),
    "another run": Case(another_run(settings={"width": 16}), "Choose another --out, or the same settings."),
    "another start": Case(another_start, "(--from differs). Choose another --out."),
    "a simple baseline": Case(train(model="markov", settings={}), "it needs no training. Use lightgc2n compare."),
    "times": Case(lambda _: lg.compare(_timeless(), protocol="time", **QUIET), "Use --protocol last."),
    "windows": Case(windows(), "Use --protocol windows, or import the whole logs."),
    "targets of each domain": Case(two_domains, "--target-in-input: with a target for each domain"),
    "no run": Case(lambda folder: lg.load(folder), "Make one with: lightgc2n train DIR --out RUN"),
    "moved data": Case(moved_data, "Say where it is with --data DIR."),
    "other data": Case(other_data, "Give --data the dataset of the run."),
    "an unknown account": Case(lambda _: run().recommend("nobody"), "Give --history to recommend for someone new."),
    "nobody": Case(lambda _: run().recommend(), "Give an account (--account), a history (--history) or both."),
    "no length": Case(lambda _: run().recommend("user3", k=0), "k (-k) must be at least 1"),
    "one or all": Case(
        lambda _: run().recommend("user3", person="A", together=True), "one person (--person) or for all (--together)"
    ),
    "times of an account": Case(lambda _: run().people("user3", times=["2024"]), "a history that is given (--history)"),
    "a bundle without histories": Case(lambda _: bundle_without("histories").recommend("user3"), "Give --history."),
    "a bundle without people": Case(
        lambda _: bundle_without("people").people("user3"), "exported with --no-people, or from data"
    ),
    "a damaged bundle": Case(damaged_bundle, "Make it again with: lightgc2n export RUN --out BUNDLE."),
    "a comparison where it is written": Case(
        in_folder(lambda folder: lg.compare(data(), out=folder, **QUIET)), "replace it with --force."
    ),
    "another comparison": Case(another_comparison, "it is not one of --models now. Choose another --out, or start it"),
    "cutoffs": Case(lambda _: lg.compare(data(), cutoffs=[0], **QUIET), "--cutoffs: expected whole numbers from 1"),
}  # fmt: skip


def _timeless() -> lg.Dataset:
    return lg.Dataset.from_frame(pandas_frame().drop(columns="timestamp"), **QUIET)


@pytest.mark.parametrize("name", CASES)
def test_python_speaks_of_arguments_and_the_command_of_options(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with pytest.raises(lg.LightGC2NError) as found:
        case.call(tmp_path)
    assert not OPTION.search(str(found.value)), str(found.value)
    assert case.command_line in found.value.command_line
    assert "\ue000" not in str(found.value)


def test_the_command_line_prints_its_own_spelling(tmp_path: Path) -> None:
    import subprocess
    import sys

    words = [sys.executable, "-m", "lightgc2n", "generate", "--accounts", "50", "--out", str(tmp_path)]
    (tmp_path / "mine.txt").write_text("mine")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wanted = f"error: {tmp_path} exists already. Choose another --out, or replace it with --force."
    assert (done.returncode, done.stderr.strip()) == (2, wanted)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(lg.MissingExtraError, match=r"narwhals is not installed.*pip install 'lightgc2n\[train\]'"):
        lg.Dataset.from_frame(pandas_frame(), **QUIET)


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(lg.SettingError, match=r"unknown model 'sasrek'\. Did you mean 'sasrec'\?"):
        lg.train(data(), model="sasrek", **QUIET)
