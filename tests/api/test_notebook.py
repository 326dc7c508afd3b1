"""The notebooks of examples/ run from start to end, and show progress in place."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
# In a process of its own: the packages of a notebook warn, and warnings are errors here.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


def executed(notebook: Path, folder: Path) -> list[Any]:
    """The outputs of all cells, in their order."""
    import nbformat

    words = [sys.executable, "-c", EXECUTE, str(notebook), str(folder), str(folder / "executed.ipynb")]
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "IPYTHONDIR": str(folder)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(folder / "executed.ipynb", as_version=4).cells
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["households.ipynb"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    outputs = executed(notebook, tmp_path)
    shown = [output.get("data", {}) for output in outputs]
    assert sum("image/png" in data for data in shown) == 4
    assert not [output for output in outputs if output.get("name") == "stderr"], "progress is no line on stderr"
    emptied = [data for data in shown if data.get("text/html") == ""]
    assert emptied, "progress was shown in place, and emptied at the end"
    tables = "".join(data.get("text/html", "") for data in shown)
    assert "items for account" in tables
    assert "lightgc2n-plus" in tables
    assert "┏" not in "".join(data.get("text/plain", "") for data in shown if "text/html" not in data), "HTML tables"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_committed_without_outputs(notebook: Path) -> None:
    import nbformat

    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not [cell for cell in cells if cell.outputs or cell.execution_count is not None]
