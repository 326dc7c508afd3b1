"""The result of `identify --who` as tables: log loss and accuracy of each method after each number of events begun."""

from collections.abc import Iterator
from typing import Any

from lightgc2n.experiments.table import Cell, Table

PEOPLE = ("found", "known")
TITLES = {
    "shared": "each person found stands for the true people as they share earlier events",
    "one to one": "each person found stands for one true person, by earlier events",
}


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """One table for each way of matching found people to true ones."""
    for match, rows in result["tables"].items():
        steps = range(max(len(row["steps"]) for row in rows.values()))
        headings = [f"{what}, {step} begun" for what in ("log loss", "accuracy") for step in steps]
        cells = tuple((Cell(name), *map(Cell, _row(row["steps"], len(steps)))) for name, row in rows.items())
        caption = f"{result['dataset']['name']}, who is watching; {TITLES[match]}"
        yield Table(
            match,
            caption,
            ("people: method", *headings, *(f"p, references of {whose} people" for whose in PEOPLE)),
            cells,
        )


def _row(steps: list[dict[str, Any]], most: int) -> list[str]:
    def shown(measure: str) -> list[str]:
        values = [f"{step[measure]['value']:.4f}" for step in steps]
        return values + ["-"] * (most - len(values))

    p_values = (", ".join(_largest_p(step, whose) for step in steps) for whose in PEOPLE)
    return [*shown("log loss"), *shown("accuracy"), *p_values]


def _largest_p(step: dict[str, Any], whose: str) -> str:
    """The larger p-value of the comparisons with the references of these people; `-` if the loss is not below both."""
    below = [one for name, one in step["below"].items() if name.startswith(whose)]
    if any(one["by"] <= 0 for one in below):
        return "-"
    largest = max(one["p"] for one in below)
    return "< 0.001" if largest < 0.001 else f"{largest:.3f}"


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Notes on the queries and on the fitted settings."""
    first = next(iter(result["tables"]["shared"].values()))["steps"]
    asked = ", ".join(f"{step['questions']:,} after {step['begun']}" for step in first)
    yield (
        f"{result['questions']:,} sessions of {result['accounts']:,} accounts ({result['options']['accounts']}); "
        f"scored, by events begun: {asked}. One person was found in {100 * result['of_one_person_found']:.0f} % of "
        f"them; {100 * result['of_people_not_seen_before']:.1f} % are of somebody not seen before and not scored."
    )
    fitted = result["fitted"]
    yield (
        f"Fitted on validation accounts: the last person found stays with {fitted['found stays']:.2f}, the last true "
        f"person with {fitted['known stays']:.2f}; a one-to-one match leaves {fitted['unmatched']:.2f} to others."
    )
    yield (
        "p: paired by account, the larger one of the comparisons with the two references, by events begun; -: the loss "
        "is not below both."
    )
