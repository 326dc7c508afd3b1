"""The page around an account: tabs, keyboard, phones, keys and failures."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.serving.keys import read_keys
from tests.serving.folders import NEEDS_RUNTIME
from tests.serving.page.seeing import BROWSER, KEY, Api, marks, settled
from tests.serving.running import running

pytestmark = BROWSER


def test_the_second_tab_shows_card_and_report(visit: Any, api: Api) -> None:
    page, facts = visit(), api.get("/v1/model")
    page.get_by_role("tab", name="Model").click()
    card = page.get_by_role("article", name="Model card")
    card.wait_for()
    for heading in re.findall(r"^##? (.+)$", facts["card"], re.MULTILINE):
        assert card.get_by_role("heading", name=heading, exact=True).count() == 1
    rows = re.findall(r"^\| ([^|]+@\d+) \| ([\d.]+) \|$", facts["card"], re.MULTILINE)
    assert rows
    folded = ["Data", "Protocol", "Metrics", "Settings", "Files", "Versions"]
    assert card.locator("details:not([open]) summary").all_inner_texts() == folded
    card.locator("summary", has_text="Metrics").click()
    assert card.locator("tbody tr").all_inner_texts() == ["\t".join(row) for row in rows]
    page.locator("iframe").scroll_into_view_if_needed()
    assert page.frame_locator("iframe").locator("h1").inner_text()
    assert page.locator("#panel-account").is_hidden()


@NEEDS_RUNTIME
def test_the_third_tab_runs_the_model_and_makes_the_same_list(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    page.wait_for_selector(".list")
    page.get_by_role("tab", name="In this browser").click()
    page.get_by_role("button", name="Fetch the model and run it here").click()
    page.wait_for_selector(".verdict")
    history = [event["item"] for event in found["events"]]
    told = api.post("/v1/recommend", {"history": history, "k": 20})["items"]
    for column in (2, 3):
        names = page.locator(f".compared tbody td:nth-child({column})").all_inner_texts()
        assert names == [one["title"] for one in told]
    assert "The same list as the service’s, all 20 places." in page.locator(".verdict").inner_text()
    facts = dict(row.split("\n") for row in page.locator(".result .facts > div").all_inner_texts())
    assert re.fullmatch(r"\d+(\.\d+)?\xa0ms", facts["A list here, median"])
    times = [event["time"] for event in found["events"]]
    count = api.post("/v1/people", {"history": history, "times": times, "k": 1})["count"]
    assert facts["People found here"] == f"{count}, as the service says"


def test_the_third_tab_says_how_to_get_what_is_missing(visit: Any) -> None:
    page = visit("/report")  # no file of the page yet, so that what it asks first can be answered otherwise
    page.route("**/v1/model", lambda route: route.fulfill(json={"device": False}))
    page.goto(f"{page.url.removesuffix('/report')}/#browser")
    assert "scripts/fetch-web" in page.locator(".howto").inner_text()
    assert page.locator("#tab-browser").is_hidden(), "a tab that can do nothing is not offered"


LISTS = """async ([here, there]) => {
  const { compare } = await import('/page/browser.js');
  const list = text => text.split(' ').map(one => ({ item: one[0], score: Number(one.slice(1)) }));
  return compare(list(here), list(there));
}"""


def test_lists_are_compared_by_hand(visit: Any) -> None:
    page = visit()
    same = {"same": True, "from": 0, "swapped": 0}
    assert page.evaluate(LISTS, ["a3 b2", "a3 b2"]) == same
    assert page.evaluate(LISTS, ["a3 b3.000001", "b3.000001 a3"]) == same | {"swapped": 2}, "as good as equal"
    assert page.evaluate(LISTS, ["a3 b2", "b2 a3"]) == {"same": False, "from": 1, "swapped": 2}
    assert page.evaluate(LISTS, ["a3 b2", "a3"])["same"] is False


TEXT = """# <b>a</b>

- `x` <img src=x onerror=alert(1)>

| a | b |
|---|---|
| <i>1</i> | 2 |
"""


def test_markdown_becomes_text_and_never_markup(visit: Any) -> None:
    text, tags = visit().evaluate(
        """async (text) => {
          const { rendered } = await import('/page/markdown.js');
          const place = document.createElement('div');
          place.append(...rendered(text));
          return [place.textContent, [...place.querySelectorAll('*')].map(one => one.tagName)];
        }""",
        TEXT,
    )
    assert text == "<b>a</b>x <img src=x onerror=alert(1)>ab<i>1</i>2"
    assert tags == ["H1", "UL", "LI", "CODE", "DIV", "TABLE", "THEAD", "TR", "TH", "TH", "TBODY", "TR", "TD", "TD"]


def test_a_person_without_a_mouse_gets_everywhere(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(), api.people(shared)
    page.wait_for_selector(".chips button")
    press, focused = page.keyboard.press, lambda: page.evaluate("document.activeElement.textContent")
    press("Tab")
    assert focused() == "Skip to the content"
    press("Tab")
    press("ArrowRight")
    assert (focused(), page.locator("#panel-model").is_visible()) == ("Model", True)
    press("ArrowLeft")
    press("Tab")
    page.keyboard.type(shared)
    page.wait_for_selector("[role=option]")
    press("ArrowDown")
    press("Enter")
    page.wait_for_selector(".list")
    for _ in range(20):
        press("Tab")
        if page.evaluate("document.activeElement.matches('.mark')"):
            break
    marked = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert f"person {found['events'][-1]['person']}" in marked, "the newest event is the first stop"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Home")
    press("ArrowRight")
    press("Enter")
    press("Tab")
    assert focused() == "Remove this event"
    press("Enter")
    settled(page)
    assert focused() == "Put it back", "the focus stays where the hand is"
    assert len(marks(page)) == len(found["events"]) - 1
    page.wait_for_selector("#said:has-text('was removed')", state="attached")
    press("Enter")
    page.wait_for_selector(".part-whatif", state="hidden")
    assert len(marks(page)) == len(found["events"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(visit: Any, shared: str, scheme: str) -> None:
    page = visit(f"/#account/{shared}", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.get_by_role("button", name="Forget person B").click()
    settled(page)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_selector("[role=tabpanel] h1:visible")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab.inner_text()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


@pytest.fixture
def guarded(street: Path) -> Iterator[str]:
    with running(street / "bundle", keys=read_keys(street / "keys")) as service:
        yield f"http://127.0.0.1:{service.port}"


def test_a_key_is_asked_for_and_kept_in_memory_alone(browser: Any, guarded: str, shared: str) -> None:
    page = browser.new_page()
    page.goto(guarded)
    field = page.get_by_label("API key")
    for key in ("a-key-that-is-wrong", KEY):
        field.fill(key)
        page.get_by_role("button", name="Use this key").click()
        if key != KEY:
            page.wait_for_selector("#key-wrong:has-text('does not accept this key')")
    page.locator(".chips button").first.click()
    page.wait_for_selector(".list")
    stored = "[localStorage.length, sessionStorage.length, document.cookie, location.href.includes('key')]"
    assert page.evaluate(stored) == [0, 0, "", False]
    page.close()


def test_failures_are_told_with_a_way_out(browser: Any, api: Api, shared: str) -> None:
    page = browser.new_page()
    page.goto(f"{api.address}/#account/nobody")
    page.wait_for_selector(".failure:has-text('is not known here')")
    assert "Account 'nobody' is not known here" in page.locator(".failure").inner_text()
    page.get_by_role("button", name="Search for an account").click()
    assert page.evaluate("document.activeElement.id") == "account-search"
    assert page.get_by_role("button", name="Try again").count() == 0
    page.route("**/v1/**", lambda route: route.abort())
    page.goto(f"{api.address}/#account/{shared}")
    page.wait_for_selector(".failure:has-text('The service does not answer')")
    page.unroute("**/v1/**")
    page.locator("#account").get_by_role("button", name="Try again").click()
    page.wait_for_selector(".list")
    page.close()
