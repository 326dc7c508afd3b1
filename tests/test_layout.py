"""Data flows one way through the folders, labels stay out of models, and nothing is unpickled."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lightgc2n"
# From top to bottom; a module imports only from its own folder and from what stands above it.
ORDER = (
    ("errors", "config", "progress", "devices"),
    ("files",),
    ("data",),
    ("synthetic",),
    ("metrics",),
    ("graph",),
    ("layers",),
    ("models",),
    ("baselines",),
    ("zoo",),
    ("training",),
    ("people",),
    ("recommending",),
    ("export",),
    ("experiments",),
    ("paper",),
    ("cluster",),
    ("store",),
    ("pipeline",),
    ("serving",),
    ("diagnosis",),
    ("api",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
BLIND = ("graph", "layers", "models", "baselines", "zoo", "training", "people", "recommending", "export", "serving")
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Everything in a file that imports something."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> Iterator[str]:
    """The modules of the project that a file imports, without the package's name."""
    for node in imports(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix("lightgc2n.") for name in names if name.startswith("lightgc2n."))


def top(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_look_up(path: Path) -> None:
    if top(path) in ("__init__", "__main__"):
        return
    for name in imported(path):
        part = name.split(".")[0]
        if part != "__version__":
            assert LEVEL[part] <= LEVEL[top(path)], f"{path.name} imports {name}, which stands below it"


def packages(path: Path) -> set[str]:
    """The packages that a file itself imports."""
    needed = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            needed |= {alias.name.partition(".")[0] for alias in node.names}
        else:
            needed.add((node.module or "").partition(".")[0])
    return needed


def outside(path: Path) -> set[str]:
    """The packages from outside that a file needs, and all files of the project that it imports need."""
    needed, seen, waiting = set(), set(), [path]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        needed |= packages(path)
        for name in imported(path):
            module = PACKAGE / Path(*name.split("."))
            files = (module.with_suffix(".py"), module.parent.with_suffix(".py"), module / "__init__.py")
            waiting += [file for file in files if file.exists() and file not in seen]
    return needed - set(sys.stdlib_module_names) - {"lightgc2n"}


TRAINING = [
    *sorted((PACKAGE / "training").glob("*.py")),
    *(PACKAGE / "experiments" / f"{name}.py" for name in ("plans", "save_results", "plan_runner", "plan_summary")),
]


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.name)
def test_what_trains_runs_on_a_bare_machine(path: Path) -> None:
    # Triton comes with torch where torch has a GPU, and is left out where it is not there.
    assert outside(path) <= {"torch", "numpy", "safetensors", "jaxtyping", "rich", "triton"}
    assert "polars" in outside(PACKAGE / "cli" / "import_.py"), "or this test sees nothing"


@pytest.mark.parametrize("path", sorted((PACKAGE / "people").glob("*.py")), ids=lambda path: path.name)
def test_people_needs_no_torch(path: Path) -> None:
    # Computing needs numpy alone; safetensors reads and writes the finder, and rich shows progress.
    assert outside(path) <= {"numpy", "safetensors", "rich"}


REPORT = [
    *(PACKAGE / "experiments" / f"{name}.py" for name in ("results", "table")),
    *(PACKAGE / "paper" / f"{name}.py" for name in ("claims", "first_screen", "published", "report_files")),
]


@pytest.mark.parametrize("path", REPORT, ids=lambda path: path.name)
def test_reports_need_no_torch(path: Path) -> None:
    assert outside(path) <= {"numpy", "matplotlib", "scipy", "jinja2", "rich"}


WITHOUT_TORCH = [
    *(
        PACKAGE / "recommending" / f"{name}.py"
        for name in ("load_bundle", "recommender", "forget_bundle", "write_recommendations")
    ),
    PACKAGE / "data" / "forget_dataset.py",
]


@pytest.mark.parametrize("path", WITHOUT_TORCH, ids=lambda path: path.name)
def test_bundles_need_no_torch(path: Path) -> None:
    assert outside(path) <= {"numpy", "safetensors", "onnxruntime", "rich", "polars"}


WEB = {"fastapi", "starlette", "pydantic", "pydantic_core", "uvicorn", "h11", "prometheus_client"}
STORE = {"psycopg", "psycopg_pool"}  # imported where a store is in PostgreSQL


@pytest.mark.parametrize("path", sorted((PACKAGE / "serving").glob("*.py")), ids=lambda path: path.name)
def test_what_serves_needs_no_torch(path: Path) -> None:
    assert outside(path) <= {"numpy", "safetensors", "onnxruntime", "rich"} | WEB | STORE
    assert not {name.split(".")[0] for name in imported(path)} & {"training", "experiments", "export", "models"}


def test_only_cluster_imports_ray() -> None:
    users = {top(path) for path in FILES if "ray" in packages(path)}
    assert users == {"cluster"}


def test_models_never_import_member_labels() -> None:
    readers = {
        str(path.relative_to(PACKAGE)) for path in FILES if any("data.members" in name for name in imported(path))
    }
    assert readers, "somebody must read the labels, or this test sees nothing"
    assert not [reader for reader in readers if reader.split("/")[0].removesuffix(".py") in BLIND]
    assert readers.isdisjoint({"data/dataset.py", "data/splits.py", "data/batches.py"})


def test_nothing_is_pickled() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {getattr(node, "module", None), *(alias.name for alias in node.names)}
                assert names.isdisjoint({"pickle", "joblib", "cloudpickle", "dill"}), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "torch.save"), path
                if called in ("np.load", "np.save"):
                    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    assert given.get("allow_pickle") == "False", f"{path}: {called} without allow_pickle=False"


def test_no_file_is_a_drawer_for_everything() -> None:
    long = {path.name: count for path in FILES if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long
    assert not [path for path in FILES if path.stem in ("utils", "helpers", "misc")]
