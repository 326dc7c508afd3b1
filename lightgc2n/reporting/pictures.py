"""Drawn figures as files, and as SVG that becomes part of a page and follows its colours."""

import re

from lightgc2n.reporting.document import Figure
from lightgc2n.reporting.drawing import panels_of, saved
from lightgc2n.reporting.palette import LOOKS_LIKE

# Matplotlib's own style sheet speaks of every element, so it would change the whole page.
LEFT_OUT = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
OPENING = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>")
NAMED = re.compile(r'(\bid="|href="#|url\(#)')
COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def picture_files(figure: Figure) -> dict[str, bytes]:
    """The endings and contents of a figure's files."""
    panels = panels_of(figure)
    return {"png": saved(panels, figure.name, "png"), "svg": saved(panels, figure.name, "svg")}


def inline_pictures(figure: Figure) -> list[str]:
    """Each panel as an SVG element."""
    named = {f"{figure.name}-{number}": panel for number, panel in enumerate(panels_of(figure), start=1)}
    return [inline(saved([panel], name, "svg").decode(), name) for name, panel in named.items()]


def inline(svg: str, name: str) -> str:
    """An SVG file as part of a page: no prologue, names of its own, and colours of the page's style sheet."""
    body = LEFT_OUT.sub("", svg[svg.index("<svg") :])
    body = OPENING.sub(r'<svg \1 aria-hidden="true" focusable="false">', body, count=1)
    prefix = re.sub(r"\W+", "-", name)
    body = NAMED.sub(rf"\g<1>{prefix}-", body).replace("xlink:href", "href")
    return COLOUR.sub(lambda found: LOOKS_LIKE.get(found[0], found[0]), body).strip()
