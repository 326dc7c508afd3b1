"""The paper's own numbers (Zhang et al., AAAI 2025), in % as printed, and its tables checked by arithmetic.

Comments give the line in the paper's LaTeX source. The check: a target at rank r adds 1 to Recall@N and 1/r to MRR@N if
r is at most N. A target at ranks 6 to 20 therefore adds 1 to RC@20 - RC@5, and at least 1/20 and at most 1/6 to
MRR@20 - MRR@5. Numbers outside these bounds cannot come from one ranking of one set of targets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from lightgc2n.experiments.results import METRICS
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.document import Section

Scores = Mapping[str, float]  # the four metrics, in % as printed
Which = TypeVar("Which")
OURS = "LightGC2N"
TRADITIONAL = ("NCF", "LightGCN")
SEQUENTIAL = ("HRNN", "NAIS", "TGSRec")
GRAPH_SHARED = ("DA-GCN", "TiDA-GCN")
SHARED = ("π-Net", "PSJNet", *GRAPH_SHARED)
BASELINES = (*TRADITIONAL, *SEQUENTIAL, *SHARED)
MODELS = (*BASELINES, OURS)

# Each model of the paper by its names in the zoo; PSJNet was published in two variants.
IN_THE_ZOO = {
    "NCF": ("neumf",),
    "LightGCN": ("lightgcn",),
    "HRNN": ("hrnn",),
    "NAIS": ("nais",),
    "TGSRec": ("tgsrec",),
    "π-Net": ("pi-net",),
    "PSJNet": ("psjnet-1", "psjnet-2"),
    "DA-GCN": ("da-gcn",),
    "TiDA-GCN": ("tida-gcn",),
    "LightGC2N": ("lightgc2n",),
}

# Table 1: a row for each metric of METRICS, a column for each of MODELS.
TABLE1 = {
    "HV-E": (
        (11.25, 20.70, 22.55, 19.80, 19.91, 25.13, 24.80, 51.35, 54.11, 61.35),  # 298
        (20.12, 39.92, 47.98, 40.17, 41.80, 47.08, 46.68, 66.93, 68.98, 72.73),  # 299
        (5.77, 11.55, 13.76, 11.45, 13.95, 15.36, 15.37, 35.63, 38.66, 46.24),  # 300
        (7.85, 13.56, 16.14, 13.24, 15.73, 17.52, 17.56, 37.27, 40.23, 47.35),  # 301
    ),
    "HV-V": (
        (27.21, 58.45, 68.00, 59.30, 58.91, 67.00, 66.86, 75.39, 76.37, 79.29),  # 303
        (22.63, 63.55, 73.24, 67.41, 67.22, 74.17, 74.14, 82.37, 83.58, 84.70),  # 304
        (22.99, 54.00, 60.58, 51.52, 50.32, 60.37, 61.89, 59.78, 63.58, 66.27),  # 305
        (24.71, 56.72, 63.31, 54.47, 53.40, 61.74, 62.63, 60.55, 65.37, 66.87),  # 306
    ),
    "HA-M": (
        (7.82, 15.54, 16.96, 14.03, 14.59, 18.54, 16.25, 22.93, 23.55, 46.02),  # 308
        (10.34, 18.20, 20.81, 16.02, 18.44, 21.87, 18.14, 23.90, 24.33, 48.46),  # 309
        (2.72, 12.88, 13.75, 10.55, 11.91, 16.24, 11.25, 20.09, 20.91, 41.30),  # 310
        (3.11, 13.12, 14.14, 12.57, 14.00, 16.56, 13.58, 20.19, 21.23, 41.64),  # 311
    ),
    "HA-B": (
        (8.31, 21.14, 20.92, 14.51, 14.57, 22.44, 16.67, 23.93, 24.69, 47.36),  # 313
        (11.22, 22.88, 23.64, 19.82, 19.93, 23.75, 19.30, 24.25, 24.82, 48.55),  # 314
        (7.92, 15.58, 17.04, 13.29, 15.74, 20.38, 15.52, 21.35, 21.88, 44.40),  # 315
        (9.88, 17.30, 17.35, 15.99, 16.63, 20.58, 17.30, 21.39, 22.21, 44.52),  # 316
    ),
}
DATASETS = tuple(TABLE1)

# Table 2: without linear attention, routing, capsules, contrast, alignment, all; RC@5 to MRR@20 on HV-E, then on HV-V.
TABLE2 = {
    "LA": ((58.33, 67.58, 39.71, 40.24), (76.01, 81.61, 63.17, 64.04)),  # 361
    "DR": ((59.86, 68.66, 40.52, 41.44), (77.33, 82.15, 64.22, 64.75)),  # 363
    "C": ((53.46, 66.88, 35.42, 36.91), (73.12, 78.88, 61.72, 63.92)),  # 365
    "CL": ((59.96, 71.12, 43.51, 44.68), (77.02, 83.15, 64.85, 65.10)),  # 367
    "S": ((57.96, 70.12, 40.51, 41.68), (75.12, 82.16, 62.88, 64.05)),  # 369
    "A": ((22.90, 43.42, 16.26, 22.97), (60.58, 65.30, 54.94, 57.82)),  # 371
    OURS: ((61.35, 72.73, 46.24, 47.35), (79.29, 84.70, 66.27, 66.87)),  # 374
}
VARIANTS = tuple(name for name in TABLE2 if name != OURS)

# Appendix A2: of HV-E, HV-V, HA-M, HA-B; accounts and sequences of both Hvideo and both Hamazon sets.
STATISTICS = {
    "items": (8_367, 11_404, 67_161, 126_547),  # 461
    "interactions": (2_129_500, 1_893_784, 2_196_574, 2_135_995),  # 462
    "accounts": (13_714, 13_724),  # 464
    "training sequences": (114_197, 122_303),  # 465
    "test sequences": (20_152, 21_582),  # 466
}

COMMAND = "lightgc2n report DIR"
EXPLAINED = (
    "Recall@N (RC@N) is the share of targets within the first N places; MRR@N adds 1/rank for each of them. A target "
    "that ranks between 6 and 20 therefore adds between 1/20 and 1/6 to MRR@20 − MRR@5, and the numbers of one model "
    "on one dataset must obey (RC@20 − RC@5)/20 ≤ MRR@20 − MRR@5 ≤ (RC@20 − RC@5)/6, RC@5 ≤ RC@20 and MRR ≤ RC.",
    "Numbers that break such a rule by more than rounding cannot come from one ranking of one set of targets. How they "
    "came about the tables do not say.",
)


def impossible(cells: Mapping[Which, Scores], rounding: float = 0.005) -> dict[Which, tuple[str, ...]]:
    """For each impossible cell the rules that it breaks.

    Args:
        rounding: how much a printed number may differ from the measured one.
    """
    rules = {which: tuple(contradictions(scores, rounding)) for which, scores in cells.items()}
    return {which: broken for which, broken in rules.items() if broken}


def contradictions(scores: Scores, rounding: float = 0.005) -> Iterator[str]:
    """Each inequality that the four metrics of one model on one dataset break, with its numbers."""
    recall5, recall20, mrr5, mrr20 = (scores[metric] for metric in METRICS)
    hits, gain = recall20 - recall5, mrr20 - mrr5  # of the ranks 6 to 20
    both = 2 * rounding + 1e-9  # a difference of two rounded numbers, and floating-point error
    if hits < -both:
        yield f"RC@20 {recall20:.2f} is below RC@5 {recall5:.2f}"
    elif gain > hits / 6 + both * (1 + 1 / 6):
        yield f"MRR grows by {gain:.2f} from 5 to 20, and {hits:.2f} more hits can add at most {hits / 6:.2f}"
    elif gain < hits / 20 - both * (1 + 1 / 20):
        yield f"MRR grows by {gain:.2f} from 5 to 20, and {hits:.2f} more hits must add at least {hits / 20:.2f}"
    for cutoff, recall, mrr in ((5, recall5, mrr5), (20, recall20, mrr20)):
        if mrr > recall + both:
            yield f"MRR@{cutoff} {mrr:.2f} is above RC@{cutoff} {recall:.2f}"
        if mrr < recall / cutoff - both:
            yield f"MRR@{cutoff} {mrr:.2f} is below 1/{cutoff} of RC@{cutoff} {recall:.2f}"


def checked(cells: Mapping[str, Scores]) -> str:
    """A note for a table of ours: how many of its entries are impossible.

    Args:
        cells: the four metrics in % as printed, by the title of the row.
    """
    broken = impossible(cells)
    if not broken:
        return f"Arithmetic: none of the {len(cells)} entries breaks it."
    every = "; ".join(f"{name}: {', '.join(rules)}" for name, rules in broken.items())
    return f"Arithmetic: {len(broken)} of {len(cells)} entries break it: {every}."


def table1() -> dict[tuple[str, str], Scores]:
    """The four metrics of Table 1 by dataset and model: 40 cells."""
    return {
        (dataset, model): dict(zip(METRICS, column, strict=True))
        for dataset, rows in TABLE1.items()
        for model, column in zip(MODELS, zip(*rows, strict=True), strict=True)
    }


def table2() -> dict[tuple[str, str], Scores]:
    """The four metrics of Table 2 by dataset and variant: 14 cells."""
    return {
        (dataset, variant): dict(zip(METRICS, scores, strict=True))
        for variant, row in TABLE2.items()
        for dataset, scores in zip(DATASETS[:2], row, strict=True)
    }


def published_section() -> Section:
    """Tables 1 and 2 of the paper, their impossible entries marked."""
    tables = (
        _table("published-table1", "Table 1 of the paper", table1(), DATASETS, MODELS),
        _table("published-table2", "Table 2 of the paper", table2(), DATASETS[:2], tuple(TABLE2)),
    )
    return Section("published", "The paper's tables, checked by arithmetic", EXPLAINED, tables)


def _table(
    name: str, caption: str, cells: Mapping[tuple[str, str], Scores], datasets: Sequence[str], models: Sequence[str]
) -> Table:
    """As printed: a row for each metric on each dataset, a column for each model."""
    broken = impossible(cells)
    rows = tuple(
        (Cell(f"{data} {metric}"), *_row(cells, broken, data, metric, models))
        for data in datasets
        for metric in METRICS
    )
    note = f"{len(broken)} of the {len(cells)} entries (one model on one dataset) break arithmetic"
    columns = ("in %", *map(_title, models))
    return Table(name, f"{caption}; {note}", columns, rows, COMMAND)


def _title(model: str) -> str:
    return f"without {model}" if model in VARIANTS else model


def _row(
    cells: Mapping[tuple[str, str], Scores],
    impossible_cells: Mapping[tuple[str, str], tuple[str, ...]],
    dataset: str,
    metric: str,
    models: Sequence[str],
) -> list[Cell]:
    """One metric of all models; all four metrics of an impossible entry are marked, and the first has the note."""
    best = max(cells[dataset, model][metric] for model in models)
    row = []
    for model in models:
        value, broken = cells[dataset, model][metric], impossible_cells.get((dataset, model), ())
        mark = "impossible" if broken else "best" if value == best else ""
        note = f"{_title(model)} on {dataset}: {'; '.join(broken)}." if broken and metric == METRICS[0] else ""
        row.append(Cell(f"{value:.2f}", value, mark=mark, note=note))
    return row
