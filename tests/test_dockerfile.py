"""The steps of the Dockerfile: they are of known kinds, and install and start work in a fresh virtual environment."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.export.town import bundle_of
from tests.serving.running import command

ROOT = Path(__file__).parents[1]
KEY = "forty-letters-that-nobody-else-would-guess"
KINDS = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line and not line.startswith("#")]


def of_kind(kind: str) -> list[str]:
    return [words for name, words in steps() if name == kind]


def test_the_steps_are_those_that_are_tested() -> None:
    assert {kind for kind, _ in steps()} <= KINDS
    install, user = of_kind("RUN")
    assert shlex.split(install)[:4] == ["python", "-m", "pip", "install"]
    assert user.startswith("useradd"), "the service does not run as root"
    assert of_kind("USER") == ["service"]
    copied = [name for words in of_kind("COPY") for name in words.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert all((ROOT / name).exists() and f"!{name}" in ignored for name in copied)


@pytest.mark.services
def test_install_and_start_in_a_fresh_environment(tmp_path: Path) -> None:
    app, environment, bundle = tmp_path / "app", tmp_path / "venv", tmp_path / "bundle"
    app.mkdir()
    for words in of_kind("COPY"):
        *names, _ = words.split()
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, app / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, app / name)
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    _, *install = shlex.split(of_kind("RUN")[0])
    done = subprocess.run(
        [python, *install, "--quiet"], cwd=app, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]

    shutil.copytree(bundle_of("lightgc2n-plus"), bundle)
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    (entry,), (arguments,) = of_kind("ENTRYPOINT"), of_kind("CMD")
    places = {"/bundles/live": str(bundle), "/run/secrets/keys": str(keys), "8000": "0"}  # a free port
    program, *words = [places.get(word, word) for word in [*json.loads(entry), *json.loads(arguments)]]
    whole = [str(environment / "bin" / program), *words, "--json"]
    with command(words=whole, environment=clean) as service:
        address = f"http://127.0.0.1:{service.client.port}"
        with urlopen(f"{address}/readyz") as answer:  # as the health check asks
            assert answer.status == 200
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{address}/v1/model")
        asked = Request(f"{address}/v1/accounts?limit=1", headers={"Authorization": f"Bearer {KEY}"})
        with urlopen(asked) as answer:
            assert json.load(answer)["total"] == 60
    held = subprocess.run([python, "-m", "pip", "list"], env=clean, capture_output=True, text=True, check=True).stdout
    assert "torch" not in held, "the image needs no torch"
    assert sys.executable != str(python)
