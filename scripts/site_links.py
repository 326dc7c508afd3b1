"""Checks of a built site: every link leads somewhere, and nothing is loaded from another host."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
UNLOADED = {"canonical", "prev", "next", "alternate"}  # relations of a <link> that no browser loads


class Page(HTMLParser):
    """The ids of a page, its links, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given and given.get("rel") not in UNLOADED:
            self.loads.append(given[LOADS[tag]])


def dead_links(site: Path) -> list[str]:
    """What is wrong, one line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its addresses start at the root of a host
        name = path.relative_to(site)
        problems += [f"{name}: loads {one} from another host" for one in page.loads if urlsplit(one).netloc]
        problems += [f"{name}: dead link {one}" for one in page.links + page.loads if not _leads(one, path, pages)]
    return problems


def _leads(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # another host is not asked: the check needs no network
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].ids
