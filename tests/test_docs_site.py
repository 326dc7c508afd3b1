"""The documentation site builds strictly, without the network, and its links lead somewhere."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield
    for name in ("build_docs", "site_links", "write_api", "write_http"):
        sys.modules.pop(name, None)


@pytest.mark.services
def test_the_site_builds_without_a_warning_or_a_dead_link() -> None:
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    words = [sys.executable, str(ROOT / "scripts" / "build_docs.py")]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no dead link" in done.stdout


def checked(folder: Path, **pages: str) -> list[str]:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    module: ModuleType = importlib.import_module("site_links")
    return module.dead_links(folder)


@pytest.mark.usefixtures("scripts")
def test_what_a_link_may_lead_to(tmp_path: Path) -> None:
    good = '<h1 id="top">a</h1><a href="b.html#part">b</a><a href="#top">a</a><a href="https://example.org/x">far</a>'
    assert checked(tmp_path, a=good, b='<h2 id="part">b</h2>') == []


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('<a href="c.html">c</a>', "a.html: dead link c.html"),
        ('<a href="b.html#gone">b</a>', "a.html: dead link b.html#gone"),
        ('<img src="none.png">', "a.html: dead link none.png"),
        (
            '<script src="https://cdn.test/x.js"></script>',
            "a.html: loads https://cdn.test/x.js from another host",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, bad: str, problem: str) -> None:
    assert checked(tmp_path, a=bad, b="<p>b</p>") == [problem]


@pytest.mark.usefixtures("scripts")
def test_the_reference_has_every_public_name_and_route() -> None:
    import lightgc2n

    api = importlib.import_module("write_api").api_page()
    assert not [name for name in lightgc2n.__all__ if not name.startswith("_") and name not in api]
    assert "### Run.recommend" in api
    assert "k: int" in api
    http = importlib.import_module("write_http").http_page()
    assert "## POST /v1/recommend" in http
    assert "| `exclude_seen` | query | boolean | `false` |" in http


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if f'"{page}"' not in listed]


@pytest.mark.usefixtures("scripts")
def test_files_of_a_user_in_the_folders_of_the_site_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: ModuleType = importlib.import_module("build_docs")
    staged, site = tmp_path / "build" / "docs", tmp_path / "build" / "site"

    def build(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        site.mkdir()
        (site / "404.html").write_text("<p>no such page</p>")
        return subprocess.CompletedProcess([], 0)

    def stage() -> None:
        staged.mkdir()
        (staged / "index.md").write_text("# Site")

    for name, value in {"ROOT": tmp_path, "STAGED": staged, "SITE": site, "stage": stage}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "MADE", tmp_path / "build" / "made-by-make-docs.json")
    monkeypatch.setattr(module.subprocess, "run", build)
    site.mkdir(parents=True)
    (site / "thesis.txt").write_text("years of work")
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"site holds thesis\.txt, which make docs did not make"):
            module.main()
        assert (site / "thesis.txt").read_text() == "years of work"
        (site / "thesis.txt").rename(tmp_path / "thesis.txt")
        module.main()
        module.main()  # what it made itself is replaced
        (tmp_path / "thesis.txt").rename(site / "thesis.txt")
    (site / "thesis.txt").unlink()
    (tmp_path / "mine").mkdir()
    (staged / "index.md").unlink()
    staged.rmdir()
    staged.symlink_to(tmp_path / "mine")
    with pytest.raises(SystemExit, match="docs is a link"):
        module.main()
    assert list((tmp_path / "mine").iterdir()) == []
