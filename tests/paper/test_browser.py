"""A report opens in Chromium without an error, shows every plot, and fits a phone."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.paper.report_files import write_report
from tests.paper.example import document, figures
from tests.serving.page.test_accessible import CONTRAST, NAMELESS

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    write_report(document(), folder)
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def test_it_opens_and_shows_every_plot(browser: Any, report: str) -> None:
    page = browser.new_page()
    problems, asked = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report)
    assert problems == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    for figure in figures():
        plots = page.locator(f"#figure-{figure.name} .plot svg")
        assert plots.count() == max(1, len(figure.panels))
        for place in range(plots.count()):
            box = plots.nth(place).bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) > 100
            assert "lightgc2n" in plots.nth(place).inner_html()
    assert page.locator("svg path").first.evaluate("one => getComputedStyle(one).strokeLinejoin") == "round"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, report: str, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.goto(report)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    first = page.locator(".opening .scroll").first
    assert first.evaluate("box => box.scrollWidth == box.clientWidth"), "the first table is seen whole"
    for summary in page.locator(".verdicts summary").all():
        boxes = [part.bounding_box() for part in summary.locator(".claim, .word").all()]
        assert all(above["y"] + above["height"] <= below["y"] + 1 for above, below in pairwise(boxes))
        assert all(box["x"] + box["width"] <= 390 for box in boxes)
    wide = page.locator(".table .scroll").first
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth"), "Table 1 scrolls inside its own box"
    name = page.locator(".table tbody th .name").first
    name.evaluate("one => { one.textContent = 'lightgc2n-plus-wo-memory'; }")
    ends = name.evaluate("one => [one, one.closest('th')].map((box) => box.getBoundingClientRect().right)")
    assert ends[0] <= ends[1], "a long name stays in its cell"
    colours = page.locator("body").evaluate(
        "body => [getComputedStyle(body).backgroundColor, getComputedStyle(body).color]"
    )
    expected = (
        ["rgb(255, 255, 255)", "rgb(27, 31, 36)"] if scheme == "light" else ["rgb(20, 23, 28)", "rgb(232, 234, 237)"]
    )
    assert colours == expected
    page.close()


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_the_first_screen_has_the_main_finding(browser: Any, report: str, width: int, height: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(report)
    for which in (".finding", ".score", ".ranked:visible .model", "nav a >> nth=0"):
        box = page.locator(which).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < height, which
    assert page.locator(".ranked:visible").count() == 1
    scores = [float(one) for one in page.locator(".ranked:visible .value").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    for place in range(page.locator(".standings .name").count()):
        name = page.locator(".standings .name").nth(place)
        assert name.evaluate("one => one.getClientRects().length") == 1, "a name is not parted at its hyphen"
    printed = page.locator(".standings").get_by_text("47.35")  # of HV-E: in a column, or below the score on a phone
    assert [printed.nth(place).is_visible() for place in range(2)] == ([False, True] if width > 1000 else [True, False])
    bars = page.locator(".tallies").bounding_box()
    assert bars is not None
    assert bars["y"] + bars["height"] < height or width < 1000
    page.close()


def test_all_can_be_reached_by_keyboard(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "DIV.scroll", "SUMMARY.", "INPUT."} <= reached
    page.close()


def test_contents_stay_in_sight(browser: Any, report: str) -> None:
    for width in (1440, 390):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(report)
        page.evaluate("scrollTo(0, 3000)")
        assert page.evaluate("scrollY") > 1000
        box = page.locator("nav a").first.bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 100
        page.close()


def test_another_test_and_a_verdict_are_chosen_without_scripts(browser: Any, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("#rank-1").is_visible()
    page.locator(".choice label", has_text="V, honest").click()
    assert [page.locator(f"#rank-{place}").is_visible() for place in (1, 2)] == [False, True]
    claims = page.locator("ol.verdicts > li:visible")
    counts = {word: sum(one.ours == word for one in document().verdicts) for word in ("holds", "does not hold")}
    for label, word in (("hold (", "holds"), ("do not hold (", "does not hold")):
        page.locator(".choice label").get_by_text(f"{label}{counts[word]})", exact=True).click()
        assert claims.count() == counts[word] > 0
    why = claims.first.locator(".why")
    assert why.is_hidden(), "claims are folded"
    claims.first.locator("summary").click()
    assert why.is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_demo_run_has_grey_marks_in_place_of_verdicts(browser: Any, tmp_path: Path, scheme: str) -> None:
    write_report(replace(document(), quick=True), tmp_path)
    page = browser.new_page(color_scheme=scheme)
    page.goto((tmp_path / "report.html").as_uri())
    claims = len(document().verdicts)
    assert page.locator("ol.verdicts .word.demo").count() == claims
    assert page.locator("ol.verdicts .word:not(.demo)").count() == claims, "the paper's own tables are still judged"
    red, green, blue = page.locator(".word.demo").first.evaluate(
        "one => getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert max(red, green, blue) - min(red, green, blue) < 20, "grey"
    assert "In our runs" not in page.locator(".verdicts").inner_text()
    assert "| demo run |" in (tmp_path / "report.md").read_text(encoding="utf-8")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_contrast_and_names(browser: Any, report: str, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(report)
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(NAMELESS) == []
    page.close()


def test_it_reads_without_scripts(browser: Any, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("ol.verdicts > li").count() == len(document().verdicts)
    assert page.locator("ol.verdicts > li").first.is_visible()
    context.close()
