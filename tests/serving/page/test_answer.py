"""The first screens: the population, and an account of one, three and five people as they are laid out."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.serving.page.seeing import BROWSER, Api, K, crowd, lists, watching

pytestmark = BROWSER

Opened = Callable[..., Any]


@pytest.fixture
def opened(visit: Opened) -> Opened:
    """Opens an account with so many people, whose answer is made up."""

    def open_crowd(count: int, **how: Any) -> Any:
        page = visit("/", **how)
        page.route("**/v1/accounts/crowd/people**", lambda route: route.fulfill(json=crowd(count)))
        page.route("**/v1/who", lambda route: route.fulfill(json=watching(count)))
        page.evaluate("location.hash = '#account/crowd'")
        page.wait_for_selector(".list")
        return page

    return open_crowd


def boxes(page: Any, selector: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = [one.bounding_box() for one in page.locator(selector).all() if one.is_visible()]
    return found


def test_the_population_and_clear_examples_come_first(visit: Opened, api: Api) -> None:
    page, summary = visit(), api.get("/v1/population")
    page.wait_for_selector(".chips button")
    assert sum(summary["counts"]) == summary["accounts"] == 150
    shares = [f"{100 * count / 150:.0f}\xa0%" for count in summary["counts"]]
    assert page.locator(".population .number").all_inner_texts() == shares
    example = summary["examples"][0]
    chip = page.locator(f".chips [data-account='{example['account']}']")
    words = {1: "One person", 2: "Two people", 3: "Three people", 4: "Four people", 5: "Five people"}
    assert chip.inner_text().startswith(words[example["count"]])
    chip.click()
    page.wait_for_selector(".list")
    assert page.locator("h1:visible").inner_text().startswith(words[example["count"]])


def test_one_person_has_one_list(opened: Opened) -> None:
    page = opened(1)
    assert list(lists(page)) == ["A"]
    assert page.locator(".list:visible").count() == 1
    assert page.locator(".best").count() == 0, "the list stands beside the card, and not twice"
    assert page.locator("#people-heading").inner_text() == "Who it is, and what to show next"


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_nothing_is_cut_off(opened: Opened, count: int, width: int) -> None:
    page = opened(count, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert list(lists(page)) == [*"ABCDE"[:count], "together", "account"]
    for selector in (".person", ".list"):
        shown = boxes(page, selector)
        assert len(shown) == count + 2
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in shown)
    clipped = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
    assert page.locator(".best .name, .list .name, .portrait").evaluate_all(clipped) == []


def test_the_best_five_of_everybody_are_on_the_first_screen(opened: Opened) -> None:
    page = opened(5, viewport={"width": 1440, "height": 900})
    assert [one.locator("li").count() for one in page.locator(".best").all()] == [5] * 7
    bottoms = [box["y"] + box["height"] for box in boxes(page, ".best")]
    assert max(bottoms) <= 900


def test_weekday_letters_do_not_collide(opened: Opened) -> None:
    page = opened(5, viewport={"width": 1440, "height": 900})
    for strip in page.locator(".strip:not(.clock)").all():
        letters = strip.locator(".slot span").evaluate_all(
            """all => all.map(one => { const range = document.createRange(); range.selectNodeContents(one);
               const box = range.getBoundingClientRect(); return [box.left, box.right]; })"""
        )
        assert len(letters) == 7
        assert all(one[1] < other[0] for one, other in pairwise(letters))


def test_the_sign_for_had_before_means_that_person(opened: Opened) -> None:
    page = opened(3)
    for name in ("A", "B", "C", "together", "account"):
        signs = page.locator(f"[data-list={name}] [data-item=A1] .seen").count()
        assert signs == (0 if name in "BC" else 1), name
        assert page.locator(f"[data-list={name}] .seen").count() == signs
    assert page.locator("[data-list=A] .seen .unseen").inner_text() == "in the history of person A"
    assert len(lists(page)["A"]) == K


POSITIONS = """all => all.map(one => [one.querySelector('.mark').getAttribute('aria-label').split(',').slice(0, 2)
  .join(), one.getBoundingClientRect().left])"""


def test_the_axis_is_that_of_time_and_can_be_zoomed(opened: Opened) -> None:
    page = opened(3)
    found = page.locator(".session").evaluate_all(POSITIONS)
    days = page.evaluate("all => all.map(one => Date.parse(one + ' UTC') / 86400000)", [one for one, _ in found])
    lefts = [left for _, left in found]
    pixels = (lefts[-1] - lefts[0]) / (days[-1] - days[0])
    assert pixels > 0
    for day, left in zip(days, lefts, strict=True):
        assert left - lefts[0] == pytest.approx(pixels * (day - days[0]), abs=1.5)
    labels = page.locator(".session .label")
    assert labels.count()
    assert "A long title" in labels.first.inner_text()
    board = "document.querySelector('.board').clientWidth"
    before = page.evaluate(board)
    page.get_by_role("button", name="Zoom in").click()
    assert page.evaluate(board) == pytest.approx(2 * before, abs=2)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Zoom in"
    page.get_by_role("button", name="Show the whole log").click()
    assert page.evaluate(board) == before


OVERLAPS = """() => {
  const box = one => one.getBoundingClientRect();
  const marks = [...document.querySelectorAll('.mark')].map(box);
  const labels = [...document.querySelectorAll('.session .label')].filter(one => one.textContent).map(box);
  const over = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 1 && other.top < one.bottom - 1;
  return [labels.length, labels.filter((one, place) => marks.some(mark => over(one, mark))
    || labels.some((other, at) => at !== place && over(one, other))).length];
}"""


OUTSIDE = """cards => cards.flatMap(card => [...card.querySelectorAll('*')].filter(one => one.checkVisibility()
  && one.getBoundingClientRect().right > card.getBoundingClientRect().right + 1).map(one => one.className))"""


@pytest.mark.parametrize("width", [1440, 1280])
def test_new_people_and_moved_items_fit_beside_five(opened: Opened, width: int) -> None:
    page = opened(3, viewport={"width": width, "height": 900})
    entries = {"sessions": [*range(25)], "events": [*crowd(5)["events"][:25]]}
    page.route("**/v1/people", lambda route: route.fulfill(json=asked(route.request.post_data_json, entries)))
    page.locator(".list .add").first.click()
    page.wait_for_selector("#account[aria-busy=false] .person .tag")
    assert page.locator(".list").count() == 7
    assert page.locator(".person, .list").evaluate_all(OUTSIDE) == []
    narrowest = page.locator(".list .name").evaluate_all("all => Math.min(...all.map(one => one.clientWidth))")
    assert narrowest > 85, "Archaeology in one line"


def asked(body: Any, after: Any) -> Any:
    """The three people for the history as it was, and five, whose lists are other ones, for the edited one."""
    if len(body["history"]) == 24:
        return crowd(3)
    found = crowd(5) | after
    for person in found["people"]:
        person["next"]["items"] = [*reversed(person["next"]["items"])]
    return found


@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_log_opens_where_its_labels_can_be_read(visit: Opened, width: int) -> None:
    page = visit(viewport={"width": width, "height": 900})
    page.route("**/v1/accounts/crowd/people**", lambda route: route.fulfill(json=crowd(2, days=600)))
    page.route("**/v1/who", lambda route: route.fulfill(json=watching(2)))
    page.evaluate("location.hash = '#account/crowd'")
    page.wait_for_selector(".mark")
    assert page.locator(".mark").count() == 1200
    labels, overlapping = page.evaluate(OVERLAPS)
    assert labels > 100
    assert overlapping == 0
    board = page.locator(".scroller")
    assert board.evaluate("one => one.scrollLeft + one.clientWidth >= one.scrollWidth - 30"), "the newest are shown"
    page.get_by_role("button", name="Show the whole log").click()
    assert board.evaluate("one => one.scrollWidth - one.clientWidth") <= 8
    assert page.evaluate(OVERLAPS)[1] == 0, "rows without room for labels have none"


def test_a_second_long_log_opens_at_its_newest_events_too(visit: Opened) -> None:
    page = visit(viewport={"width": 1440, "height": 900})
    page.route("**/v1/accounts/crowd/people**", lambda route: route.fulfill(json=crowd(2, days=600)))
    other = crowd(2, days=500) | {"account": "other"}
    page.route("**/v1/accounts/other/people**", lambda route: route.fulfill(json=other))
    page.route("**/v1/who", lambda route: route.fulfill(json=watching(2)))
    for account in ("crowd", "other"):
        page.evaluate(f"location.hash = '#account/{account}'")
        page.locator(".eyebrow", has_text=f"Account {account}").wait_for()
        at_the_end = "one => one.scrollLeft + one.clientWidth >= one.scrollWidth - 30"
        assert page.locator(".scroller").evaluate(at_the_end), account


def test_a_log_with_too_many_events_of_one_day_for_labels_opens_whole(visit: Opened) -> None:
    """All 100 events of a person are of one day, 12 in a block: nine rows at every zoom, where labels need three."""
    answer = crowd(2, days=100)
    for event in answer["events"]:
        event["time"] = "2022-01-01" if event["person"] == "A" else event["time"][:10]
    answer["events"].sort(key=lambda event: str(event["time"]))
    answer["sessions"] = [int(event["time"] != "2022-01-01") for event in answer["events"]]
    page = visit()
    page.route("**/v1/accounts/crowd/people**", lambda route: route.fulfill(json=answer))
    page.route("**/v1/who", lambda route: route.fulfill(json=watching(2)))
    page.evaluate("location.hash = '#account/crowd'")
    page.wait_for_selector(".mark")
    assert page.get_by_role("button", name="Show the whole log").is_disabled()
    assert page.locator(".scroller").evaluate("one => one.scrollWidth - one.clientWidth") <= 8


SESSIONS = """async (entries) => {
  const { sessionsOf } = await import('/page/timescale.js');
  return sessionsOf(entries, () => 'A').map(one => [one.label, one.entries.length]);
}"""


def test_sessions_carry_a_category_or_a_title(visit: Opened) -> None:
    entries = [
        {"item": "a", "title": "Law 5", "category": None, "session": 1, "added": False},
        {"item": "b", "title": None, "category": None, "session": 1, "added": False},
        {"item": "c", "title": "Dune", "category": "Space", "session": 2, "added": False},
        {"item": "d", "title": "Home", "category": "Drama", "session": 2, "added": False},
        {"item": "e", "title": "Moon", "category": "Space", "session": 2, "added": False},
    ]
    assert visit().evaluate(SESSIONS, entries) == [["Law 5 +1", 2], ["Space", 3]]


def test_quality_stands_beside_the_best_simple_baseline(visit: Opened, api: Api) -> None:
    page, facts = visit("/report"), api.get("/v1/model")
    values = facts["metrics"]["values"]
    facts["metrics"]["baseline"] = {"name": "markov", "values": {name: value / 2 for name, value in values.items()}}
    page.route("**/v1/model", lambda route: route.fulfill(json=facts))
    page.goto(f"{api.address}/#model")
    assert "100\xa0% above the best simple baseline, markov" in page.locator(".quality .lead").inner_text()
    own, simple = (page.locator(f".score.{kind} .number").all_inner_texts() for kind in ("own", "simple"))
    names = ("RC@5", "RC@20", "MRR@5", "MRR@20")
    assert own == [f"{100 * values[name]:.2f}\xa0%" for name in names]
    assert len(simple) == 4
    page.unroute("**/v1/model")
    page.goto(f"{api.address}/report")
    page.goto(f"{api.address}/#model")
    assert "No simple baseline was measured on the same events" in page.locator(".quality .lead").inner_text()
    assert "No simple baseline was measured beside it" in facts["card"]
