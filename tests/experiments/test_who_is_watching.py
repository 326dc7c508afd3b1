"""Scoring who is watching: questions see nothing of their session, found people are matched by earlier events alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.members import load_members
from lightgc2n.experiments.who_is_watching import (
    SessionQuery,
    last_stays,
    loss,
    of_true_people,
    shares_so_far,
    true_people_of,
)
from lightgc2n.people.who_is_watching import Past
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import run


def question(acted: list[int]) -> SessionQuery:
    """Four sessions; found people 0 and 1 have three and one, the true people 0 and 1 two each."""
    past = Past(np.zeros(4, dtype=np.int32), np.arange(4), np.eye(2)[[0, 0, 0, 1]], np.arange(4))
    true = np.eye(2)[[0, 0, 1, 1]]
    return SessionQuery(0, past, true, 9, np.zeros(1, dtype=np.int32), np.array(acted), np.eye(1, dtype=np.float32))


def test_references_by_hand() -> None:
    one = question([1])
    np.testing.assert_allclose(shares_so_far(one.past), [3.5 / 5, 1.5 / 5])
    np.testing.assert_allclose(last_stays(one.past, 0.5), [0.5 * 3.5 / 5, 0.5 + 0.5 * 1.5 / 5])
    np.testing.assert_allclose(shares_so_far(of_true_people(one)), [0.5, 0.5])


def test_people_are_matched_by_hand() -> None:
    """Found 0 shares two events with true 0 and one with true 1; a pseudo event is half each one's."""
    np.testing.assert_allclose(true_people_of(question([1]), "shared", 0.0), [[2.5 / 4, 1.5 / 4], [0.25, 0.75]])
    np.testing.assert_allclose(true_people_of(question([1]), "one to one", 0.2), [[0.9, 0.1], [0.1, 0.9]])


def test_loss_by_hand() -> None:
    chances = np.array([0.8, 0.2])
    assert loss(chances, question([1]), 0) == pytest.approx(-np.log(0.999 * 0.2 + 0.0005))
    assert loss(chances, question([1]), 1) == loss(chances, question([1]), 0)
    assert np.isnan(loss(chances, question([-1]), 0))
    assert np.isnan(loss(chances, question([1]), 2))


def test_the_command(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=120, devices=3, largest_household=3), seed=0, out=tmp_path / "town")
    done = run("identify", tmp_path / "town", "--who", "--accounts", "test", "--out", tmp_path / "who.json")
    assert done.returncode == 0, done.stderr
    assert "who is watching" in done.stdout
    result = json.loads((tmp_path / "who.json").read_text(encoding="utf-8"))
    assert result["context"] == "device"
    rows = result["tables"]["shared"]
    methods = ("shares so far", "last stays", "who", "who, with context")
    assert list(rows) == [f"{whose}: {name}" for whose in ("found", "known") for name in methods]
    first, after = (rows["known: who"]["steps"][place]["log loss"]["value"] for place in (0, 1))
    assert after < first < rows["known: shares so far"]["steps"][0]["log loss"]["value"]
    assert set(rows["found: who"]["steps"][0]["below"]) == {
        f"{whose}: {name}" for whose in ("found", "known") for name in methods[:2]
    }
    assert load_dataset(tmp_path / "town").contexts is not None
    assert load_members(tmp_path / "town") is not None


def test_options_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=60), seed=0, out=tmp_path / "town")
    done = run("identify", tmp_path / "town", "--who", "--gap", 2)
    assert (done.returncode, "omit --methods, --run, --gap" in done.stderr) == (2, True)
    done = run("identify", tmp_path / "town", "--who", "--out", tmp_path / "who")
    assert (done.returncode, "one file that ends in .json" in done.stderr) == (2, True)
