"""What is searched: within bounds, of the right type, and accepted by every model of the zoo."""

import numpy as np
import pytest

from lightgc2n import zoo
from lightgc2n.config import read_settings
from lightgc2n.experiments import search_space
from lightgc2n.experiments.search_space import Choice, Span, propose, space_of
from lightgc2n.training.loop import TrainingConfig

TRAINED = [name for name, entry in zoo.ZOO.items() if not entry.is_simple]


@pytest.mark.parametrize("model", TRAINED)
def test_every_model_accepts_what_is_proposed(model: str) -> None:
    space = space_of(model)
    assert {"training.learning_rate", "training.weight_decay", "training.batch_size"} < set(space)
    for number in range(50):
        proposal = propose("random", space, number, 0, [])
        tables: dict[str, dict[str, object]] = {"training": {}, model: {}}
        for path, value in proposal.items():
            table, name = path.rsplit(".", 1)
            tables[table][name] = value
        read_settings(TrainingConfig, tables["training"], where="training")
        zoo.model_config(model, tables[model])


def test_a_fixed_setting_is_not_searched() -> None:
    everything = space_of("lightgc2n")
    assert set(everything) - set(space_of("lightgc2n", ["lightgc2n.layers"])) == {"lightgc2n.layers"}


def test_a_row_of_the_model_beats_the_common_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"dropout": Span(0.0, 0.5), "lightgc2n.dropout": Choice((0.3,)), "negatives": Choice((1, 2))}
    rows |= {"layers": Choice((1, 2)), "lightgc2n.layers": None, "lightgc2n-wo-a.layers": None}
    monkeypatch.setattr(search_space, "SPACES", rows)
    # In LightGC2N `negatives` is a text: the row of numbers is about something else.
    assert space_of("lightgc2n") == {"lightgc2n.dropout": Choice((0.3,))}
    assert space_of("lightgc2n-wo-a") == {"lightgc2n-wo-a.dropout": Span(0.0, 0.5)}


def test_bounds_of_a_setting_cut_what_is_searched() -> None:
    assert Choice((1, 2, 4, 8)).within(2, 4) == Choice((2, 4))
    assert Choice((1, 2)).within(3, 9) is None
    assert Span(0.1, 0.9).within(0.5, np.inf) == Span(0.5, 0.9)
    assert Span(0.1, 0.9, log=True).within(1, 2) is None


def test_spans_are_drawn_evenly_and_with_few_digits() -> None:
    random = np.random.default_rng(0)
    orders = np.array([Span(1e-4, 1e-2, log=True).draw(random) for _ in range(2000)])
    plain = np.array([Span(0.0, 0.5).draw(random) for _ in range(2000)])
    for drawn, middle in ((orders, 1e-3), (plain, 0.25)):
        assert abs((drawn < middle).mean() - 0.5) < 0.05  # 4.5 standard deviations
    assert all(len(f"{value:e}".rstrip("0").split("e")[0].rstrip("0")) <= 3 for value in orders)  # as 1.2e-3
    assert (orders.min(), orders.max()) >= (1e-4, 1e-4)
    assert orders.max() <= 1e-2
    assert np.allclose(plain * 100, np.round(plain * 100))


def test_a_proposal_follows_from_seed_and_number() -> None:
    space = space_of("lightgc2n")
    again = [propose("random", space, 3, 7, []) for _ in range(2)]
    assert again[0] == again[1]
    assert propose("random", space, 4, 7, []) != again[0]
    assert propose("random", space, 3, 8, []) != again[0]


def test_optuna_proposes_from_earlier_trials() -> None:
    pytest.importorskip("optuna")
    space = {"training.learning_rate": Span(1e-4, 1e-2, log=True), "training.batch_size": Choice((64, 128))}
    rates = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 8e-3, 1e-2]
    told = [({"training.learning_rate": rate, "training.batch_size": 64}, rate) for rate in rates]
    outside = [({"training.learning_rate": 0.5, "training.batch_size": 7}, 1.0)]  # defaults need not lie within
    actual = [propose("optuna", space, number, 0, told + outside) for number in range(8, 28)]
    assert actual[0] == propose("optuna", space, 8, 0, told + outside)
    assert all(space[name].holds(value) for proposal in actual for name, value in proposal.items())
    # What it was told says that larger is better, so most of what it proposes is large.
    assert np.mean([proposal["training.learning_rate"] > 1e-3 for proposal in actual]) > 0.7
