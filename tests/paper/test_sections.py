"""Sections by hand: every number of a table can be redone from the ranks that the run folders hold."""

from pathlib import Path

import numpy as np
import pytest

from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.catalogue import EXPERIMENTS
from lightgc2n.paper.document import Scored, Section
from lightgc2n.paper.drawing import saved
from lightgc2n.paper.experiment_results import read_experiment_results as find
from lightgc2n.paper.palette import style_of
from lightgc2n.paper.report import opening
from tests.paper.run_folders import described, finished


def section(folder: Path) -> Section:
    return EXPERIMENTS[folder.name].section(find(folder), folder)


def column(table: Table, heading: str) -> dict[str, Cell]:
    place = table.columns.index(heading)
    return {row[0].text: row[place] for row in table.rows}


def test_table1_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["E-recency", "E-lightgc2n", "E-sasrec"])
    finished(folder, "E-recency-seed0", [4] * 40, model="recency", epochs=(), stored_numbers=77)
    finished(folder, "E-lightgc2n-seed0", [1, 2] * 20, ended_by="budget")  # MRR (1 + 1/2) / 2 = 0.75
    finished(folder, "E-lightgc2n-seed1", [1, np.inf] * 20)  # 0.5, so 0.625 over both
    (table,) = section(folder).tables
    assert table.caption.startswith("E, honest logs")
    assert {name: cell.text for name, cell in column(table, "MRR@20").items()} == {
        "recency": "25.00",
        "lightgc2n": "62.50",
    }
    assert column(table, "RC@5")["lightgc2n"].text == "75.00"
    assert column(table, "RC@5")["recency"].mark == "best"
    assert column(table, "MRR@20")["lightgc2n"].mark == "best"
    low, high = column(table, "MRR@20")["lightgc2n"].low, column(table, "MRR@20")["lightgc2n"].high
    assert low is not None
    assert high is not None
    assert 40 < low < 62.5 < high < 80  # of 40 accounts half gain 1 and half 1/4
    assert column(table, "p")["lightgc2n"].text == "best"
    chance = column(table, "p")["recency"].value
    assert chance is not None
    assert chance < 0.01  # twenty accounts differ by 3/4, twenty not at all
    assert column(table, "epochs")["lightgc2n"].text == "3‡"
    assert column(table, "parameters")["recency"].text == "77 stored"
    notes = " ".join(table.notes)
    assert "2 seeds" in notes
    assert "Cost: 10 s of training and 2 s of counting and tests on cpu (test)." in notes  # 2 * 5, 3 * 0.5
    assert "Missing: E-sasrec-seed0: not finished, 0 epochs so far" in notes
    assert "Default settings: lightgc2n." in notes
    assert table.command == "make E"
    told = opening([find(folder)])
    assert told is not None
    assert told.finding.startswith(
        "In the one test no rule that only counts is more accurate than LightGC²N; in the pa"
    )
    (row,) = told.standings
    assert (row.test, row.how, row.own, row.place, row.methods, row.printed) == ("E", "honest", 62.5, 1, 2, None)
    assert row.simple == Scored("recency", 25.0, "simple")


def test_models_with_other_targets_are_not_paired(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["both-pi-net", "both-E-sasrec"], source="both")
    finished(
        folder, "both-pi-net-seed0", [1, 5] * 8, model="pi-net", source="both", domains=("E", "V"), questions="cut"
    )
    finished(folder, "both-E-sasrec-seed0", [2] * 8, model="sasrec", source="both")
    run = (folder / "both-E-sasrec-seed0" / "run.json").read_text()
    run = run.replace('"domain": ""', '"domain": "E"').replace('"name": "both"', '"name": "both E"')
    (folder / "both-E-sasrec-seed0" / "run.json").write_text(run)
    first, second = section(folder).tables
    assert [row[0].text for row in first.rows] == ["pi-net (two domains)", "sasrec"]
    assert column(first, "MRR@20")["pi-net (two domains)"].text == "100.00"
    assert column(second, "MRR@20")["pi-net (two domains)"].text == "20.00"
    assert column(first, "p")["sasrec"].text == "-"
    both = find(folder).groups[0]
    assert (both.dataset, both.protocol, both.title) == ("both E", "last", "pi-net, two domains")
    assert both.domains == 2


def test_a_kind_of_model_has_one_colour_whatever_else_a_panel_shows(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["E-lightgc2n", "V-sasrec", "V-recency"])
    finished(folder, "E-lightgc2n-seed0", [1, 2])
    for model in ("sasrec", "lightgc2n-plus"):
        finished(folder, f"E-{model}-seed0", [1, 2], model=model)
    for model in ("sasrec", "recency"):
        finished(folder, f"V-{model}-seed0", [1, 2], model=model, source="V")
    first, second = section(folder).figures[0].panels
    assert [(line.name, line.style) for line in first.series] == [("LightGC²N", 0), ("ours", 5), ("other models", 1)]
    assert [(line.name, line.style) for line in second.series] == [
        ("other models", 1),
        ("simple baselines, which only count", 2),
    ]
    drawn = [saved([panel], "salt", "svg").decode() for panel in (first, second)]
    blue, orange, green, rose = (style_of(place)["color"] for place in (0, 1, 2, 5))
    assert [colour in drawn[0] for colour in (blue, orange, green, rose)] == [True, True, False, True]
    assert [colour in drawn[1] for colour in (blue, orange, green, rose)] == [False, True, True, False]


def test_a_kind_of_an_ablation_has_its_own_colour(tmp_path: Path) -> None:
    folder = tmp_path / "ablation"
    models = ("lightgc2n", "lightgc2n-wo-a", "lightgc2n-plus")
    described(folder, [f"E-{model}" for model in models])
    for model in models:
        finished(folder, f"E-{model}-seed0", [1, 2], model=model)
    (figure,) = section(folder).figures
    assert [(line.name, line.x, line.style) for line in figure.series] == [
        ("LightGC²N", ("lightgc2n",), 0),
        ("ours", ("lightgc2n-plus",), 5),
        ("without a part", ("lightgc2n-wo-a",), 3),
    ]


def test_the_papers_number_is_on_the_first_screen(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["Hvideo_E-lightgc2n"], source="Hvideo_E")
    windows = {"protocol": "windows"}
    finished(folder, "Hvideo_E-lightgc2n-seed0", [1, 30], source="Hvideo_E", split=windows)  # (1 + 0) / 2
    finished(folder, "Hvideo_E-markov-seed0", [1, 2], model="markov", source="Hvideo_E", split=windows, epochs=())
    told = opening([find(folder)])
    assert told is not None
    (row,) = told.standings
    assert (row.how, row.own, row.place, row.printed) == ("as the paper tests", 50.0, 2, 47.35)
    assert row.best == Scored("markov", 75.0, "simple")  # (1 + 1/2) / 2
    assert told.notes[-2].startswith("Hvideo_E: Only a fifth of the paper's data")
    assert told.notes[-1].startswith("Not run: all 9 other models of the paper (NCF, ")


@pytest.mark.parametrize(("experiment", "paper"), [("table1", "61.35"), ("ablation", "61.35")])
def test_the_papers_numbers_are_shown_beside_those_on_its_data(experiment: str, paper: str, tmp_path: Path) -> None:
    folder = tmp_path / experiment
    described(folder, ["Hvideo_E-lightgc2n"], source="Hvideo_E")
    windows = {"protocol": "windows"}
    finished(folder, "Hvideo_E-lightgc2n-seed0", [1, 30], source="Hvideo_E", split=windows, stamps=["it leaks"])
    finished(folder, "Hvideo_E-sasrec-seed0", [1, 2], model="sasrec", source="Hvideo_E", split=windows)
    finished(folder, "E-lightgc2n-seed0", [1, 30])
    published, honest = section(folder).tables
    assert column(published, "paper RC@5")["lightgc2n"].text == paper
    assert column(published, "paper RC@5")["sasrec"].text == "-"
    assert "it leaks" in published.notes
    assert "paper RC@5" not in honest.columns


def test_an_impossible_row_of_the_paper_is_marked(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["Hvideo_V-neumf"], source="Hvideo_V")
    finished(folder, "Hvideo_V-neumf-seed0", [1, 3], model="neumf", source="Hvideo_V", split={"protocol": "windows"})
    (table,) = section(folder).tables
    assert column(table, "paper RC@20")["neumf"].mark == "impossible"  # below its RC@5
    assert "RC@20 22.63 is below RC@5 27.21" in column(table, "paper RC@5")["neumf"].note
    assert column(table, "RC@20")["neumf"].mark == "best"
    assert "Arithmetic: none of the 1 entries breaks it." in table.notes


def test_efficiency_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "efficiency"
    names = ["both-pi-net-share-0.2", "both-pi-net-share-1.0"]
    described(folder, names, source="both")
    for share, seconds in ((0.2, [9.0, 2.0, 3.0]), (1.0, [9.0, 7.0, 6.0])):  # the quickest take 2 and 6
        finished(
            folder,
            f"both-pi-net-share-{share}-seed0",
            [1, 2],
            model="pi-net",
            source="both",
            domains=("E", "V"),
            split={"training_share": share},
            epochs=seconds,
        )
    found = section(folder)
    table = found.tables[0]
    assert [cell.text for cell in table.rows[0]] == [
        "pi-net (two domains)",
        "1,000",
        "2",
        "500",
        "2",
        "6",
        "3.0",
        "300",
    ]
    assert any("5.0 is linear" in note for note in table.notes)
    time = found.figures[0].panels[0].series[0]
    assert (time.x, time.y) == ((0.2, 1.0), (2.0, 6.0))


@pytest.mark.parametrize(
    ("experiment", "symbol", "setting"), [("hyperparameters", "beta", "temperature"), ("layers", "L", "layers")]
)
def test_a_sweep_by_hand(experiment: str, symbol: str, setting: str, tmp_path: Path) -> None:
    folder = tmp_path / experiment
    described(folder, [f"E-{symbol}-{value}" for value in (1, 2, 10)])
    for value, rank in ((1, 4), (2, 1), (10, 2)):
        finished(folder, f"E-{symbol}-{value}-seed0", [rank] * 4, parameters=value, settings={setting: value})
    found = section(folder)
    plots = found.figures[0].panels or found.figures
    line = next(series for series in plots[0].series if series.name == "MRR@20")
    assert (line.x, line.y) == ((1, 2, 10), (25, 100, 50))
    assert "MRR@20 is best at 2 with 100.00 %, least at 1 with 25.00 %." in found.text[-1]
    assert len(plots) == (3 if symbol == "L" else 1)


def test_the_ladder_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "leak"
    described(folder, ["W-markov-windows"], source="W", beside="E")
    described(folder, ["E-markov"])
    described(folder, ["Z-markov-windows"], source="Z")
    splits = {
        "target-in-input": {"protocol": "windows", "target_in_input": True},
        "windows": {"protocol": "windows"},
        "windows-without-copies": {"protocol": "windows", "copies": False},
    }
    for rank, (step, split) in enumerate(splits.items(), start=1):
        finished(folder, f"W-markov-{step}-seed0", [rank] * 4, model="markov", source="W", split=split)
    finished(folder, "E-markov-seed0", [5] * 4, model="markov")
    finished(folder, "Z-markov-windows-seed0", [1] * 4, model="markov", source="Z", split=splits["windows"])
    found = section(folder)
    ladder, alone = found.tables
    assert [cell.text for cell in ladder.rows[0]][1:] == [
        "100.00", "100.00", "100.00", "50.00", "100.00", "33.33", "100.00", "20.00"
    ]  # fmt: skip
    assert ladder.caption == "W, and the logs E, in %"
    assert [cell.mark for cell in alone.rows[0]] == ["", *["missing"] * 2, *["best"] * 2, *["missing"] * 4]
    (figure,) = found.figures
    assert [round(value) for value in figure.panels[0].series[0].y] == [100, 50, 33, 20]


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    described(folder, ["E-lightgc2n", "E-tgsrec"])
    finished(folder, "E-lightgc2n-seed0", [1, 2])
    (folder / "logs").mkdir()
    (folder / "logs" / "E-tgsrec-seed0.txt").write_text("epoch 1\nerror: the loss is nan.\n")
    (table,) = section(folder).tables
    assert "Missing: E-tgsrec-seed0: the loss is nan." in table.notes
