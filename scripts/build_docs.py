"""Build the documentation site into build/site, strictly and without the network.

build/docs is docs/ with the pages that are generated: the API from docstrings, HTTP routes from OpenAPI, the report of
the experiments, changes, security and contributing. A link to a file that the site does not have becomes its text.
Any warning, dead link or address of another host in what a browser loads is an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from site_links import dead_links
from write_api import api_page
from write_http import http_page

ROOT = Path(__file__).parents[1]
STAGED, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
MADE = ROOT / "build" / "made-by-make-docs.json"  # the files of the last build
COPIED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "results/report.md": "research/report.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def main() -> None:
    before = json.loads(MADE.read_text(encoding="utf-8")) if MADE.is_file() else None
    for folder in (STAGED, SITE):
        refuse_foreign(folder, before)
    for folder in (STAGED, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    MADE.parent.mkdir(exist_ok=True)
    MADE.write_text("{}\n", encoding="utf-8")  # after a kill, all files count as made by this script
    stage()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "zensical.toml"]
    if subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the site was not built: see the warnings above")
    MADE.write_text(json.dumps({folder.name: files_in(folder) for folder in (STAGED, SITE)}) + "\n", encoding="utf-8")
    if problems := dead_links(SITE):
        sys.exit("\n".join(problems))
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}, no dead link")


def files_in(folder: Path) -> list[str]:
    """Return all files below a folder, as paths below it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def refuse_foreign(folder: Path, made: dict[str, list[str]] | None) -> None:
    """Exit when a folder that is to be replaced is a link, or holds a file that this script did not make.

    Args:
        made: the files of the last build by folder; nothing is known about a build of an earlier version (None).
    """
    if folder.is_symlink():
        sys.exit(f"{folder} is a link, so it is not replaced. Move it elsewhere, then try again.")
    there = files_in(folder)
    of_a_site = there if {"404.html", "index.md"} & {*there} else []
    known = of_a_site if made is None else made.get(folder.name, there)
    if foreign := sorted({*there} - {*known}):
        sys.exit(f"{folder} holds {foreign[0]}, which make docs did not make. Move it elsewhere, then try again.")


def stage() -> None:
    """Write the Markdown of the site to build/docs."""
    pages = {page: STAGED / page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*") if page.is_file()}
    pages |= {figure: STAGED / "research" / "figures" / figure.name for figure in (ROOT / "results/figures").iterdir()}
    pages |= {ROOT / source: STAGED / page for source, page in COPIED.items()}
    pages[ROOT / "README.md"] = STAGED / "index.md"  # only where links to it lead
    for source, target in pages.items():
        if source.name != "README.md":
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(source, target, pages)
    (STAGED / "reference" / "api.md").write_text(api_page(), encoding="utf-8")
    (STAGED / "reference" / "http.md").write_text(http_page(), encoding="utf-8")


def _copy(source: Path, target: Path, pages: dict[Path, Path]) -> None:
    if source.suffix != ".md":
        shutil.copyfile(source, target)
        return

    def moved(found: re.Match[str]) -> str:
        picture, text, path, anchor = (part or "" for part in found.groups())
        if not path:
            return found.group()
        to = (source.parent / path).resolve()
        if to not in pages:
            return text
        if text in (path, to.name):
            text = _title(to)
        return f"{picture}[{text}]({os.path.relpath(pages[to], target.parent)}{anchor})"

    parts = CODE.split(source.read_text(encoding="utf-8"))
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    target.write_text("".join(parts), encoding="utf-8")


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


if __name__ == "__main__":
    main()
