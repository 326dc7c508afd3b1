"""The page in Chromium over a real service, used as a person would: what is seen is what the API says."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from lightgc2n.data.household_titles import write_titles
from lightgc2n.data.households import HouseholdConfig, generate
from lightgc2n.experiments.single import train_run
from lightgc2n.export.exporting import ExportOptions, export_run
from lightgc2n.reporting.writing import write_report
from lightgc2n.serving.settings import read_keys
from lightgc2n.training.runs import RunPlan
from lightgc2n.training.steps import TrainingConfig
from tests.reporting.example import document
from tests.serving.running import running

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
]
K = 10  # length of the page's lists
KEY = "forty-letters-that-nobody-else-would-guess"


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of households whose number of people can be told, with titles, and a report beside it."""
    folder = tmp_path_factory.mktemp("street")
    homes = HouseholdConfig(accounts=150)
    generate(homes, seed=0, out=folder / "data")
    write_titles(homes, 0, folder / "titles.tsv")
    few = TrainingConfig(epochs=1, batch_size=64, learning_rate=0.01)
    train_run(RunPlan(folder / "data", "lightgc2n", training=few), folder / "run")
    export_run(folder / "run", folder / "bundle", ExportOptions(titles=folder / "titles.tsv"))
    write_report(document(), folder / "report")
    (folder / "keys").write_text(f"{KEY}\n")
    return folder


class Api:
    """The service, asked without the page."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        with urlopen(self.address + path) as answer:
            return json.load(answer)

    def people(self, account: str) -> Any:
        return self.get(f"/v1/accounts/{account}/people?k={K}")

    def people_if(self, account: str, events: list[Any]) -> Any:
        """The people if these events were the account's history."""
        body = {"account": account, "history": [event["item"] for event in events], "k": K}
        body["times"] = [event["time"] for event in events]
        request = Request(f"{self.address}/v1/people", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def api(street: Path) -> Iterator[Api]:
    with running(street / "bundle", report=street / "report" / "report.html") as service:
        yield Api(service.port)


@pytest.fixture(scope="module")
def shared(api: Api) -> str:
    """An account of several people, each of whom has events, with a sitting of several events."""
    for one in api.get("/v1/accounts?limit=150")["accounts"]:
        found = api.people(one["account"])
        if found["count"] > 1 and all(person["events"] for person in found["people"]) and _long_sitting(found):
            return str(one["account"])
    raise AssertionError("nobody shares an account")


def _long_sitting(found: Any) -> list[int]:
    """The places of the events of one sitting with several."""
    sessions = found["sessions"]
    places = [[place for place, one in enumerate(sessions) if one == session] for session in sorted(set(sessions))]
    return next((sitting for sitting in places if len(sitting) > 1), [])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any, api: Api) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end nothing may have been complained of, and nobody else asked."""
    opened: list[Any] = []
    problems: list[str] = []
    asked: list[str] = []

    def open_page(path: str = "/", **how: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | how)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(api.address + path)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert problems == []
    assert asked
    assert not [url for url in asked if not url.startswith((api.address, "data:"))]


def marks(page: Any, kind: str = ".mark:not(.removed)") -> list[str]:
    """The letters of the timeline, oldest first."""
    found: list[str] = page.locator(f"#history {kind}").evaluate_all("all => all.map(one => one.dataset.person)")
    return found


def lists(page: Any) -> dict[str, list[str]]:
    """The items of each list by its name."""
    found: dict[str, list[str]] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.list')].map(list =>
           [list.dataset.list, [...list.querySelectorAll('li')].map(row => row.dataset.item)]))"""
    )
    return found


def items_of(answer: Any) -> list[str]:
    return [one["item"] for one in answer["items"]]


def assert_lists(page: Any, found: Any) -> None:
    """The page's lists are the API's; a person may keep an earlier letter."""
    shown = lists(page)
    assert shown.pop("account") == items_of(found["account_list"])
    together = shown.pop("together", None)
    assert together == (None if found["together"] is None else items_of(found["together"]))
    assert sorted(shown.values()) == sorted(items_of(person["next"]) for person in found["people"])


def settled(page: Any) -> None:
    """Waits until the answer to a change is there."""
    page.wait_for_selector("#account[aria-busy=false] .part-whatif:not([hidden]) [data-focus=undo]")


def test_an_account_is_found_and_told(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(), api.people(shared)
    assert page.locator("h1").inner_text() == "Who shares this account?"
    assert page.locator(".chips button").count() == 6
    page.get_by_role("combobox", name="Account").fill(shared[-3:])
    page.wait_for_selector("[role=option]")
    listed = api.get(f"/v1/accounts?search={shared[-3:]}")
    names = page.locator("[role=option] .name").all_inner_texts()
    assert names == [one["account"] for one in listed["accounts"]]
    page.get_by_role("option", name=shared).click()
    page.wait_for_selector(".list")
    words = {2: "Two", 3: "Three", 4: "Four", 5: "Five"}
    assert page.locator("h1:visible").inner_text() == f"{words[found['count']]} people probably share this account"
    chances = [f"{100 * chance:.0f}\xa0%" for chance in found["chances"]]
    assert page.locator(".chance .number").all_inner_texts() == chances
    assert f"a chance of {100 * found['confidence']:.0f}\xa0%" in page.locator(".finding .lead").inner_text()
    assert marks(page) == [event["person"] for event in found["events"]]
    assert lists(page) == {person["name"]: items_of(person["next"]) for person in found["people"]} | {
        "together": items_of(found["together"]),
        "account": items_of(found["account_list"]),
    }
    told = page.locator(".person").first.inner_text()
    assert f"{found['people'][0]['events']} events" in told
    assert found["people"][0]["likes"][0]["title"] in told
    assert page.evaluate("location.hash") == f"#account/{shared}"


def test_the_probability_is_shown_on_hover_and_on_focus(visit: Any, api: Api, shared: str) -> None:
    page, event = visit(f"/#account/{shared}"), api.people(shared)["events"][3]
    mark = page.locator("#history .mark").nth(3)
    chance = f"{100 * event['probability']:.0f}"
    assert page.locator(".tip").is_hidden()
    mark.hover()
    assert event["title"] in page.locator(".tip").inner_text()
    assert page.locator(".tip li").first.inner_text().split() == [event["person"], chance, "%"]
    page.mouse.move(0, 0)
    assert page.locator(".tip").is_hidden()
    mark.focus()
    assert f"{chance}\xa0%" in page.locator(".tip").inner_text()
    assert f"person {event['person']}, {chance} percent" in mark.get_attribute("aria-label")


def test_an_event_is_removed_and_the_lists_say_what_moved(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    page.locator("#history .mark").last.click()
    page.get_by_role("button", name="Remove this event").click()
    settled(page)
    before, after = (api.people_if(shared, events) for events in (found["events"], found["events"][:-1]))
    assert_lists(page, after)
    assert len(marks(page)) == len(found["events"]) - 1
    ranks = {one["item"]: one["rank"] for one in before["account_list"]["items"]}
    for one in after["account_list"]["items"]:
        was, said = ranks.get(one["item"]), page.locator(f"[data-list=account] [data-item='{one['item']}'] .move")
        if was == one["rank"]:
            assert said.count() == 0
        else:
            moved = "new" if was is None else f"{'▲' if was > one['rank'] else '▼'}{abs(was - one['rank'])}"
            assert said.inner_text().startswith(moved)
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector(".part-whatif", state="hidden")
    assert_lists(page, found)
    assert page.locator(".move").count() == 0


def test_something_is_added(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    item = api.get("/v1/items?search=Nature&limit=1")["items"][0]
    page.get_by_role("combobox", name="Add to the history").fill("nature")
    page.get_by_role("option", name=item["title"], exact=False).first.click()
    settled(page)
    assert len(marks(page)) == len(found["events"]) + 1
    assert marks(page, ".mark.added")
    assert "1 event added" in page.locator(".part-whatif").inner_text()
    page.locator("[data-list=account] .add").first.click()
    page.wait_for_selector(".part-whatif :text('2 events added')")
    assert len(marks(page)) == len(found["events"]) + 2


def test_a_sitting_is_forgotten(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    sitting = _long_sitting(found)
    page.locator("#history .mark").nth(sitting[0]).click()
    page.get_by_role("button", name=f"Forget this sitting ({len(sitting)} events)").click()
    settled(page)
    left = [event for place, event in enumerate(found["events"]) if place not in sitting]
    assert_lists(page, api.people_if(shared, left))
    assert len(marks(page, ".mark.removed")) == len(sitting)


def test_a_person_is_forgotten_and_comes_back(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    page.get_by_role("button", name="Forget person B").click()
    settled(page)
    left = [event for event in found["events"] if event["person"] != "B"]
    assert "B" not in marks(page)
    assert set(marks(page, ".mark.removed")) == {"B"}
    card = page.get_by_role("article", name="Person B")
    assert "0 events" in card.inner_text()
    assert "B" not in lists(page)
    assert_lists(page, api.people_if(shared, left))
    assert f"{len(found['events']) - len(left)} events removed" in page.locator(".part-whatif").inner_text()
    page.get_by_role("button", name="Bring person B back").click()
    page.wait_for_selector(".part-whatif", state="hidden")
    assert marks(page) == [event["person"] for event in found["events"]]


def test_nobody_is_left_when_all_are_forgotten(visit: Any, shared: str) -> None:
    page = visit(f"/#account/{shared}")
    page.wait_for_selector(".list")
    while page.get_by_role("button", name="Forget person").count():
        page.get_by_role("button", name="Forget person").first.click()
        page.wait_for_function("left => document.querySelectorAll('.mark.removed').length > left", arg=len(marks(page, ".mark.removed")))
    assert page.locator("h1:visible").inner_text() == "Nobody is left"
    assert page.get_by_text("Not personal: the most popular items").is_visible()


def test_a_history_of_ones_own(visit: Any, api: Api) -> None:
    page = visit()
    page.get_by_role("button", name="or start with an empty history").click()
    assert page.locator("h1:visible").inner_text() == "Nobody yet"
    page.locator("[data-list=account] .add").first.click()
    page.wait_for_selector("h1:has-text('One person probably made this history')")
    assert marks(page) == ["A"]
