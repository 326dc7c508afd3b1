"""Images of items: requested from the hosts of the bundle alone, without a trace of the page, and nothing jumps."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.recommending.test_bundle_files import sign
from tests.serving.page.seeing import BROWSER, Api
from tests.serving.running import running

pytestmark = BROWSER

PICTURE = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="60" height="90"><rect width="60" height="90" fill="teal"/></svg>'
)
PLACES = """all => all.map(one => {
  const { width, height } = one.getBoundingClientRect();
  return [one.closest('li').dataset.item, one.localName, width, height];
})"""


def policy_of(address: str) -> str:
    with urlopen(address) as answer:
        return str(answer.headers["Content-Security-Policy"])


class _Pictures(BaseHTTPRequestHandler):
    """A picture for every path but those that end in `gone`."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Referer"]))
        found = not self.path.endswith("gone")
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "image/svg+xml")
        self.end_headers()
        self.wfile.write(PICTURE if found else b"")

    def log_message(self, *_words: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def pictures() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """The address of a server of images, and what it was asked for, with the referrer."""
    handler = type("Handler", (_Pictures,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def illustrated(street: Path, pictures: tuple[str, Any], tmp_path: Path) -> Path:
    """The bundle of the street: of each three items one has an image, that of the next is gone, the last has none."""
    bundle = Path(shutil.copytree(street / "bundle", tmp_path / "bundle"))
    items = (bundle / "items.txt").read_text().splitlines()
    addresses = [f"{pictures[0]}/{item}{'-gone' if place % 3 else ''}" for place, item in enumerate(items)]
    lines = [
        {"item": item, "image": at}
        for place, (item, at) in enumerate(zip(items, addresses, strict=True))
        if place % 3 < 2
    ]
    (bundle / "catalogue.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sign(bundle)
    return bundle


def test_images_stand_beside_titles(
    browser: Any, illustrated: Path, pictures: tuple[str, list[tuple[str, str | None]]], shared: str
) -> None:
    address, asked = pictures
    with running(illustrated) as service:
        own = Api(service.port)
        assert f"img-src 'self' data: {address};" in policy_of(own.address)
        assert address not in policy_of(f"{own.address}/docs")
        images = {item["item"]: item.get("image") for item in own.people(shared)["account_list"]["items"]}
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{own.address}/#account/{shared}")
        row = page.locator(".list[data-list=account]")
        row.scroll_into_view_if_needed()
        page.wait_for_function(
            "() => [...document.querySelectorAll('[data-list=account] img')].every(one => one.naturalWidth)"
        )
        seen = row.locator(".thumbnail").evaluate_all(PLACES)
        assert {size for _, _, *sizes in seen for size in sizes} == {36}, "also where none is, or where it is gone"
        kinds = {item: kind for item, kind, *_ in seen}
        assert kinds == {item: "img" if at and not at.endswith("gone") else "span" for item, at in images.items()}
        assert set(kinds.values()) == {"img", "span"}
        picture = row.locator("img").first
        assert [picture.get_attribute(name) for name in ("alt", "loading", "referrerpolicy")] == [
            "",
            "lazy",
            "no-referrer",
        ]
        page.close()
    assert asked
    assert {referrer for _, referrer in asked} == {None}


def test_other_addresses_are_no_images(visit: Any, api: Api) -> None:
    assert "img-src 'self' data:;" in policy_of(api.address), "no host is allowed for a bundle without images"
    made = visit().evaluate(
        """async (addresses) => {
          const { thumbnails } = await import('/page/thumbnails.js');
          return addresses.map(image => thumbnails([{ image }])({ image })?.localName ?? null);
        }""",
        [
            "javascript:alert(1)",
            "data:text/html,x",
            "data:image/png,x",
            "blob:x",
            "file:///etc/passwd",
            "http://",
            "",
            None,
        ],
    )
    assert made == [None] * 8
