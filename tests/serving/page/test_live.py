"""Live quality and promotions on the model's tab; an added event is kept; an account is refreshed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.store.dataset_exchange import fill_store
from lightgc2n.store.event_store import create_store
from lightgc2n.store.quality import QualitySums, add_quality
from tests.serving.page.seeing import BROWSER, Api, marks, settled
from tests.serving.page.test_accessible import assert_accessible
from tests.serving.running import running

pytestmark = BROWSER
DAYS = 30
FIRST = 20_000  # 2024-10-04
JUDGED = {"questions": 4210, "accounts": 812, "mrr": 21.34, "rc": 45.1, "live_mrr": 20.1, "live_rc": 43.02,
          "difference": 1.24, "low": 0.8, "high": 1.7, "p": 0.0001}  # fmt: skip


@pytest.fixture(scope="module")
def lively(street: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The street behind a link that a pipeline swaps, with a store and thirty days of live quality."""
    folder = tmp_path_factory.mktemp("lively")
    (folder / "live").symlink_to(street / "bundle")
    entries = [
        {"round": 1, "kind": "first", "at": "2024-10-04T02:00:00+00:00", "reason": "first model", "model": "abc"},
        {"round": 2, "kind": "promoted", "at": "2024-10-19T02:00:00+00:00", "reason": "the challenger is better",
         "judged": JUDGED, "model": "def"},
    ]  # fmt: skip
    (folder / "promotions.json").write_text(json.dumps({"made_by": "lightgc2n 0.1.0", "promotions": entries}))
    store = create_store(str(folder / "events.db"))
    fill_store(store, street / "data")
    sums = {
        (FIRST + day, "abc" if day < 15 else "def"): QualitySums(300, 100, 10 + day / 2, 30 + day, 5, 20, 6, 22)
        for day in range(DAYS)
    }
    add_quality(store.database, sums)
    store.close()
    with running(folder / "live", store=str(folder / "events.db")) as service:
        yield Api(service.port)


@pytest.fixture
def look(browser: Any, lively: Api) -> Iterator[Any]:
    """Opens the page of that service; at the end nothing may have been complained of."""
    opened, problems = list[Any](), list[str]()

    def open_page(path: str = "/", **how: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1440, "height": 900}} | how)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(lively.address + path)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert problems == []


def test_live_quality_is_plotted_by_day_beside_the_baseline(look: Any, lively: Api) -> None:
    page = look("/#model")
    page.wait_for_selector(".live-plot")
    found = lively.get("/v1/quality")
    assert [plot.locator(".day").count() for plot in page.locator(".live-plot").all()] == [DAYS, DAYS]
    assert page.locator(".day .fresh").count() == 2  # the new model, in both plots
    last = found["days"][-1]
    own = page.locator(".live-plot .day").nth(DAYS - 1).evaluate("one => one.style.getPropertyValue('--day')")
    week = sum(day["model"]["mrr"] for day in found["days"][-7:]) / 7  # the highest line
    assert float(own) == pytest.approx(last["model"]["mrr"] / (1.3 * week))
    assert f"{100 * last['model']['mrr']:.1f}\xa0%" in page.get_by_role("img").first.get_attribute("aria-label")
    lead = page.locator(".live .lead").inner_text()
    mean = sum(day["model"]["mrr"] for day in found["days"][-7:]) / 7
    assert lead == f"Over the last 7 days its MRR@20 is {100 * mean:.1f}\xa0%, above the simple baseline’s 6.0\xa0%."
    assert (
        "3,000 of 9,000 events were scored (33\xa0%), a random sample under load." in page.locator(".live").inner_text()
    )
    page.get_by_text("Numbers by day").click()
    assert page.locator(".live tbody tr").count() == DAYS


def test_decisions_of_the_pipeline_are_listed(look: Any) -> None:
    page = look("/#model")
    page.wait_for_selector(".decisions")
    first, second = page.locator(".decisions li").all_inner_texts()
    assert "Round 2: promoted · 2024-10-19 02:00 UTC" in first
    assert "On 4,210 events that neither model has seen: MRR@20 21.34\xa0%, live 20.10\xa0% (+1.24)" in first
    assert "Round 1: first model" in second


def test_an_added_event_is_kept_only_when_asked(look: Any, lively: Api, shared: str) -> None:
    page, before = look(f"/#account/{shared}"), lively.get(f"/v1/accounts/{shared}/events?limit=1000")["events"]
    page.wait_for_selector(".list")
    item = lively.get("/v1/items?search=v0")["items"][0]
    page.get_by_role("combobox", name="Add to the history").fill(item.get("title", item["item"]))
    page.locator("[role=option]").first.click()
    settled(page)
    chosen = page.locator(".chosen-name strong").inner_text()
    assert "What if" in page.locator(".part-whatif").inner_text()
    assert lively.get(f"/v1/accounts/{shared}/events?limit=1000")["events"] == before  # "what if" stores nothing
    page.get_by_role("button", name="Keep the added event").click()
    page.wait_for_selector(".part-whatif", state="hidden")
    page.wait_for_selector("#account[aria-busy=false]")
    after = lively.get(f"/v1/accounts/{shared}/events?limit=1000")["events"]
    assert len(after) == len(before) + 1
    assert chosen in (after[0].get("title"), after[0]["item"])
    assert len(marks(page)) == len(lively.people(shared)["events"])


def test_refresh_shows_what_arrived_since(look: Any, lively: Api, shared: str) -> None:
    page = look(f"/#account/{shared}")
    page.wait_for_selector(".list")
    shown = len(marks(page))
    item = lively.get("/v1/items")["items"][0]["item"]
    lively.post("/v1/events", {"account": shared, "item": item})
    assert len(marks(page)) == shown
    page.get_by_role("button", name="Refresh").click()
    page.locator("#history .mark").nth(shown).wait_for()


def test_without_a_store_there_is_nothing_to_keep_and_nothing_live(visit: Any, api: Api, shared: str) -> None:
    page = visit(f"/#account/{shared}")
    page.wait_for_selector(".list")
    page.locator(".list button", has_text="+").first.click()
    settled(page)
    assert page.get_by_role("button", name="Keep the added event").count() == 0
    page.get_by_role("tab", name="Model").click()
    page.wait_for_selector(".card")
    assert page.locator(".live").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_contrast_and_names(look: Any, scheme: str, width: int) -> None:
    how = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "reduced_motion": "reduce"}
    page = look("/#model", **how)
    page.wait_for_selector(".live-plot")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
