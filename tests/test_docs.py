"""What the documentation says is what the software does."""

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lightgc2n.experiments.table import csv_text

ROOT = Path(__file__).parents[1]
TESTED = re.compile(r"<!-- tested -->\n```(sh|python)\n(.*?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [(page.name, *block) for page in PAGES[1:] for block in TESTED.findall(page.read_text(encoding="utf-8"))]


def test_some_blocks_are_tested() -> None:
    assert {(page, language) for page, language, _ in BLOCKS} >= {("index.md", "sh"), ("python.md", "python")}


# Those of the README are tested in order in test_readme.py.
@pytest.mark.parametrize(("page", "language", "code"), BLOCKS)
def test_the_code_of_the_documentation_runs(page: str, language: str, code: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shell = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
    bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": bin_first}
    done = subprocess.run([*shell, code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


RESULTS = ROOT / "results"
EARLIER = " †"  # a row of an earlier report
CALLED = {"LightGC²N": "lightgc2n", "LightGC²N, tuned": "lightgc2n", "π-Net": "pi-net", "PSJNet-II": "psjnet-2",
          "**LightGC²N-plus, ours**": "lightgc2n-plus", "LightGC²N-plus, width 32": "lightgc2n-plus"}  # fmt: skip


def test_the_tables_of_the_report_are_not_pasted_into_a_page() -> None:
    report = {line for line in (RESULTS / "report.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"}
    report = {line for line in report if any(sign.isdigit() for sign in line)}
    text = (ROOT / "docs/research/results.md").read_text(encoding="utf-8")
    assert len(report) > 200
    assert not report & set(text.splitlines())


def test_the_table_of_the_readme_has_the_numbers_of_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rows = [row for row in rows if len(row) == 9 and row[1].strip("*")[:1].isdigit()]
    assert len(rows) > 20
    for name, *numbers in rows:
        title = name.removesuffix(EARLIER)
        equal = "table1" if title.endswith("width 32") else "table1-16"
        table = "earlier-table1" if name.endswith(EARLIER) else equal
        actual = [_of_results(f"{table}-{data}-last", CALLED.get(title, title.lower())) for data in "EV"]
        assert [cell.strip("*") for cell in numbers] == [number for one in actual for number in one], name


def _of_results(table: str, model: str) -> list[str]:
    with (RESULTS / f"tables/{table}.csv").open(encoding="utf-8", newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["model"] == model)
    return [f"{float(row[metric]):.2f}" for metric in ("RC@5", "RC@20", "MRR@5", "MRR@20")]


def test_the_answers_of_the_report_have_the_numbers_of_the_results() -> None:
    answers = json.loads((RESULTS / "earlier/earlier.json").read_text(encoding="utf-8"))["answers"]
    report = (RESULTS / "report.md").read_text(encoding="utf-8")
    pages = [ROOT / f"docs/research/{name}.md" for name in ("more-results", "plus")]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*/records/*.json")]
    validation = [f"{100 * run['validation']:.2f}" for one in records for run in one["runs"] if run["validation"]]
    tables = report[report.index("## Overall performance (RQ2, Table 1)") :]
    tables += " ".join([*(page.read_text(encoding="utf-8") for page in pages), *validation])
    numbers = [one for answer in answers for one in re.findall(r"\d[\d,]*\.\d{2,}|\d+,\d{3}", answer["answer"])]
    assert len(answers) == 11
    assert len(numbers) > 40
    assert [one for one in numbers if one not in tables] == []


def test_the_report_that_ships_is_made_from_the_records_beside_it() -> None:
    from lightgc2n.paper.report import document

    shipped = json.loads((RESULTS / "report.json").read_text(encoding="utf-8"))
    made = document(RESULTS)
    assert [asdict(verdict) for verdict in made.verdicts] == shipped["verdicts"]
    for table in (table for section in made.sections for table in section.tables):
        assert csv_text(table) == (RESULTS / f"tables/{table.name}.csv").read_text(encoding="utf-8"), table.name


def test_the_page_of_commands_is_the_command_line() -> None:
    spec = importlib.util.spec_from_file_location("write_commands", ROOT / "scripts" / "write_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.commands_page(), "run python scripts/write_commands.py"


def test_the_file_map_of_the_readme_exists() -> None:
    named = re.findall(r"^\| `([a-z0-9_./]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    paths = [name for name in named if "/" in name or name.endswith(".py")]
    assert len(paths) > 5
    assert not [name for name in paths if not (ROOT / name).exists()]


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    names = {re.match(r"[A-Za-z0-9-]+", line).group().lower() for line in wanted} - {"lightgc2n"}  # type: ignore[union-attr]
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert names <= {pin.lower().replace("_", "-") for pin in pins}


def test_the_lock_has_the_versions_of_the_constraints_and_a_hash_for_each() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    entries = re.split(r"\n(?=[\w.-]+==)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))[1:]
    assert len(entries) > 20
    for entry in entries:
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()  # type: ignore[union-attr]
        assert pins[name] == version
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry)
    names = {re.match(r"[\w.-]+", entry).group() for entry in entries}  # type: ignore[union-attr]
    assert {"numpy", "safetensors", "typer", "rich", "onnxruntime", "fastapi", "uvicorn", "prometheus-client"} <= names


ROW = re.compile(r"^\| (an? [^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows_of_contributing() -> dict[str, str]:
    """What to add, and the cell that names the files to touch."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(ROW.findall(text[text.index("## Where to add what") :]))


def test_contributing_names_the_files_of_each_addition() -> None:
    wanted = {"baseline", "ranking metric", "file format", "route", "experiment", "people method", "device"}
    assert wanted <= {what.removeprefix("an ").removeprefix("a ") for what in rows_of_contributing()}


@pytest.mark.parametrize(("what", "cell"), rows_of_contributing().items())
def test_the_files_that_contributing_names_exist(what: str, cell: str) -> None:
    files = re.findall(r"`(lightgc2n/[\w/]+(?:\.py|/))`", cell)
    assert 1 <= len(files) <= 3
    for name in files:
        path = ROOT / name
        new = path.stem.endswith("NAME")  # the file that is added; its folder exists
        assert (path.parent if new else path).exists(), f"{what}: {name}"


@pytest.mark.parametrize(("what", "cell"), rows_of_contributing().items())
def test_the_tables_that_contributing_names_are_in_their_files(what: str, cell: str) -> None:
    pairs = [(table, file) for table, file in re.findall(r"`([A-Z_]+)` of `(lightgc2n/[\w/]+\.py)`", cell)]
    pairs += [(table, file) for file, table in re.findall(r"`(lightgc2n/[\w/]+\.py)`: [^|`]*`([A-Z_]+)`", cell)]
    for table, file in pairs:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^{table}\b.* = ", source, re.MULTILINE), f"{what}: no {table} in {file}"
