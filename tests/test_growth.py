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


def test_edges_grow_with_the_accounts(growth: ModuleType) -> None:
    actual = {accounts: growth.measure(accounts, 1, growth.KEPT) for accounts in (600, 1200)}
    most = {accounts: accounts * (2 * growth.HELD - 1) for accounts in actual}  # 15 items and 14 steps an account
    for accounts, row in actual.items():
        assert 0.99 * most[accounts] <= row["edges"] <= most[accounts]  # a step that two accounts share is one edge
        assert row["seconds"] > 0


@pytest.mark.parametrize("power", [0.5, 1.0, 1.4])
def test_the_exponent_of_a_power_is_estimated(growth: ModuleType, power: float) -> None:
    sizes = np.array([1000, 4000, 16000])
    slope, constant = growth.line_through(sizes, 0.25 * sizes**power)
    assert slope == pytest.approx(power)
    assert np.exp(constant) == pytest.approx(0.25)


def test_the_report_distinguishes_linear_from_faster_growth(growth: ModuleType) -> None:
    def sizes(power: float) -> dict[int, list[dict[str, float]]]:
        return {n: [{"seconds": n**power, "system": 0.0, "peak": 1.0, "edges": 29 * n}] for n in (10, 100)}

    assert "accounts^1.10, at most 1.15" in growth.report({growth.KEPT: sizes(1.1)})
    assert "accounts^1.20, MORE THAN 1.15" in growth.report({growth.KEPT: sizes(1.2)})
