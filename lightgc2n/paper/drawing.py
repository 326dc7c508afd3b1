"""Figures drawn with matplotlib: one panel for the page, or all panels of a figure for a file."""

import io
from collections.abc import Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from lightgc2n.errors import MissingExtraError
from lightgc2n.paper.document import Figure, Series, is_model, is_ours
from lightgc2n.paper.palette import HATCHES, colour_of, light, places_of, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn
    from matplotlib.figure import SubFigure

WIDTH, HEIGHT = 4.2, 2.7  # of a panel, in inches: text stays readable when it fills a phone
BAR_HEIGHT, LEGEND_ROW, END_ROW = 0.18, 0.2, 0.17
MANY = 5  # lines
# Without a patch the leader line reaches the label itself, not a box around it.
LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.7, "relpos": (0, 0.5), "shrinkA": 1, "patchA": None}
DOTS_AN_INCH = 200
UNDATED = {"metadata": {"Date": None, "Creator": None, "Format": None, "Type": None}}
LOOK: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.labelcolor": light("muted"),
    "axes.edgecolor": light("muted"),
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": light("rule"),
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "xtick.color": light("muted"),
    "ytick.color": light("muted"),
    "xtick.labelcolor": light("ink"),
    "ytick.labelcolor": light("ink"),
    "text.color": light("ink"),
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.fonttype": "none",
}


def panels_of(figure: Figure) -> tuple[Figure, ...]:
    """The plots of a figure: its panels, or itself."""
    return figure.panels or (figure,)


def saved(panels: Sequence[Figure], salt: str, kind: Literal["png", "svg"], before: Sequence[Figure] = ()) -> bytes:
    """A file with the panels side by side, two in a row. A legend that an earlier panel has is not repeated.

    Args:
        salt: makes ids inside an SVG file reproducible.
        before: panels that stand before these, in files of their own.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None

    file = io.BytesIO()
    with rc_context(LOOK | {"svg.hashsalt": salt}):
        # Without a date the same figure gives the same file.
        options: dict[str, Any] = {"dpi": DOTS_AN_INCH, "facecolor": light("paper")} if kind == "png" else UNDATED
        _draw(panels, before).savefig(file, format=kind, **options)
    return file.getvalue()


def _draw(panels: Sequence[Figure], before: Sequence[Figure]) -> "Drawn":
    from matplotlib.figure import Figure as Drawn

    across = min(2, len(panels))
    down = ceil(len(panels) / across)
    explained = [_legend(panel) for panel in before]
    with_legend = []
    for panel in panels:
        with_legend.append(_has_legend(panel) and _legend(panel) not in explained)
        explained.append(_legend(panel))
    height = max(_height(panel, legend) for panel, legend in zip(panels, with_legend, strict=True))
    drawn = Drawn(figsize=(WIDTH * across, height * down), layout="constrained")
    parts = drawn.subfigures(down, across, squeeze=False).flat
    for panel, legend, part in zip(panels, with_legend, parts, strict=False):
        _panel(part, panel, titled=len(panels) > 1, legend=legend)
    return drawn


def _legend(panel: Figure) -> tuple[object, ...]:
    """What the legend of a panel says: panels with the same one need it once."""
    return (panel.kind, *zip([line.name for line in panel.series], _places(panel), strict=True))


def _height(panel: Figure, legend: bool) -> float:
    if _labels_ends(panel):
        return max(HEIGHT, 1.1 + END_ROW * len(panel.series))
    rows = ceil(len(panel.series) / _legend_columns(panel.series)) if legend else 0
    bars = len(categories(panel.series)) * (_beside(panel) + 0.5) if panel.kind == "bars" else 0
    return max(HEIGHT, 0.7 + BAR_HEIGHT * bars) + LEGEND_ROW * rows


def _beside(panel: Figure) -> int:
    """Return how many bars share a category: one if each category belongs to one series."""
    words = [x for line in panel.series for x in line.x]
    return 1 if len(set(words)) == len(words) else len(panel.series)


def _panel(part: "SubFigure", panel: Figure, titled: bool, legend: bool) -> None:
    axes = part.subplots()
    (_lines if panel.kind == "lines" else _bars)(axes, panel)
    _number(axes, panel)
    bars = panel.kind == "bars"  # horizontal, their names need no axis label
    axes.set_xlabel(panel.y_label if bars else panel.x_label)
    axes.set_ylabel("" if bars else panel.y_label)
    if titled:
        part.suptitle(fill(panel.title, 48), x=0.02, horizontalalignment="left", fontsize=9, fontweight="bold")
    if legend:
        handles, names = axes.get_legend_handles_labels()
        part.legend(handles, names, loc="outside lower center", ncols=_legend_columns(panel.series))


def categories(series: Sequence[Series]) -> list[str]:
    """The text values along an axis, in order of first occurrence; empty where it has numbers."""
    return list(dict.fromkeys(x for line in series for x in line.x if isinstance(x, str)))


def _has_legend(panel: Figure) -> bool:
    return len(panel.series) > 1 and not _labels_ends(panel)


def _labels_ends(panel: Figure) -> bool:
    """Whether there are so many lines that each is labelled at its end instead of in a legend."""
    return panel.kind == "lines" and len(panel.series) > MANY


def _lines(axes: "Axes", panel: Figure) -> None:
    names = categories(panel.series)
    many, ends = len(panel.series) > MANY, []
    for place, line in zip(_places(panel), panel.series, strict=True):
        x = [names.index(str(value)) if names else float(value) for value in line.x]
        style = _line_style(place, line.name, many)
        width = 1.5 if not many else 2.6 if _stands_out(line.name) else 1.0
        axes.plot(x, line.y, label=line.name, linewidth=width, markersize=4.5, **style)  # type: ignore[arg-type]
        if line.low and line.high and not many:
            axes.fill_between(x, line.low, line.high, color=style["color"], alpha=0.13, linewidth=0)
        ends.append((x[-1], line.y[-1]))
    if names:
        axes.set_xticks(range(len(names)), [fill(name, max(8, 44 // len(names))) for name in names])
        axes.set_xlim(-0.3, len(names) - 0.7)
    else:
        _few_ticks(axes, [float(value) for line in panel.series for value in line.x])
    axes.grid(False, axis="x")
    if _labels_ends(panel):
        _name_ends(axes, panel.series, ends, row=END_ROW / (_height(panel, legend=False) - 0.9))


def _places(panel: Figure) -> list[int]:
    """The index of each series' colour, marker, dashes and hatch."""
    places = places_of([line.name for line in panel.series])
    return [place if line.style is None else line.style for place, line in zip(places, panel.series, strict=True)]


def _stands_out(name: str) -> bool:
    """Whether the report is about this model."""
    return is_model(name) or is_ours(name)


def _line_style(place: int, name: str, many: bool) -> dict[str, str]:
    """Among many lines only the models of the report have a colour; markers and dashes separate the others."""
    return style_of(place) | ({"color": colour_of(name)} if many else {})


def _name_ends(axes: "Axes", series: Sequence[Series], ends: Sequence[tuple[float, float]], row: float) -> None:
    """Writes the name of each line to the right of its end, shifted apart where ends are close."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform(end)[1]) for end in ends]
    order = sorted(range(len(ends)), key=lambda place: heights[place])
    for place, height in zip(order, apart([heights[place] for place in order], row), strict=True):
        name = series[place].name
        axes.annotate(
            name,
            ends[place],
            xytext=(1.06, height),
            textcoords="axes fraction",
            verticalalignment="center",
            fontsize=8,
            fontweight="bold" if _stands_out(name) else "normal",
            arrowprops=LEADER | {"color": colour_of(name)},
            annotation_clip=False,
        )


def apart(heights: Sequence[float], row: float) -> list[float]:
    """Increasing heights within 0 to 1, at least a row apart, each as close to the given one as possible."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + row) if placed else height)
    top = 1.0
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], top)
        top = placed[place] - row
    return placed


def _few_ticks(axes: "Axes", x: Sequence[float]) -> None:
    """Ticks at the values that were tried, where these are few."""
    tried = sorted(set(x))
    if len(tried) <= 11:
        axes.set_xticks(tried)


def _number(axes: "Axes", panel: Figure) -> None:
    """Short numbers along each axis that has numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    words = bool(categories(panel.series))
    numbered = [axes.xaxis, axes.yaxis] if not words else [axes.xaxis if panel.kind == "bars" else axes.yaxis]
    for axis in numbered:
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """A number in few characters: 250 k, 1.5 M."""
    for size, sign in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (size if size > 1e4 else 1e3):.6g}{sign}"
    return f"{value:.6g}".replace("-", "−")


def _bars(axes: "Axes", panel: Figure) -> None:
    names = categories(panel.series)
    beside = _beside(panel)
    thick = 0.8 / beside
    if beside == 1 < len(panel.series):  # kinds of one thing: sorted together, the longest on top
        lengths = {str(x): y for line in panel.series for x, y in zip(line.x, line.y, strict=True)}
        names.sort(key=lambda name: -lengths[name])
    for place, (style, line) in enumerate(zip(_places(panel), panel.series, strict=True)):
        shift = (place - (beside - 1) / 2) * thick * (beside > 1)
        at = [names.index(str(x)) + shift for x in line.x]
        alone = len(panel.series) == 1 and any(map(_stands_out, names))  # one bar per model, and no kinds
        look: dict[str, Any] = {
            "color": [colour_of(str(x)) for x in line.x] if alone else style_of(style)["color"],
            "hatch": "" if alone else HATCHES[style % len(HATCHES)],
            "edgecolor": light("paper"),
            "linewidth": 0.5,
            "label": line.name,
            "ecolor": light("ink"),
            "error_kw": {"elinewidth": 0.9, "capsize": 2},
        }
        axes.barh(at, line.y, thick, xerr=_whiskers(line), **look)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _whiskers(line: Series) -> list[list[float]] | None:
    """The distances from each value to the ends of its interval."""
    if not (line.low and line.high):
        return None
    below = [max(0.0, y - low) for y, low in zip(line.y, line.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(line.y, line.high, strict=True)]
    return [below, above]


def _legend_columns(series: Sequence[Series]) -> int:
    longest = max(len(line.name) for line in series)
    return 3 if longest <= 9 else 2 if longest <= 20 else 1
