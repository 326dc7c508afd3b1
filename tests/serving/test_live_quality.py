"""Live quality: ranks by hand, the rank of an event before it is stored, sampling, days, and promotions."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lightgc2n.serving.live_quality import LONGEST_QUEUE, MISS, LiveQuality, metrics_text, rank_after_recent, rank_among
from lightgc2n.serving.quality_routes import by_day, promotions
from lightgc2n.serving.recorder import RecordedEvent
from lightgc2n.store.events import NewEvent
from lightgc2n.store.quality import DAY, DayQuality, QualitySums
from tests.export.town import bundle_of
from tests.serving.events import filled, history_of
from tests.serving.running import Client, Running, running, wait_for

EVERY = np.ones(4, dtype=bool)


def test_ranks_by_hand() -> None:
    scores = np.array([0.1, 0.9, 0.5, 0.5])
    assert rank_among(scores, 1, EVERY) == 1
    assert rank_among(scores, 0, EVERY) == 4
    assert rank_among(scores, 2, EVERY) == 2.5  # places 2 and 3 are shared
    assert rank_among(scores, 0, np.array([True, False, True, True])) == 3  # item 1 cannot be listed
    assert rank_among(scores, 1, np.array([True, False, True, True])) == MISS
    assert rank_among(scores, -1, EVERY) == MISS  # an item that the model does not know


def test_the_baseline_by_hand() -> None:
    history, popularity = np.array([3, 1, 3, 0]), np.array([5, 9, 7, 1, 7, 0])
    ranks = [rank_after_recent(history, popularity, target) for target in range(6)]
    # 0 is the newest, then 3, then 1; of the others 2 and 4 are equally popular; nobody ever had 5
    assert ranks == [1, 3, 4.5, 2, 4.5, MISS]


def quality_of(service: Running) -> LiveQuality:
    found = service.service.quality
    assert found is not None
    return found


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Running]:
    with running(bundle_of("lightgc2n-plus"), store=filled(str(tmp_path / "events.db"))) as service:
        yield service


@pytest.fixture
def client(live: Running) -> Client:
    return live.client()


def scored(client: Client) -> int:
    return sum(day["scored"] for day in client.get("/v1/quality").json["days"])


def test_the_rank_of_an_event_is_that_of_the_list_before_it(live: Running, client: Client) -> None:
    dataset = live.service.served.recommender.dataset
    account = dataset.accounts[0]
    items = client.recommend(account=account, k=10).json["items"]
    third = items[2]["item"]
    now = time.time_ns() // 1000
    assert client.post("/v1/events", {"account": account, "item": third, "time": now, "id": "x"}).status == 201
    assert client.post("/v1/events", {"account": account, "item": third, "time": now, "id": "x"}).status == 201
    wait_for(lambda: scored(client) == 1)
    (day,) = client.get("/v1/quality").json["days"]
    assert day["model"] == {"mrr": pytest.approx(1 / 3), "rc": 1.0}
    assert (day["received"], day["scored"]) == (2, 1)  # the second is the same event again
    assert day["day"] == str(np.datetime64(now // DAY, "D"))
    assert day["models"] == [live.service.served.checksum]
    text = client.get("/metrics").body.decode()
    assert f'lightgc2n_live_questions{{day="{day["day"]}"}} 1' in text
    assert f'lightgc2n_live_mrr20{{day="{day["day"]}",scorer="model"}} 0.333' in text


def test_an_event_that_is_no_question_is_received_but_not_scored(live: Running, client: Client) -> None:
    dataset = live.service.served.recommender.dataset
    assert dataset.times is not None
    account, now = dataset.accounts[0], time.time_ns() // 1000
    old = int(dataset.times.min())
    events = [
        {"account": "somebody-new", "item": dataset.items[0], "time": now},  # no history
        {"account": account, "item": dataset.items[0], "time": old},  # a late copy of the past
        {"account": account, "item": dataset.items[0], "time": "2200-01-01"},  # a wrong clock
        {"account": dataset.accounts[1], "item": "unknown-item", "time": now},  # a question, and a miss
    ]
    assert client.post("/v1/events", {"events": events}).json["stored"] == 4
    wait_for(lambda: scored(client) == 1)
    days = client.get("/v1/quality").json["days"]
    assert sum(day["received"] for day in days) == 3
    assert days[-1]["model"] == {"mrr": 0.0, "rc": 0.0}
    assert history_of(client, account)


def test_days_join_models_and_take_the_better_baseline() -> None:
    days = [
        DayQuality(0, "a", QualitySums(10, 4, 2.0, 3.0, 0.4, 1.0, 1.0, 2.0)),
        DayQuality(0, "b", QualitySums(10, 4, 0.0, 1.0, 0.4, 1.0, 1.0, 2.0)),
        DayQuality(1, "b", QualitySums(5)),
    ]
    found = by_day(days)
    assert found["baseline"].startswith("the account's own items")
    assert found["days"][0]["model"] == {"mrr": 0.25, "rc": 0.5}
    assert found["days"][0]["baseline"] == {"mrr": 0.25, "rc": 0.5}
    assert found["days"][1] == {
        "day": "1970-01-02", "received": 5, "scored": 0, "models": [], "model": None, "baseline": None,
    }  # fmt: skip
    assert 'lightgc2n_live_rc20{day="1970-01-01",scorer="recent"} 0.5' in metrics_text(days, 0)


def test_under_load_events_are_skipped_and_counted(live: Running) -> None:
    quality, served = quality_of(live), live.service.served
    history = served.recommender.stored_history(served.recommender.dataset.accounts[0])
    assert history is not None
    quality._ended = True  # nobody empties the queue
    quality._wake.set()
    quality._thread.join()
    event = NewEvent("a", served.recommender.dataset.items[0], time.time_ns() // 1000)
    assert len(quality.select([event] * 1000)) <= 8  # of one request only a few histories are read
    quality.record(served, [RecordedEvent(event, history)] * (LONGEST_QUEUE + 7))
    assert quality.dropped == 7
    assert quality.select([event] * 1000) == []  # the queue is full


def test_promotions_are_read_beside_the_link_alone(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "live").symlink_to("bundle")
    assert promotions(tmp_path / "live") == []
    entries = [{"round": 1, "kind": "first", "at": "2026-01-01", "until": 5}]
    (tmp_path / "promotions.json").write_text(json.dumps({"made_by": "lightgc2n 0.1.0", "promotions": entries}))
    (found,) = promotions(tmp_path / "live")
    assert (found["round"], found["kind"], found["judged"]) == (1, "first", None)
    assert "until" not in found
    assert promotions(tmp_path / "bundle") == []
    (tmp_path / "promotions.json").write_text('{"made_by": "somebody", "promotions": [{}]}')
    assert promotions(tmp_path / "live") == []


def test_without_a_store_nothing_is_recorded() -> None:
    with running(bundle_of("lightgc2n-plus")) as service:
        found = service.client().get("/v1/quality").json
    assert found == {"days": [], "baseline": None, "promotions": [], "recording": "off"}
