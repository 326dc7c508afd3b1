"""The page in Chromium over a real service, used as a person would: what is seen is what the API says."""

from datetime import datetime
from typing import Any

from tests.serving.page.seeing import BROWSER, Api, assert_lists, items_of, lists, long_sitting, marks, settled

pytestmark = BROWSER


def test_an_account_is_found_and_told(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(), api.people(shared)
    assert page.locator("h1").inner_text() == "Who shares this account?"
    page.wait_for_selector(".chips button")
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
    assert found["people"][0]["description"][1:] in told
    assert page.get_by_role("button", name="Refresh").count() == 0, "without a store there is nothing new"
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
    (name,) = [name for name in lists(page) if name == "account"] or lists(page)  # one person has one list
    own = before["account_list"] if name == "account" else before["people"]["ABCDE".index(name)]["next"]
    ranks = {one["item"]: one["rank"] for one in own["items"]}
    for one in after["account_list"]["items"]:
        was, said = ranks.get(one["item"]), page.locator(f"[data-list={name}] [data-item='{one['item']}'] .move")
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
    chosen = page.locator(".part-chosen")
    assert item["title"] in chosen.inner_text(), "the panel shows what was added"
    assert "added" in chosen.inner_text()
    assert page.locator("#history .mark[aria-pressed=true].added").count() == 1
    page.locator(".list .add").first.click()
    page.wait_for_selector(".part-whatif :text('2 events added')")
    assert len(marks(page)) == len(found["events"]) + 2


def test_a_session_is_forgotten(visit: Any, api: Api, shared: str) -> None:
    page, found = visit(f"/#account/{shared}"), api.people(shared)
    sitting = long_sitting(found)
    page.locator("#history .mark").nth(sitting[0]).click()
    page.get_by_role("button", name=f"Forget this session ({len(sitting)} events)").click()
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
        removed = len(marks(page, ".mark.removed"))
        page.get_by_role("button", name="Forget person").first.click()
        page.wait_for_function("before => document.querySelectorAll('.mark.removed').length > before", arg=removed)
    assert page.locator("h1:visible").inner_text() == "No one is left"
    assert page.get_by_text("Not personal: the most popular items").is_visible()


def test_a_history_of_ones_own(visit: Any, api: Api) -> None:
    page = visit()
    page.get_by_role("button", name="or start with an empty history").click()
    assert page.locator("h1:visible").inner_text() == "No one yet"
    page.locator("[data-list=account] .add").first.click()
    page.wait_for_selector("h1:has-text('One person probably made this history')")
    assert marks(page) == ["A"]


def test_who_is_watching_by_weekday_hour_and_what_was_begun(visit: Any, api: Api, shared: str) -> None:
    page = visit(f"/#account/{shared}")
    page.wait_for_selector("#now .watching-people li")
    letters = [person["name"] for person in api.people(shared)["people"]]
    with page.expect_response("**/v1/who"):
        page.locator("#now select").first.select_option("Sunday")
    with page.expect_response("**/v1/who") as asked:
        page.locator("#now select").last.select_option("7 h")
    request, found = asked.value.request.post_data_json, asked.value.json()
    assert request["account"] == shared
    assert datetime.fromisoformat(request["time"]).strftime("%A %H:%M") == "Sunday 07:00"
    wanted = [f"{100 * chance:.0f}\xa0%" for chance in found["steps"][0]["chances"]]
    page.locator(".watching-people li").filter(has_text=wanted[0]).first.wait_for()
    told = [one.split() for one in page.locator(".watching-people li").all_inner_texts()]
    assert told == [[letter, *chance.split()] for letter, chance in zip(letters, wanted, strict=True)]
    page.get_by_role("combobox", name="Started with").fill("1")
    with page.expect_response("**/v1/who") as asked:
        page.locator("#now [role=option]").first.click()
    assert len(asked.value.json()["steps"]) == 2
    page.get_by_role("button", name="Nothing started").click()
    page.locator("#now .hint").filter(has_text="before anything is started").wait_for()
