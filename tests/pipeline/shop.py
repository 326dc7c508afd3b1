"""A shop whose customers walk round a ring of items, three steps a day, and later round another ring."""

from pathlib import Path

from lightgc2n.pipeline.settings import PipelineConfig, PipelineSettings
from lightgc2n.store.event_store import EventStore, NewEvent, create_store

DAY = 86_400_000_000
START = 1_704_067_200_000_000  # 2024-01-01
ACCOUNTS, RING, STEPS = 30, 6, 3
CHANGE = 5  # the day from which the other ring is used


def item(account: int, day: int, step: int, change: int = CHANGE) -> str:
    ring = "new" if day >= change else "old"
    return f"{ring}-{(account + day * STEPS + step) % RING}"


def events_of(days: range, change: int = CHANGE) -> list[NewEvent]:
    return [
        NewEvent(
            f"who{account:02d}",
            item(account, day, step, change),
            START + day * DAY + (step * 100 + account) * 60_000_000,
        )
        for day in days
        for step in range(STEPS)
        for account in range(ACCOUNTS)
    ]


def settings_of(folder: Path, **changes: object) -> PipelineSettings:
    """Settings of a pipeline on the store of the folder, with a model that counts and needs no training."""
    plain = {"store": "events.db", "model": "markov", "people": False, "least_questions": 10, "keep": 2}
    tables: dict[str, dict[str, object]] = changes.pop("tables", {})  # type: ignore[assignment]
    return PipelineSettings(folder / "pipeline.toml", PipelineConfig(**{**plain, **changes}), tables)  # type: ignore[arg-type]


def shop(folder: Path, days: int) -> EventStore:
    """The store of the shop with its first days."""
    store = create_store(str(folder / "events.db"))
    store.append(events_of(range(days)))
    return store
