"""Stores filled with the town's events, and services on them."""

from pathlib import Path
from typing import Any

from lightgc2n.store.dataset_exchange import fill_store
from lightgc2n.store.event_store import create_store
from tests.export.town import data
from tests.serving.running import Client, Reply


def filled(url: str) -> str:
    """The address of a new store with the town's events."""
    store = create_store(url)
    fill_store(store, data())
    store.close()
    return url


def filled_file(folder: Path) -> str:
    return filled(str(folder / "events.db"))


def send(client: Client, *events: dict[str, Any], **headers: str) -> Reply:
    return client.post("/v1/events", {"events": list(events)}, **headers)


def history_of(client: Client, account: str) -> list[str]:
    """The items of an account, oldest first, as `people` finds them."""
    reply = client.get(f"/v1/accounts/{account}/people")
    assert reply.status == 200, reply.body
    return [event["item"] for event in reply.json["events"]]
