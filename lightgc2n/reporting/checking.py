"""The paper's own tables with every entry that contradicts itself marked, and the same test for tables of ours."""

from collections.abc import Mapping, Sequence

from lightgc2n.reporting import published
from lightgc2n.reporting.arithmetic import METRICS, Scores, impossible
from lightgc2n.reporting.document import Cell, Section, Table

COMMAND = "lightgc2n report DIR"
EXPLAINED = (
    "Recall@N (RC@N) is the share of targets within the first N places; MRR@N adds 1/rank for each of them. A target "
    "that ranks between 6 and 20 therefore adds between 1/20 and 1/6 to MRR@20 − MRR@5, and the numbers of one model "
    "on one dataset must obey (RC@20 − RC@5)/20 ≤ MRR@20 − MRR@5 ≤ (RC@20 − RC@5)/6, RC@5 ≤ RC@20 and MRR ≤ RC.",
    "Numbers that break such a rule by more than rounding cannot come from one ranking of one set of targets. How they "
    "came about cannot be told from the tables.",
)


def published_section() -> Section:
    """Tables 1 and 2 of the paper."""
    tables = (
        _table("published-table1", "Table 1 of the paper", published.table1(), published.DATASETS, published.MODELS),
        _table(
            "published-table2",
            "Table 2 of the paper",
            published.table2(),
            published.DATASETS[:2],
            tuple(published.TABLE2),
        ),
    )
    return Section("published", "What the paper prints, checked by arithmetic", EXPLAINED, tables)


def checked(cells: Mapping[str, Scores]) -> str:
    """A note for a table of ours: what the same test says of it.

    Args:
        cells: by a name for people, the four metrics in % as printed.
    """
    found = impossible(cells)
    if not found:
        return f"Arithmetic: none of the {len(cells)} entries breaks it."
    broken = "; ".join(f"{name}: {', '.join(rules)}" for name, rules in found.items())
    return f"Arithmetic: {len(found)} of {len(cells)} entries break it: {broken}."


def _table(
    name: str, caption: str, cells: Mapping[tuple[str, str], Scores], datasets: Sequence[str], models: Sequence[str]
) -> Table:
    """As printed: a row for each metric on each dataset, a column for each model."""
    found = impossible(cells)
    rows = tuple(
        (Cell(f"{data} {metric}"), *_row(cells, found, data, metric, models)) for data in datasets for metric in METRICS
    )
    note = f"{len(found)} of the {len(cells)} entries (one model on one dataset) break arithmetic"
    columns = ("in %", *map(_called, models))
    return Table(name, f"{caption}; {note}", columns, rows, COMMAND)


def _called(model: str) -> str:
    return f"without {model}" if model in published.VARIANTS else model


def _row(
    cells: Mapping[tuple[str, str], Scores],
    found: Mapping[tuple[str, str], tuple[str, ...]],
    dataset: str,
    metric: str,
    models: Sequence[str],
) -> list[Cell]:
    """One metric of all models; of four that break a rule together all are marked, and the first has the note."""
    best = max(cells[dataset, model][metric] for model in models)
    row = []
    for model in models:
        value, broken = cells[dataset, model][metric], found.get((dataset, model), ())
        mark = "impossible" if broken else "best" if value == best else ""
        note = f"{_called(model)} on {dataset}: {'; '.join(broken)}." if broken and metric == METRICS[0] else ""
        row.append(Cell(f"{value:.2f}", value, mark=mark, note=note))
    return row
