"""docs/equations.md is right: functions, tests and marks exist, and parameters are as many as it counts."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.models.lightgc2n.ablations import VARIANTS
from tests.models.small import SPLIT, model_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
EQUATIONS = range(1, 23)


def table(heading: str) -> dict[str, list[str]]:
    """First cell -> the other cells, of the tables under a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


PLACES = table("Where each is computed and tested")
READINGS = table("How each is read, and why")
FORMULAS = table("How many parameters")


def marks(source: str) -> set[int]:
    """The numbers of all equations that a source names: Eq. 5; Eq. 15, 16; Eq. 12 to 14."""
    actual: set[int] = set()
    for first, rest in re.findall(r"Eq\. (\d+)((?:, \d+| to \d+)*)", source):
        numbers = [int(first), *map(int, re.findall(r"\d+", rest))]
        actual |= set(range(numbers[0], numbers[-1] + 1)) if "to" in rest else set(numbers)
    return actual


def test_marks_by_hand() -> None:
    assert marks("x  # Eq. 5\ny  # Eq. 7, 8\nz  # Eq. 12 to 14, before Eq. 20") == {5, 7, 8, 12, 13, 14, 20}


def test_every_equation_has_a_row_in_both_tables() -> None:
    numbers = [str(number) for number in EQUATIONS]
    assert [key for key in PLACES if key.isdigit()] == numbers
    assert [key for key in READINGS if key.isdigit()] == numbers
    assert all(len(READINGS[key]) == 3 and all(READINGS[key]) for key in numbers)


@pytest.mark.parametrize("number", EQUATIONS)
def test_the_function_computes_the_equation(number: int) -> None:
    module, name = PLACES[str(number)][1].strip("`").split(":")
    actual: Any = importlib.import_module(module)
    for part in name.split("."):
        actual = getattr(actual, part)
    assert number in marks(inspect.getsource(inspect.unwrap(actual))), f"{name} has no mark Eq. {number}"


@pytest.mark.parametrize("number", EQUATIONS)
def test_the_test_exists(number: int) -> None:
    path, name = PLACES[str(number)][2].strip("`").split("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_no_mark_in_the_source_is_of_another_paper() -> None:
    parts = [ROOT / "lightgc2n" / part for part in ("graph", "layers", "models")]
    actual = {n for part in parts for path in part.rglob("*.py") for n in marks(path.read_text(encoding="utf-8"))}
    assert actual == set(EQUATIONS)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("users", "width", "capsule", "layers"), [(3, 16, 16, 2), (1, 5, 7, 1), (5, 8, 3, 4)])
def test_parameters_are_as_many_as_the_formula_says(
    name: str, users: int, width: int, capsule: int, layers: int
) -> None:
    model = model_of(name, latent_users=users, embedding_width=width, capsule_width=capsule, layers=layers)
    sizes = {"M": SPLIT.train.items, "N": SPLIT.train.accounts}
    sizes |= {"A": users, "W": width, "D": capsule, "L": layers}
    formula = FORMULAS[f"`{name}`"][0].strip("`")
    assert sum(parameter.numel() for parameter in model.parameters()) == eval(formula, {"__builtins__": {}}, sizes)
