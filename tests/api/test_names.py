"""The public names: complete, typed, documented, and imported only when used."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import lightgc2n as lg

NAMES = [name for name in lg.__all__ if not name.startswith("__")]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_documented(name: str) -> None:
    actual = getattr(lg, name)
    assert inspect.getdoc(actual)
    assert name in dir(lg)
    if inspect.isclass(actual) and not issubclass(actual, Exception):
        for method, function in inspect.getmembers(actual, inspect.isroutine):
            if not method.startswith("_") and function.__module__.startswith("lightgc2n."):
                assert inspect.getdoc(function), f"{name}.{method}"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isfunction(getattr(lg, name))])
def test_functions_are_annotated_and_say_what_their_arguments_mean(name: str) -> None:
    function = getattr(lg, name)
    signature, text = inspect.signature(function), inspect.getdoc(function) or ""
    assert signature.return_annotation is not inspect.Signature.empty
    for argument, parameter in signature.parameters.items():
        assert parameter.annotation is not inspect.Parameter.empty, argument
        assert f"{argument}:" in text, f"{name}: {argument} is not described"


def test_the_package_has_an_example_of_each_name_in_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    assert not [name for name in NAMES if name not in page]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lightgc2n' has no attribute 'fit'"):
        lg.fit  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, lightgc2n; assert not {'torch', 'numpy', 'polars', 'pandas', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_data_and_results_need_no_torch() -> None:
    code = "import sys, lightgc2n as lg; lg.Dataset; lg.Recommendations; lg.Bundle; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
