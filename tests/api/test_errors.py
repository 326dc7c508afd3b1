"""Errors that Python can reach speak of Python arguments; the command line spells the same options its own way."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import lightgc2n as lg
from lightgc2n.errors import FORCE, HISTORY, OUT, DataError, OutputError, option
from lightgc2n.files.atomic_writes import claim_folder
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
    claim_folder(partial, "unfinished comparison")
    (partial / "finished").mkdir()
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


def bundle_without(part: str, folder: Path) -> "lg.Bundle | lg.Run":
    trained = lg.train(data(), model="lightgc2n", epochs=1, **QUIET)
    return lg.load(trained.export(folder / "bundle", **{part: False}))


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
    "no account": Case(frame(a=[1], item=["x"]), "Name it with --account-column."),
    "one column, two roles": Case(
        lambda _: lg.Dataset.from_frame(pandas_frame(), account="item_id", item="item_id", **QUIET),
        "Name another with --account-column or --item-column.",
    ),
    "a column twice": Case(from_path("user,user,item\na,a,x\n"), "or give --columns with a name for each"),
    "a unit": Case(lambda _: lg.Dataset.from_frame(pandas_frame(), time_unit="sec", **QUIET), "--time-unit: unknown"),
    "ties": Case(lambda _: lg.Dataset.from_frame(pandas_frame(), ties="x", **QUIET), "--ties: unknown order 'x'"),
    "a delimiter": Case(from_path("user,item\na,x\n", delimiter="ab"), "--delimiter: expected one character"),
    "a format": Case(from_path("user,item\na,x\n", format="cvs"), "--format: unknown format 'cvs'"),
    "options without columns": Case(from_path("a\tx\n", format="logs", account="a"), "or give another --format."),
    "a format that is not told": Case(
        in_folder(lambda folder: lg.Dataset.from_path(folder / "mine.txt", **QUIET)), "Give it with --format, one of"
    ),
    "no dataset": Case(lambda folder: lg.Dataset.load(folder), "lightgc2n import SOURCE --out "),
    "a dataset where it is saved": Case(in_folder(lambda folder: data().save(folder)), "replace it with --force."),
    "a foreign folder, by force": Case(
        in_folder(lambda folder: data().save(folder, force=True)), "so --force does not replace it"
    ),
    "a foreign folder": Case(in_folder(lambda folder: train(out=folder)(folder)), "Choose another --out."),
    "a file": Case(lambda folder: train(out=Path(__file__))(folder), "is a file. Choose another --out."),
    "another run": Case(another_run(settings={"width": 16}), "Choose another --out, or the same settings."),
    "another start": Case(another_start, "(--from differs). Choose another --out."),
    "times": Case(lambda _: lg.compare(_timeless(), protocol="time", **QUIET), "Use --protocol last."),
    "windows": Case(windows(), "Use --protocol windows, or import the whole logs."),
    "targets of each domain": Case(two_domains, "--target-in-input: not possible with one target for each domain"),
    "no run": Case(lambda folder: lg.load(folder), "Make a run with: lightgc2n train DIR --out RUN"),
    "moved data": Case(moved_data, "Say where it is with --data DIR."),
    "other data": Case(other_data, "Give --data the dataset of the run."),
    "an unknown account": Case(lambda _: run().recommend("nobody"), "Give --history to recommend for someone new."),
    "nobody": Case(lambda _: run().recommend(), "expected an account (--account), a history (--history) or both"),
    "no length": Case(lambda _: run().recommend("user3", k=0), "k (-k) must be at least 1"),
    "one or all": Case(
        lambda _: run().recommend("user3", person="A", together=True), "one person (--person) or for all (--together)"
    ),
    "times of an account": Case(lambda _: run().people("user3", times=["2024"]), "a history that is given (--history)"),
    "a bundle without histories": Case(
        lambda folder: bundle_without("histories", folder).recommend("user3"), "holds no histories. Give --history."
    ),
    "a bundle without people": Case(
        lambda folder: bundle_without("people", folder).people("user3"), "exported with --no-people, or from data"
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
def test_errors_name_arguments_in_python_and_options_on_the_command_line(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with pytest.raises(lg.LightGC2NError) as actual:
        case.call(tmp_path)
    assert not OPTION.search(str(actual.value)), str(actual.value)
    assert case.command_line in actual.value.command_line
    assert "\ue000" not in str(actual.value)


# Errors of these are of commands that Python does not offer yet.
COMMANDS_ONLY = {"forget_run.py", "tombstones.py", "leak_audit.py", "dataset_plots.py", "write_lists.py"}
FOLDERS = ("api", "data", "files", "training", "recommending", "export", "people", "models", "baselines")
FILES = ("compare", "comparison_cache", "rank_model", "run_comparison")


def _raised_texts(path: Path) -> Iterator[str]:
    """The pieces of text in what a file raises, without those that `option` spells in both ways."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            spelled = [one for one in ast.walk(node.exc) if isinstance(one, ast.Call) and _called(one) == "option"]
            both = {id(part) for one in spelled for part in ast.walk(one)}
            parts = (part for part in ast.walk(node.exc) if isinstance(part, ast.Constant) and id(part) not in both)
            yield from (part.value for part in parts if isinstance(part.value, str))


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def test_no_error_of_the_library_spells_an_option_for_the_command_line_alone() -> None:
    package = Path(lg.__file__).parent
    files = [path for folder in FOLDERS for path in (package / folder).rglob("*.py") if path.name not in COMMANDS_ONLY]
    files += [package / "experiments" / f"{name}.py" for name in FILES] + [package / "zoo.py", package / "devices.py"]
    texts = [(path.name, text) for path in files for text in _raised_texts(path)]
    assert len(texts) > 200, "or this test sees nothing"
    assert not [(name, text) for name, text in texts if OPTION.search(text)]


def test_the_command_line_prints_its_own_spelling(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lightgc2n", "generate", "--accounts", "50", "--out", str(tmp_path)]
    (tmp_path / "mine.txt").write_text("mine")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wanted = f"error: {tmp_path} exists already. Choose another --out, or replace it with --force."
    assert (done.returncode, done.stderr.strip()) == (2, wanted)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(lg.MissingExtraError, match=r"narwhals is not installed.*pip install 'lightgc2n\[train\]'"):
        lg.Dataset.from_frame(pandas_frame(), **QUIET)


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(lg.SettingError, match=r"unknown model 'sasrek'\. Did you mean 'sasrec'\?"):
        lg.train(data(), model="sasrek", **QUIET)
