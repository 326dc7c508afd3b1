"""Signs of life of workers, on a clock of the test."""

import pytest

from lightgc2n.training import beats
from lightgc2n.training.beats import Beats


class Counters:
    """The counters of the store where workers meet."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def add(self, key: str, amount: int) -> int:
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(beats, "time", clock)
    return clock


def silent_after(watched: Beats, clock: Clock, seconds: float) -> list[int]:
    """The workers that are silent after so many seconds, looked at ten times a second."""
    for _ in range(round(10 * seconds)):
        clock.now += 0.1
        found = watched.silent()
    return found


def test_a_worker_without_signs_of_life_is_silent_once_it_gave_one(clock: Clock) -> None:
    store = Counters()
    watched = Beats(store, 2, 5.0)  # type: ignore[arg-type]
    assert silent_after(watched, clock, 9.0) == []  # neither has begun
    store.add("beats of worker 1", 1)
    assert silent_after(watched, clock, 4.9) == []
    assert silent_after(watched, clock, 0.4) == [1]
    store.add("beats of worker 1", 1)
    assert watched.silent() == []


def test_time_in_which_this_process_was_stopped_does_not_count(clock: Clock) -> None:
    store = Counters()
    watched = Beats(store, 1, 5.0)  # type: ignore[arg-type]
    store.add("beats of worker 0", 1)
    watched.silent()
    clock.now += 1000.0
    assert watched.silent() == []


def test_a_limit_shorter_than_three_signs_of_life_does_not_end_healthy_workers(clock: Clock) -> None:
    store = Counters()
    watched = Beats(store, 1, 0.5)  # type: ignore[arg-type]
    for _ in range(5):
        store.add("beats of worker 0", 1)
        assert silent_after(watched, clock, 1.0) == []
    assert silent_after(watched, clock, 3.0) == [0]
