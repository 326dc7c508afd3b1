"""Progress lines: a pace that is never 0.0, times in a unit that suits them, and the time left."""

import io

import pytest
from rich.console import Console

from lightgc2n import progress
from lightgc2n.progress import _LineStep, duration, pace


@pytest.mark.parametrize(
    ("steps", "seconds", "shown"),
    [
        (540, 10.0, "54.0 steps/s"),
        (2, 2.0, "1.0 steps/s"),
        (2, 70.0, "35 s a step"),
        (2, 9.0, "4.5 s a step"),
        (1, 600.0, "10 min a step"),
        (0, 1.0, "0.0 steps/s"),
    ],
)
def test_a_slow_step_is_shown_by_its_seconds(steps: int, seconds: float, shown: str) -> None:
    assert pace(steps, seconds) == shown


def test_times_have_the_unit_that_suits_them() -> None:
    assert [duration(seconds) for seconds in (0.24, 12, 89, 90, 600, 5400, 36_000)] == [
        *("0.2 s", "12 s", "89 s", "1.5 min", "10 min", "1.5 h", "10 h")
    ]


def test_a_line_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 30.0, 30.0])  # twice at the start; then when a line is due, and when it is written
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    written = io.StringIO()
    _LineStep("epoch 0", 4, Console(file=written, width=80)).advance()
    assert written.getvalue() == "epoch 0: 25 %, about 1.5 min left\n"  # a quarter took 30 s


def test_tracked_values_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[progress.Step] = []

    class Kept(progress.Output):
        def step(self, title: str, total: float | None) -> progress.Step:
            steps.append(super().step(title, total))
            return steps[-1]

    with progress.sent_to(Kept()):
        assert list(progress.tracked("counting", range(3))) == [0, 1, 2]
    assert [(one.title, one.total, one.done) for one in steps] == [("counting", 3, 3)]
