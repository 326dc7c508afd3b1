"""Sums of live quality, added up in both databases."""

from lightgc2n.store.event_store import EventStore
from lightgc2n.store.quality import DayQuality, QualitySums, add_quality, read_quality


def test_sums_of_several_workers_add_up(store: EventStore) -> None:
    database = store.database
    assert read_quality(database, 5) == []
    add_quality(database, {(10, "a"): QualitySums(4, 2, 1.0, 2.0), (11, "a"): QualitySums(1)})
    add_quality(database, {(10, "a"): QualitySums(6, 2, 0.5, 1.0), (10, "b"): QualitySums(1, 1, 0.5, 1.0)})
    assert read_quality(database, 1) == [DayQuality(11, "a", QualitySums(1))]
    assert read_quality(database, 5) == [
        DayQuality(10, "a", QualitySums(10, 4, 1.5, 3.0)),
        DayQuality(10, "b", QualitySums(1, 1, 0.5, 1.0)),
        DayQuality(11, "a", QualitySums(1)),
    ]
