"""What is seen on the page, and what the service says when it is asked without it."""

import json
import shutil
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
    """The page's lists are the API's; a person may keep an earlier letter."""
    shown = lists(page)
    assert shown.pop("account") == items_of(found["account_list"])
    together = shown.pop("together", None)
    assert together == (None if found["together"] is None else items_of(found["together"]))
    assert sorted(shown.values()) == sorted(items_of(person["next"]) for person in found["people"])


def settled(page: Any) -> None:
    """Waits until the answer to a change is there."""
    page.wait_for_selector("#account[aria-busy=false] .part-whatif:not([hidden]) [data-focus=undo]")
