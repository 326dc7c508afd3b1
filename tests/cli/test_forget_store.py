"""`forget --store` erases accounts from a store, and reports a store that it could not reach."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from lightgc2n.cli.main import app
from lightgc2n.store.event_store import NewEvent, Outcome, create_store, open_store


def forget(*words: str) -> Result:
    return CliRunner().invoke(app, ["forget", *words])


def store_with(path: Path, *accounts: str) -> str:
    store = create_store(str(path))
    store.append([NewEvent(account, "film", 1) for account in accounts])
    store.close()
    return str(path)


def test_accounts_are_erased_from_every_store(tmp_path: Path) -> None:
    one, two = store_with(tmp_path / "one.db", "ann", "bo"), store_with(tmp_path / "two.db", "cy")
    result = forget("ann", "--store", one, "--store", two, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report[one]["forgotten"], report[two]["forgotten"]) == (1, 0)
    assert any("lightgc2n pipeline forget FILE" in what for what in report[one]["stays"])
    for place in (one, two):  # a late event does not bring the account back, wherever it arrives
        store = open_store(place)
        assert store.append([NewEvent("ann", "film", 2)]) == [Outcome.ERASED]
        store.close()


def test_an_unknown_account_is_an_error_and_stays_unknown(tmp_path: Path) -> None:
    place = store_with(tmp_path / "one.db", "ann")
    result = forget("amn", "--store", place)
    assert result.exit_code != 0
    assert "no account 'amn'" in str(result.exception)
    store = open_store(place)
    assert store.append([NewEvent("amn", "film", 2)]) == [Outcome.STORED]
    store.close()


def test_a_store_that_does_not_answer_is_reported_and_the_others_are_changed(tmp_path: Path) -> None:
    place, down = store_with(tmp_path / "one.db", "ann"), "postgresql://nobody@127.0.0.1:1/none"
    result = forget("ann", "--store", place, "--store", down)
    assert getattr(result.exception, "exit_code", None) == 1
    assert "not reached: postgresql://nobody@127.0.0.1:1/none" in str(result.exception)
    store = open_store(place)
    assert store.is_erased("ann")
    store.close()
