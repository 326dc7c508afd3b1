"""The numbers that JavaScript shares with Python: read from the bundle, or equal where the format fixes them."""

import json
import re
from typing import Any

import pytest

from lightgc2n.export.onnx_builder import NOTHING
from lightgc2n.people.sessions import HOUR
from lightgc2n.recommending.bundle_files import FORMAT, OLDEST_SCHEMA, SCHEMA
from lightgc2n.recommending.bundle_parts import MIDDLE
from lightgc2n.recommending.bundle_schema import FINDER_CONSTANTS
from lightgc2n.recommending.load_bundle import NIBBLE_MIDDLE, finder_constants
from tests.serving.folders import PAGE

DEVICE = PAGE / "device"
NUMBER = re.compile(r"^(?:export )?const ([A-Z_]+) = ([^;]+);", re.MULTILINE)


def constants(file: str) -> dict[str, Any]:
    """The constants in capitals at the start of a file's lines that are plain numbers, texts, lists or objects."""
    values = {}
    for name, text in NUMBER.findall((DEVICE / file).read_text(encoding="utf-8")):
        try:
            values[name] = json.loads(text.removesuffix("n"))
        except json.JSONDecodeError:
            continue
    return values


def test_older_bundles_get_the_constants_that_python_has() -> None:
    """Changing one in Python alone would make the browser and the service disagree on bundles without the field."""
    assert constants("finder.js")["FIRST_CONSTANTS"] == finder_constants()


def test_the_schema_declares_every_constant() -> None:
    assert FINDER_CONSTANTS.optional.keys() == finder_constants().keys()
    FINDER_CONSTANTS.check(finder_constants(), "constants")


def test_constants_of_the_file_format_are_equal() -> None:
    finder, bundle = constants("finder.js"), constants("bundle.js")
    assert (finder["MIDDLE"], finder["NIBBLE_MIDDLE"]) == (MIDDLE, NIBBLE_MIDDLE)
    assert (bundle["FORMAT"], bundle["SCHEMAS"]) == (FORMAT, [OLDEST_SCHEMA, SCHEMA])
    assert constants("recommend.js")["NOTHING"] == NOTHING
    assert constants("times.js")["HOUR"] == HOUR


@pytest.mark.parametrize("file", ["assigning.js", "people.js", "sessions.js"])
def test_people_code_has_no_constants_of_its_own(file: str) -> None:
    assert constants(file) == {}
