"""The files of the page: nothing that a strict policy forbids, and the colours of the reports."""

import re

from lightgc2n.paper.palette import COLOURS, SERIES
from lightgc2n.serving.static_files import PAGE
from tests.paper.test_palette import contrast

FORBIDDEN = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://"


def test_nothing_needs_a_looser_policy() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=|javascript:", html)
    for path in PAGE.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(FORBIDDEN, text), path.name
        assert len(text.splitlines()) <= 300, path.name


def test_colours_are_those_of_the_reports_and_letters_can_be_read_on_them() -> None:
    light, dark = (PAGE / "style.css").read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)")
    for place, sheet in enumerate((light, dark)):
        shades = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})\b", sheet))
        for name in (*SERIES, "paper", "raised", "ink", "muted", "rule", "holds", "fails"):
            assert shades[name] == COLOURS[name][place], name
        for name in SERIES:
            on = shades[f"on-{name}"]
            assert contrast(on if len(on) == 7 else "#" + "".join(2 * sign for sign in on[1:]), shades[name]) >= 4.5, (
                name
            )
