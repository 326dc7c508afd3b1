"""A small client of the service, with Python's standard library alone.

python examples/client.py http://127.0.0.1:8000 --account h000003 [--people] [-k 5] [--key KEY]
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen


class ServiceError(Exception):
    """What the service has refused: its code for programs, its message for people."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{error['message']} ({status}, {error['code']})")
        self.status, self.code, self.details = status, error["code"], error["details"]


class Client:
    """Asks a service; when that is busy, it tries again a few times."""

    def __init__(self, address: str, key: str | None = None, tries: int = 4) -> None:
        self._address, self._tries = address.rstrip("/"), tries
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def recommend(self, account: str | None = None, history: Sequence[str] | None = None, **wishes: Any) -> Any:
        """One list. Wishes: k, person, together, exclude_seen, allow, deny, domain, times."""
        asked = {"account": account, "history": history, **wishes}
        return self._ask("/v1/recommend", {name: value for name, value in asked.items() if value is not None})

    def recommend_many(self, requests: Sequence[dict[str, Any]]) -> Any:
        """A list for each request, at most 1,000; one that failed is {"error": ...}."""
        return self._ask("/v1/recommend", {"requests": list(requests)})["answers"]

    def people(self, account: str, k: int = 10) -> Any:
        """Who is behind an account."""
        return self._ask(f"/v1/accounts/{quote(account, safe='')}/people?k={k}")

    def similar(self, item: str, k: int = 20) -> Any:
        """Items like an item."""
        return self._ask(f"/v1/items/{quote(item, safe='')}/similar?k={k}")

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if data else {})
        for turn in range(self._tries):
            try:
                with urlopen(Request(self._address + path, data, headers), timeout=30) as answer:
                    return json.load(answer)
            except HTTPError as problem:
                with problem:
                    error = json.load(problem)["error"]
                if problem.code not in (429, 503) or turn == self._tries - 1:
                    raise ServiceError(problem.code, error) from None
                time.sleep(float(problem.headers.get("Retry-After", 1)) * 2**turn)
        raise AssertionError("at least one try is needed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--account", required=True)
    parser.add_argument("--people", action="store_true")
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--key")
    given = parser.parse_args()
    client = Client(given.address, given.key)
    for one in client.recommend(given.account, k=given.k)["items"]:
        print(one["rank"], one["item"], one.get("title", ""), round(one["score"], 3))
    if given.people:
        found = client.people(given.account, k=given.k)
        print(f"{found['count']} people, with a confidence of {found['confidence']:.0%}")
        for person in found["people"]:
            print(person["name"], f"{person['share']:.0%}", [one["item"] for one in person["next"]["items"]])


if __name__ == "__main__":
    main()
