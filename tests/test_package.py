"""The wheel, built and installed as a stranger would: the core alone, and each extra alone."""

import os
import signal
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tests.export.town import bundle_of
from tests.serving.running import command

ROOT = Path(__file__).parents[1]
QUIET = [
    "-m",
    "pip",
    "--disable-pip-version-check",
    "install",
    "--quiet",
    "--constraint",
    str(ROOT / "constraints.txt"),
]
# What each extra must be able to do in an environment that has nothing else.
PROBES = {
    "train": ["import log.csv --out data", "compare data --models floors --json"],
    "report": ["generate --accounts 50 --out data", "describe data --plots pictures"],
    "serve": [
        "recommend BUNDLE --account h000003 --people --json",
        "recommend BUNDLE --history v00001 --json",
        "people BUNDLE --account h000003 --json",
    ],
    "tune": ["generate --accounts 50 --out data", "audit data"],
    "export": ["generate --accounts 50 --out data", "audit data"],
}


def python_in(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env=bare_environment(), capture_output=True, text=True, check=False
    )


def bare_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("lightgc2n-*.whl"))


def install(wheel: Path, extra: str, folder: Path) -> Path:
    python = python_in(folder / "environment")
    done = run(python, *QUIET, f"{wheel}[{extra}]" if extra else wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return python


def _spelled_out(words: str) -> list[str]:
    """The words, with a bundle that this environment has made in place of its name."""
    return [str(bundle_of("lightgc2n")) if word == "BUNDLE" else word for word in words.split()]


def test_the_core_alone(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, "", tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    for words in ("--version", "generate --accounts 50 --out data", "describe data", "audit data", "doctor"):
        done = run(python, "-m", "lightgc2n", *words.split(), cwd=work)
        assert done.returncode == 0, done.stderr
    for words, package, extra in (
        ("compare data", "torch", "train"),
        ("import log.csv --out other", "polars", "train"),
        ("describe data --plots pictures", "matplotlib", "report"),
        ("recommend BUNDLE --history x", "onnxruntime", "serve"),
    ):
        done = run(python, "-m", "lightgc2n", *_spelled_out(words), cwd=work)
        assert done.returncode == 2, done.stderr
        wanted = f"{package} is not installed. Install it with: pip install 'lightgc2n[{extra}]'"
        assert wanted in " ".join(done.stderr.split())
    assert sorted(path.name for path in work.iterdir()) == ["data"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", PROBES)
def test_each_extra_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, extra, tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    rows = [f"u{user},i{(user + event) % 7},{1_400_000_000 + event}" for user in range(20) for event in range(6)]
    (work / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    for words in PROBES[extra]:
        done = run(python, "-m", "lightgc2n", *_spelled_out(words), cwd=work)
        assert done.returncode == 0, done.stderr
    if extra == "serve":
        serve_with(python)
    done = run(python, "-m", "lightgc2n", "doctor", "--json", cwd=work)
    import json

    actual = json.loads(done.stdout)["extras"][extra]
    assert all(facts["works"] for facts in actual.values()), actual


def serve_with(python: Path) -> None:
    """A bundle is served by an environment that has nothing but the extra for it."""
    with command(bundle_of("lightgc2n"), python=python, environment=bare_environment()) as (process, client, _):
        assert len(client.recommend(account="h000003").json["items"]) == 20
        assert client.get("/v1/accounts/h000003/people").json["count"] >= 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.slow
def test_the_source_distribution_is_whole(tmp_path: Path) -> None:
    """Whoever packages this for a distribution needs its tests, its documents and its pins."""
    build = "import sys, hatchling.build as b; print(b.build_sdist(sys.argv[1]))"
    python = python_in(tmp_path / "environment")
    assert run(python, *QUIET, "hatchling==1.33.0", cwd=tmp_path).returncode == 0
    done = run(python, "-c", build, tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.strip()) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = ["tests/conftest.py", "docs/serving.md", "constraints.txt", "requirements.lock", "SECURITY.md", "Makefile"]
    assert not set(wanted) - held
    assert not [name for name in held if name.startswith((".venv", "demo/", "runs/", "prepared/"))]
