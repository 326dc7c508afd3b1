"""What the page makes of answers, by hand: who keeps a letter, what moved, what a number means in words."""

from typing import Any

from tests.serving.page.seeing import BROWSER

pytestmark = BROWSER

LETTERS = """async ([before, after]) => {
  const { lettersFor } = await import('/page/history.js');
  const events = text => new Map([...text].map((person, place) => [`e${place}`, { person }]).filter(([, one]) => one.person !== '-'));
  const people = [...new Set(after.replaceAll('-', ''))].sort().map(name => ({ name }));
  return Object.fromEntries(lettersFor(events(before), events(after), people));
}"""  # noqa: E501
MOVES = """async ([before, after]) => {
  const { moves } = await import('/page/history.js');
  const list = text => ({ items: [...text].map((item, place) => ({ item, rank: place + 1 })) });
  const { moved, gone } = moves(list(before), list(after));
  return [Object.fromEntries(moved), gone.map(one => one.item).join('')];
}"""
ADDED = """async (times) => {
  const { withAdded } = await import('/page/history.js');
  let entries = times.map((time, place) => ({ key: `e${place}`, item: 'x', time, session: place, added: false }));
  for (const item of ['y', 'z']) entries = withAdded(entries, { item }, true, Date.UTC(2024, 0, 1, 20));
  return entries.slice(times.length).map(one => one.time);
}"""
WORDS = """async ([name, ...given]) => (await import('/page/words.js'))[name](...given)"""


def test_people_keep_their_letters_when_others_go(visit: Any) -> None:
    page = visit()
    assert page.evaluate(LETTERS, ["AABBCC", "AA--BB"]) == {"A": "A", "B": "C"}, "B is gone, and C is C still"
    assert page.evaluate(LETTERS, ["AAABB", "BBBAA"]) == {"A": "B", "B": "A"}
    assert page.evaluate(LETTERS, ["AABB", "AABC"]) == {"A": "A", "B": "B", "C": "C"}, "a newcomer's letter is new"
    assert page.evaluate(LETTERS, ["AAAABB", "AABB--"]) == {"A": "A", "B": "C"}, "who was split off is not B"


def test_moves_by_hand(visit: Any) -> None:
    page = visit()
    assert page.evaluate(MOVES, ["abc", "abc"]) == [{}, ""]
    assert page.evaluate(MOVES, ["abc", "cad"]) == [{"c": 2, "a": -1, "d": "new"}, "b"]


def test_what_is_added_is_a_session_a_day_later(visit: Any) -> None:
    page = visit()
    assert page.evaluate(ADDED, ["2024-02-28 23:50"]) == ["2024-02-29 23:50", "2024-02-29 23:55"]
    assert page.evaluate(ADDED, ["2024-12-31"]) == ["2025-01-01", "2025-01-01"], "whole days stay whole days"
    assert page.evaluate(ADDED, []) == ["2024-01-01 20:00", "2024-01-01 20:05"]


def test_how_sure_in_words(visit: Any) -> None:
    page = visit()
    sure = {"count": 2, "confidence": 0.9, "chances": [0.1, 0.9, 0, 0, 0]}
    assert page.evaluate(WORDS, ["sureness", sure]) == (
        "The model is very sure of that: it gives two people a chance of 90\xa0%."
    )
    cautious = {"count": 1, "confidence": 0.31, "chances": [0.31, 0.52, 0.17, 0, 0]}
    assert page.evaluate(WORDS, ["sureness", cautious]) == (
        "The model is uncertain: it gives one person a chance of 31\xa0% and two people 52\xa0%, "
        "and tells people apart only where the evidence is clear."
    )


def test_examples_in_words(visit: Any) -> None:
    page = visit()
    for count, confidence, words in ((3, 0.7, "Three people, quite sure"), (1, 0.4, "One person, uncertain")):
        assert page.evaluate(WORDS, ["exampleOf", {"count": count, "confidence": confidence}]) == words


def test_repeated_items_in_a_sentence(visit: Any) -> None:
    person = {"likes": [{"item": "v1", "title": "Law 5", "events": 4}, {"item": "v2", "events": 2}]}
    assert visit().evaluate(WORDS, ["cameBackTo", person]) == "Came back to “Law 5” (4 times) and v2 (2 times)."


def test_a_share_is_not_rounded_to_nothing_or_to_all(visit: Any) -> None:
    page = visit()
    for share, words in ((0.003, "under 1\xa0%"), (0.5, "50\xa0%"), (0.997, "over 99\xa0%"), (1, "100\xa0%")):
        assert page.evaluate(WORDS, ["shareOf", {"share": share}]) == f"{words} of the account"
