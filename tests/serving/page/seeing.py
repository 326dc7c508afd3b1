"""What is seen on the page, and what the service says when it is asked without it."""

import json
import shutil
from datetime import datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

import pytest

CHROMIUM = shutil.which("chromium")
BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
]
K = 10  # length of the page's lists
KEY = "forty-letters-that-nobody-else-would-guess"


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
        history, times = ([event[name] for event in events] for name in ("item", "time"))
        return self.post("/v1/people", {"account": account, "history": history, "times": times, "k": K})

    def post(self, path: str, body: Any) -> Any:
        request = Request(self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as answer:
            return json.load(answer)


def long_sitting(found: Any) -> list[int]:
    """The places of the events of one sitting with several."""
    sessions = found["sessions"]
    places = [[place for place, one in enumerate(sessions) if one == session] for session in sorted(set(sessions))]
    return next((sitting for sitting in places if len(sitting) > 1), [])


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
    """The page's lists are the API's; a person may keep an earlier letter. One person's list is the account's."""
    shown = lists(page)
    if found["count"] == 1:
        assert list(shown.values()) == [items_of(found["account_list"])]
        return
    assert shown.pop("account") == items_of(found["account_list"])
    together = shown.pop("together", None)
    assert together == (None if found["together"] is None else items_of(found["together"]))
    assert sorted(shown.values()) == sorted(items_of(person["next"]) for person in found["people"])


def crowd(count: int, days: int = 8) -> Any:
    """An answer about one account with so many people, each with an event in so many months or days, and a list."""
    letters = "ABCDE"[:count]
    active = {"weekdays": [1 / 7] * 7, "months": [1 / 12] * 12, "hours": [1 / 24] * 24}
    events = [
        {
            "item": f"{letter}{number}",
            "title": f"A long title of {letter}, part {number}",
            "time": f"2024-0{1 + number}-1{place} 20:{10 + number}" if days == 8 else day_after(number, place),
            "person": letter,
            "probability": 0.9,
            "shares": [0.9 if one == letter else 0.1 / max(count - 1, 1) for one in letters],
        }
        for number in range(days)
        for place, letter in enumerate(letters)
    ]
    people = [
        {
            "name": letter,
            "description": "often archaeology and languages, weekend mornings",
            "events": days,
            "share": 1 / count,
            "categories": [],
            "likes": [{"item": f"{letter}1", "title": f"A long title of {letter}, part 1", "events": 2}],
            "active": active,
            "next": ranked(letter),
        }
        for letter in letters
    ]
    return {
        "account": "crowd",
        "count": count,
        "confidence": 0.7,
        "chances": [0.7 if place == count else 0.075 for place in range(1, 6)],
        "events": events,
        "people": people,
        "together": ranked("t") if count > 1 else None,
        "account_list": ranked("c"),
        "sessions": [place for place, _ in enumerate(events)],
        "notes": [],
    }


def day_after(number: int, hours: int) -> str:
    return (datetime(2022, 1, 1, 20) + timedelta(days=number, hours=hours)).strftime("%Y-%m-%d %H:%M")


def watching(count: int) -> Any:
    """An answer to who of so many people is watching: each with the same chance."""
    letters = [*"ABCDE"[:count]]
    return {"account": "crowd", "people": letters, "steps": [{"chances": [1 / count] * count}], "notes": []}


def ranked(name: str) -> Any:
    """A list of K items; its second is one that A had."""
    items = [f"{name}new{rank}" for rank in range(1, K + 1)]
    items[1] = "A1"
    listed = [
        {"item": item, "title": f"Archaeology {rank}, lesson {name}", "score": 1.0, "rank": rank}
        for rank, item in enumerate(items, 1)
    ]
    return {"account": "crowd", "items": listed, "fallback": False, "notes": [], "model": "0"}


def settled(page: Any) -> None:
    """Waits until the answer to a change is there."""
    page.wait_for_selector("#account[aria-busy=false] .part-whatif:not([hidden]) [data-focus=undo]")
