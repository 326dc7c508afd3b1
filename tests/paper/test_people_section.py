"""What identify found becomes part of the report."""

import json
from pathlib import Path

import pytest

from lightgc2n.errors import DataError
from lightgc2n.paper.claims import Agreement
from lightgc2n.paper.people_section import agreements, identified, section


def measured(value: float) -> dict[str, object]:
    bounds = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return {"measures": {name: {"accounts": bounds} for name in ("shared ARI", "accuracy", "least served")}}


def put(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(text)


def test_latent_users_are_held_against_people(tmp_path: Path) -> None:
    rows = {"lightgc2n-ownership": measured(0.25), "contrast": measured(0.5)}
    put(tmp_path / "people" / "town", json.dumps({"dataset": {"name": "town"}, "tables": {"given": rows}}))
    put(
        tmp_path / "people" / "floors",
        json.dumps({"dataset": {"name": "w"}, "tables": {"given": {"k": measured(0.1)}}}),
    )
    found = identified(tmp_path)
    assert agreements(found) == [Agreement("town", 0.25, 0.15, 0.35)]
    floors, town = section(found).tables
    assert [row[0].text for row in town.rows] == ["lightgc2n-ownership", "contrast"]
    assert [row[1].text for row in town.rows] == ["0.250", "0.500"]
    assert [row[1].mark for row in town.rows] == ["", "best"]
    assert floors.name == "people-w"


def test_other_results_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "people" / "town", "{}")
    with pytest.raises(DataError, match="not the results of lightgc2n identify"):
        identified(tmp_path)
