"""A report opens in Chromium without an error, shows every plot, and fits a phone."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from lightgc2n.reporting.writing import write_report
from tests.reporting.example import document, figures

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
    wide = page.locator(".scroll").first
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth"), "Table 1 scrolls inside its own box"
    colours = page.locator("body").evaluate(
        "body => [getComputedStyle(body).backgroundColor, getComputedStyle(body).color]"
    )
    expected = (
        ["rgb(255, 255, 255)", "rgb(27, 31, 36)"] if scheme == "light" else ["rgb(20, 23, 28)", "rgb(232, 234, 237)"]
    )
    assert colours == expected
    page.close()


def test_all_can_be_reached_by_keyboard(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the tables"
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "DIV.scroll", "SUMMARY."} <= reached
    page.close()


def test_it_reads_without_scripts(browser: Any, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("ol.verdicts > li").count() == len(document().verdicts)
    assert page.locator("ol.verdicts > li").first.is_visible()
    context.close()
