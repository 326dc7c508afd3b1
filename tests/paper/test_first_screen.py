"""The first screen by hand: scores are shares of accounts whose target ranks first, so they can be counted."""

from dataclasses import replace

import pytest

from lightgc2n.experiments.results import METRICS, RunResult
from lightgc2n.paper import published
from lightgc2n.paper.document import Opening, Scored
from lightgc2n.paper.first_screen import NAMES, SCORE, opening_of
from tests.paper.example import Key, grouped, run, standings

SIMPLE = {"markov", "recency"}
ALWAYS = "; in the paper's tables, which have no such rule, LightGC²N is first everywhere."
RULES = "Simple baselines are rules that count, some with one or two numbers fitted to validation events"


def trial(dataset: str, protocol: str = "last", **skills: float) -> dict[Key, list[RunResult]]:
    names = {name.replace("_", "-"): skill for name, skill in skills.items()}
    return {Key(dataset, protocol, name): [run(name, skill)] for name, skill in names.items()}


def opened(*tests: dict[Key, list[RunResult]], paper: bool = False) -> Opening:
    found = {key: runs for one in tests for key, runs in one.items()}
    opening = opening_of(grouped(found), SIMPLE, published.table1() if paper else None)
    assert opening is not None
    return opening


def test_a_row_by_hand() -> None:
    # Of 400 accounts 120, 240, 200 and 80 have their target first, the others at 40: beyond the first 20.
    (row,) = opened(trial("E", lightgc2n=0.3, lightgc2n_plus=0.6, markov=0.5, recency=0.2)).standings
    assert (row.test, row.how, row.place, row.methods, row.printed) == ("E", "honest", 3, 4, None)
    assert row.own == pytest.approx(30)
    assert row.simple == Scored("markov", 50.0, "simple")
    assert row.best == Scored("lightgc2n-plus", 60.0, "ours")


def test_the_best_may_be_a_simple_baseline_or_the_model() -> None:
    first, second = opened(trial("E", lightgc2n=0.3, markov=0.5), trial("V", lightgc2n=0.5, markov=0.3)).standings
    assert first.best == first.simple == Scored("markov", 50.0, "simple")
    assert second.best == Scored("LightGC²N", 50.0)


@pytest.mark.parametrize(
    ("skills", "finding"),
    [
        ([0.8, 0.7, 0.9], "In 3 of 3 tests a rule is better, in all of them by"),
        # One account of 400 more than half of them: chance.
        ([0.8, 0.5025, 0.9], "In 3 of 3 tests a rule is better, in 2 of them by"),
        ([0.8, 0.2, 0.9], "In 2 of 3 tests a rule is better, in all of them by"),
        ([0.5025, 0.5025, 0.2], "In 2 of 3 tests a rule is better, in none of"),
        ([0.8, 0.2, 0.2], "In 1 of 3 tests a rule is better, by more than chance."),
        ([0.5025, 0.2], "In 1 of 2 tests a rule is better, which may be chance."),
        ([0.2, 0.2, 0.5], "In none of 3 tests is a rule that only counts more accurate than LightGC²N."),
        ([0.8], "In the one test a rule is better, by more than chance."),
        ([0.2], "In the one test no rule that only counts is more accurate than LightGC²N."),
    ],
)
def test_the_finding_counts_tests(skills: list[float], finding: str) -> None:
    finding = finding.replace("a rule is better", "a rule that only counts is more accurate than LightGC²N")
    tests = [trial(f"E{place}", lightgc2n=0.5, markov=skill, recency=0.1) for place, skill in enumerate(skills)]
    assert opened(*tests).finding.startswith(finding)


def test_the_paper_is_named_where_its_tables_are_there_and_say_so() -> None:
    found = trial("E", lightgc2n=0.2, markov=0.8)
    assert "paper" not in opened(found).finding
    assert opened(found, paper=True).finding.endswith(f", by more than chance{ALWAYS}")
    cells = published.table1()
    for dataset, what in (("HV-E", "on 3 of 4 datasets"), ("HV-V", "on 2 of 4 datasets")):
        cells[dataset, "NCF"] = dict.fromkeys(METRICS, 99.0)
        told = opening_of(grouped(found), SIMPLE, cells)
        assert told is not None
        assert told.finding.endswith(f"LightGC²N is first {what}.")
    told = opening_of(grouped(found), SIMPLE | {"neumf"}, published.table1())  # if NCF were a simple baseline
    assert told is not None
    assert told.finding.endswith("; in the paper's tables LightGC²N is first everywhere.")


def test_without_the_model_the_best_methods_are_named() -> None:
    told = opened(trial("E", markov=0.5, hrnn=0.3), trial("V", markov=0.3, hrnn=0.5))
    assert told.finding == (
        "LightGC²N was not run. In 1 of 2 tests a rule that only counts is the most accurate of all."
    )
    assert [(row.own, row.place, row.methods) for row in told.standings] == [(None, None, 2)] * 2
    assert told.standings[1].best == Scored("hrnn", 50.0)


def test_without_simple_baselines_the_rank_of_the_model_is_given() -> None:
    told = opened(trial("E", lightgc2n=0.5, hrnn=0.3), trial("V", lightgc2n=0.3, hrnn=0.5))
    assert told.finding == "LightGC²N is first in 1 of 2 tests; no rule that only counts was run beside it."
    assert told.standings[0].simple is None
    assert "Simple baselines" not in " ".join(told.notes)


def test_tests_without_the_model_are_left_out_where_others_have_it() -> None:
    told = opened(trial("E", lightgc2n=0.5, markov=0.3), trial("both E", hrnn=0.3))
    assert [row.test for row in told.standings] == ["E"]


def test_nothing_run_says_nothing() -> None:
    assert opening_of([], SIMPLE) is None


def test_only_tests_like_the_papers() -> None:
    found = trial("E", "windows", lightgc2n=0.3, markov=0.5)
    ours, floor = (found[Key("E", "windows", name)] for name in ("lightgc2n", "markov"))
    found[Key("E", "windows", "lightgc2n")] = [replace(one, most_epochs=20) for one in ours * 3]
    found[Key("E", "windows", "hrnn")] = [replace(run("hrnn", 0.2), most_epochs=30)]
    found[Key("E", "windows", "markov")] = [replace(one, most_epochs=150) for one in floor]  # which it never trains
    told = opened(found)
    assert [row.how for row in told.standings] == ["as the paper tests"]
    assert told.notes == (
        NAMES,
        f"{RULES}: 1 of the 3 methods in the test.",
        "No honest test was run.",
        "Rows “as the paper tests” are runs of ours (1 to 3 seeds, at most 20 to 30 epochs).",
    )


def test_the_papers_number_is_shown_with_its_data() -> None:
    told = standings()
    assert told.score == SCORE
    assert [(row.test, row.printed) for row in told.standings] == [("E", None), ("V", None), ("Hvideo_E", 47.35)]
    # E 50 against 30 and Hvideo_E 80 against 40; on V the floor has 20 and LightGC²N 50.
    assert told.finding.startswith("In 2 of 3 tests a rule that only counts is more accurate than LightGC²N, in all of")
    assert told.finding.endswith(ALWAYS)
    assert told.notes == (
        NAMES,
        f"{RULES}: 1 of the 3 methods in each test. lightgc2n-plus is a model of ours, not the paper's.",
        "Rows “as the paper tests” are runs of ours (1 seed); the paper's own numbers stand beside them.",
        "Hvideo_E: A fifth.",
    )


def test_every_way_of_testing_has_its_words() -> None:
    ways = {"time": "honest, cut in time", "cold-accounts": "honest, new accounts", "strange": "strange"}
    told = opened(*(trial("E", protocol, lightgc2n=0.3, markov=0.5) for protocol in ways))
    assert {row.how for row in told.standings} == set(ways.values())


def test_tests_without_a_simple_baseline_are_counted_apart() -> None:
    told = opened(trial("E", lightgc2n=0.3, markov=0.8), trial("V", lightgc2n=0.3, hrnn=0.5))
    assert told.finding.startswith("In the one test with simple baselines a rule that only counts is more accurate")
    both = opened(*(trial(name, lightgc2n=0.3, markov=0.8) for name in "EV"), trial("M", lightgc2n=0.3))
    assert both.finding.startswith("In 2 of 2 tests with simple baselines a rule")


def test_numbers_that_are_not_shown_are_not_spoken_of() -> None:
    found = trial("E", "windows", lightgc2n=0.3, markov=0.5) | trial("Hvideo_E", "windows", hrnn=0.5)
    told = opening_of(grouped(found), SIMPLE, published.table1(), {("Hvideo_E", "windows"): "HV-E"})
    assert told is not None
    assert [row.printed for row in told.standings] == [None]
    assert not any("stand beside" in note for note in told.notes)
