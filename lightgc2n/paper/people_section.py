"""The results of `lightgc2n identify ... --out OUT/people/NAME` in the report: are latent users people?"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.claims import Agreement
from lightgc2n.paper.document import Section

FOLDER, RESULTS = "people", "results.json"
PAPERS = "lightgc2n-ownership"  # the strongest ownership of Eq. 5
MEASURES = {"shared ARI": "ARI", "accuracy": "matched accuracy", "least served": "least served member"}


def identified(out: Path) -> list[dict[str, Any]]:
    """The results of identify beside the experiments of `out`."""
    studies = []
    for path in sorted((out / FOLDER).glob(f"*/{RESULTS}")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            studies.append({"dataset": result["dataset"]["name"], "given": result["tables"]["given"]})
        except (ValueError, KeyError, TypeError) as problem:
            raise DataError(
                f"{path}: not the results of lightgc2n identify: {problem!r}. Run identify again."
            ) from None
    return studies


def agreements(studies: Sequence[Mapping[str, Any]]) -> list[Agreement]:
    """The agreement of the paper's latent users with the true people, over accounts of two people or more."""
    return [
        Agreement(one["dataset"], **one["given"][PAPERS]["measures"]["shared ARI"]["accounts"])
        for one in studies
        if PAPERS in one["given"]
    ]


def section(studies: Sequence[Mapping[str, Any]]) -> Section:
    """One table per dataset with a row per method."""
    text = (
        "Events assigned to people, on accounts whose people are known, with the true number of people given. ARI "
        "compares the assignment with the true people over accounts of two people or more: 1 is identical, 0 chance.",
    )
    return Section("people", "Are latent users people?", text, tuple(map(_table, studies)))


def _table(one: Mapping[str, Any]) -> Table:
    best = {name: max(_value(row, name)["value"] for row in one["given"].values()) for name in MEASURES}
    rows = tuple((Cell(method), *_cells(row, best)) for method, row in one["given"].items())
    caption = f"{one['dataset']}: events assigned to people, the count given"
    command = "lightgc2n identify DATA --methods all --run RUN --out OUT/people/NAME"
    note = "Means over accounts, with 95 % intervals over draws of accounts."
    return Table(
        f"people-{one['dataset']}".replace(" ", "-"), caption, ("method", *MEASURES.values()), rows, command, (note,)
    )


def _cells(row: Mapping[str, Any], best: Mapping[str, float]) -> Iterator[Cell]:
    for name in MEASURES:
        measured = _value(row, name)
        mark = "best" if measured["value"] == best[name] else ""
        yield Cell(f"{measured['value']:.3f}", measured["value"], measured["low"], measured["high"], mark)


def _value(row: Mapping[str, Any], name: str) -> Mapping[str, float]:
    value: Mapping[str, float] = row["measures"][name]["accounts"]
    return value
