"""The paper's numbers are the paper's, and what cannot be among them is found."""

from pathlib import Path

import numpy as np
import pytest

from lightgc2n.experiments.results import METRICS
from lightgc2n.metrics.ranking import gains
from lightgc2n.paper import published
from lightgc2n.paper.published import contradictions, impossible

ROWS = [
    line.split()
    for line in Path(__file__).with_name("published.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
SOURCE = Path(published.__file__).read_text(encoding="utf-8").splitlines()


def commented(line: str) -> list[float]:
    """The numbers of the code line that names this line of the LaTeX source."""
    (code,) = (row.partition("#")[0] for row in SOURCE if row.endswith(f"# {line}"))
    values = code.partition(":")[2] or code
    return [
        float(word) for word in values.replace("_", "").replace("(", " ").replace(")", " ").split(",") if word.strip()
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_line_says_what_the_source_prints(row: list[str]) -> None:
    printed = row[4:] if row[1] == "table1" else row[3:]
    assert commented(row[0]) == [float(number) for number in printed]


def test_rows_match_their_names() -> None:
    for _, table, *row in ROWS:
        if table == "table1":
            dataset, metric, *printed = row
            cells = [published.table1()[dataset, model][metric] for model in published.MODELS]
            assert cells == [float(number) for number in printed]
        elif table == "table2":
            variant, *printed = row
            cells = [published.table2()[name, variant][metric] for name in ("HV-E", "HV-V") for metric in METRICS]
            assert cells == [float(number) for number in printed]


def test_the_full_model_has_the_same_numbers_in_both_tables() -> None:
    for dataset in ("HV-E", "HV-V"):
        assert published.table1()[dataset, "LightGC2N"] == published.table2()[dataset, "LightGC2N"]


def test_eighteen_of_forty_cells_of_table_1_cannot_be() -> None:
    found = impossible(published.table1())
    assert len(published.table1()) == 40
    assert len(found) == 18
    assert found["HV-V", "NCF"][0] == "RC@20 22.63 is below RC@5 27.21"
    assert "MRR@5 15.74 is above RC@5 14.57" in found["HA-B", "TGSRec"]


def test_by_hand() -> None:
    # 10 targets between 6 and 20 add 10/20 = 0.5 to 10/6 = 1.67 to MRR.
    scores = {"RC@5": 20.0, "RC@20": 30.0, "MRR@5": 10.0, "MRR@20": 11.0}
    assert not list(contradictions(scores))
    assert list(contradictions(scores | {"MRR@20": 12.0})) == [
        "MRR grows by 2.00 from 5 to 20, and 10.00 more hits can add at most 1.67"
    ]
    assert list(contradictions(scores | {"MRR@20": 10.4})) == [
        "MRR grows by 0.40 from 5 to 20, and 10.00 more hits must add at least 0.50"
    ]


def test_rounding_is_forgiven() -> None:
    # 10.00 more hits add at most 1.6667; both ends of MRR may be off by 0.005, both of RC by 0.005.
    scores = {"RC@5": 20.0, "RC@20": 30.0, "MRR@5": 10.0, "MRR@20": 11.677}
    assert not list(contradictions(scores))
    assert list(contradictions(scores | {"MRR@20": 11.68}))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_measured_never_contradicts_itself(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranks = np.floor(np.exp(generator.uniform(0, generator.uniform(0.5, 6), size=50))).astype(np.float64)
    means = {name: round(100 * float(column.mean()), 2) for name, column in gains(ranks, (5, 20)).items()}
    assert not impossible({"ours": means})
