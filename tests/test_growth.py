"""The benchmark of growth measures what it says: equal accounts, and the exponent of a power."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def growth() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module("growth")


def test_every_account_holds_as_many_different_items(growth: ModuleType) -> None:
    train = growth.generated(500)
    logs = train.events.reshape(500, growth.HELD)
    assert all(len(set(log)) == growth.HELD for log in logs.tolist())
    assert train.events.min() >= 0
    assert train.events.max() < growth.ITEMS


def test_an_epoch_is_the_cost_of_a_step_times_the_steps(growth: ModuleType) -> None:
    for way in growth.WAYS:
        row = growth.measure(600, 1, way)
        assert (row["steps"], row["rows"]) == (3, 256)  # 600 accounts
        assert row["seconds"] > 0
        assert row["peak"] > 100
    whole = growth.whole_epoch(300, "lightgc2n", threads=1)
    assert "300 accounts, 15 events each, 20,000 items, 1 threads: one epoch of 2 steps of 256 sequences" in whole


def test_what_was_measured_is_kept_and_the_fixed_batch_ends_early(
    growth: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def process(accounts: int, steps: int, way: str) -> dict[str, float]:
        measured.append((accounts, way))
        return {"seconds": float(accounts)}

    monkeypatch.setattr(growth, "in_a_process_of_its_own", process)
    for _ in range(2):
        found = growth.measure_all(list(growth.WAYS), [100, 1000], 500, 2, 1, tmp_path / "kept.json")
        assert {way: list(sizes) for way, sizes in found.items()} == {
            "lightgc2n": [100, 1000], "lightgc2n, 256 sequences a step": [100], "lightgc2n-plus": [100, 1000]
        }  # fmt: skip
    assert len(measured) == 5


@pytest.mark.parametrize("power", [0.5, 1.0, 1.4])
def test_the_exponent_of_a_power_is_estimated(growth: ModuleType, power: float) -> None:
    sizes = np.array([1000, 4000, 16000])
    slope, constant = growth.line_through(sizes, 0.25 * sizes**power)
    assert slope == pytest.approx(power)
    assert np.exp(constant) == pytest.approx(0.25)


def test_the_report_distinguishes_linear_from_faster_growth(growth: ModuleType) -> None:
    def sizes(power: float) -> dict[int, list[dict[str, float]]]:
        fixed = {"system": 0.0, "peak": 1.0, "steps": 1, "rows": 1}
        return {n: [{"seconds": n**power, **fixed}] for n in (10, 100)}

    assert "accounts^1.10, at most 1.15" in growth.report({"lightgc2n": sizes(1.1)})
    assert "accounts^1.20, MORE THAN 1.15" in growth.report({"lightgc2n": sizes(1.2)})
