"""What a newcomer sees: help in groups, the list of models, advice that fits, tables that fit the terminal."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.table import Column, Table
from typer.testing import CliRunner

from lightgc2n import zoo
from lightgc2n.cli import COMMANDS, GROUPS
from lightgc2n.cli.main import _type_name, app
from lightgc2n.cli.people import _people_table
from lightgc2n.cli.printing import print_table
from lightgc2n.config import unknown_name
from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.recommending.results import Activity, Like, Person, Recommendations


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)


@pytest.mark.parametrize("command", [[], ["compare"], ["import"]])
def test_help_shows_groups_and_no_type_of_flags(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    assert "bool" not in text
    assert "--help" in text
    assert max(map(len, text.splitlines())) <= 80
    if not command:
        assert all(f"{group} " in text for group in GROUPS)
        assert "--install-completion" in text


def test_help_names_what_an_option_takes() -> None:
    """`--seed N` and `--model NAME`, no types of Python and no range that fills a column."""
    for command in COMMANDS:
        text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
        assert not any(kind in text for kind in ("<str>", "<int", "<float", "<path>", "4294967295")), command
    words = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output.split()
    assert words[words.index("--seed") + 1] == "N"
    assert words[words.index("--model") + 1] == "NAME"
    refused = CliRunner().invoke(app, ["train", "data", "--out", "run", "--seed", "-1"])
    assert refused.exit_code == 2


def test_models_are_listed_with_a_line_each() -> None:
    text = CliRunner().invoke(app, ["models"]).output
    for name in zoo.ZOO:
        assert zoo.about(name)
        assert (name in text.split()) == ("-wo-" not in name)


def test_of_many_names_the_nearest_three_are_shown() -> None:
    with pytest.raises(SettingError) as caught:
        zoo.entry_of("lightgcn2")
    assert "Did you mean 'lightgcn'? Nearest: lightgcn, lightgc2n, " in str(caught.value)
    assert str(caught.value).count(",") == 2
    assert unknown_name("way", "x", "ab") == "unknown way 'x'. Known: a, b."


def test_advice_never_writes_over_what_is_there(tmp_path: Path) -> None:
    log, run, empty = tmp_path / "log.csv", tmp_path / "run", tmp_path / "empty"
    log.write_text("user,item\n")
    for folder in (run, empty):
        folder.mkdir()
    (run / "run.json").write_text("{}")
    for place, advice in (
        (log, f"It is a file; import it to a new folder: lightgc2n import {log} --out log"),
        (run, "It is a run;"),
        (empty, "Make one with: lightgc2n import SOURCE --out DIR"),
        (tmp_path / "new", f"Make one with: lightgc2n import SOURCE --out {tmp_path / 'new'}"),
    ):
        with pytest.raises(DataError) as caught:
            load_dataset(place)
        assert advice in caught.value.command_line


@pytest.mark.parametrize("width", [80, 120])
def test_a_wide_table_is_printed_in_parts_that_fit(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    table = Table("model")
    for column in range(14):
        table.add_column(f"measure {column}", justify="right")
    table.add_row("markov-recency", *(f"{column}.25" for column in range(14)))
    print_table(table)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert all(f"{column}.25" in text.replace("│", " ").split() for column in range(14))  # whole numbers
    assert text.count("markov-recency") == text.count("┏") > 1


def test_hours_of_a_person_are_one_line_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    active = Activity(weekdays=(1.0, *[0.0] * 6), months=(), hours=(*[0.0] * 20, 0.5, 0.5, 0.0, 0.0))
    likes = (Like("film", 2, 9.0),)
    person = Person("A", 2, 1.0, likes, active, Recommendations(None, (), False, ()), (), "evenings")
    print_table(_people_table([person], lambda item: f"{item}, a film with a title that is longer than its column"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("0h" in line and "24h" in line for line in lines) == 1
    assert sum("Mo" in line and "Su" in line for line in lines) == 1


def test_only_headers_of_numbers_wrap(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Five columns of 22 and the name are too wide for 80, but fit once the headers take three lines."""
    monkeypatch.setenv("COLUMNS", "80")
    headers = [f"[bold] history {number}0-49 queries [/]" for number in range(5)]
    table = Table("model", *[Column(header, justify="right") for header in headers])
    table.add_row("markov", *["12.34 to 56"] * 5)
    print_table(table)
    text = capsys.readouterr().out
    assert (text.count("┏"), text.count("12.34 to 56")) == (1, 5)


@pytest.mark.parametrize(("name", "shown"), [("choice", "choice"), ("integer range", "int"), ("float", "float")])
def test_types_of_older_versions_of_typer_are_named_alike(name: str, shown: str) -> None:
    """Up to 0.27 an option has a type of Click, and no descriptor."""
    assert _type_name(SimpleNamespace(type=SimpleNamespace(name=name))) == shown
