"""Figures drawn with matplotlib: one panel for the page, or all panels of a figure for a file."""

import io
from collections.abc import Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from lightgc2n.errors import MissingExtraError
from lightgc2n.reporting.document import Figure, Series
from lightgc2n.reporting.palette import HATCHES, colour_of, light, places_of, style_of
from lightgc2n.reporting.subject import is_model, is_ours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn
    from matplotlib.figure import SubFigure

WIDTH, HEIGHT = 4.2, 2.7  # of a panel, in inches: text stays readable when it fills a phone
BAR_HEIGHT, LEGEND_ROW, END_ROW = 0.18, 0.2, 0.17
MANY = 5  # lines
# Without a patch the leader reaches the name itself, not a box around it.
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


def saved(panels: Sequence[Figure], salt: str, kind: Literal["png", "svg"]) -> bytes:
    """A file with the panels side by side, two in a row.

    Args:
        salt: makes names inside an SVG file the same at every drawing.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None

    file = io.BytesIO()
    with rc_context(LOOK | {"svg.hashsalt": salt}):
        # Without a date the same figure gives the same file.
        options: dict[str, Any] = {"dpi": DOTS_AN_INCH, "facecolor": light("paper")} if kind == "png" else UNDATED
        _draw(panels).savefig(file, format=kind, **options)
    return file.getvalue()


def _draw(panels: Sequence[Figure]) -> "Drawn":
    from matplotlib.figure import Figure as Drawn

    across = min(2, len(panels))
    down = ceil(len(panels) / across)
    height = max(_height(panel) for panel in panels)
    drawn = Drawn(figsize=(WIDTH * across, height * down), layout="constrained")
    for panel, part in zip(panels, drawn.subfigures(down, across, squeeze=False).flat, strict=False):
        _panel(part, panel, titled=len(panels) > 1)
    return drawn


def _height(panel: Figure) -> float:
    if _labels_ends(panel):
        return max(HEIGHT, 1.1 + END_ROW * len(panel.series))
    rows = ceil(len(panel.series) / _legend_columns(panel.series)) if _has_legend(panel) else 0
    lying = max(HEIGHT, 0.7 + BAR_HEIGHT * _rows(panel)) if _lies(panel) else HEIGHT
    return lying + LEGEND_ROW * rows


def _rows(panel: Figure) -> float:
    """How many bars or points stand above each other."""
    several = _beside(panel) if panel.kind == "bars" else 1 + 0.35 * (len(panel.series) - 1)
    return len(categories(panel.series)) * (several + 0.5)


def _beside(panel: Figure) -> int:
    """How many bars share a place: one where each word belongs to one series alone, as kinds of one thing."""
    words = [x for line in panel.series for x in line.x if isinstance(x, str)]
    return 1 if words and len(set(words)) == len(words) else len(panel.series)


def _panel(part: "SubFigure", panel: Figure, titled: bool) -> None:
    axes = part.subplots()
    axes.set_xscale("log" if _across(panel) else "linear")
    axes.set_yscale("log" if panel.log_y and not _lies(panel) else "linear")
    {"lines": _lines, "bars": _bars, "points": _points}[panel.kind](axes, panel)
    _number(axes, panel)
    # Words along the upright axis need no label: they say themselves what they are.
    axes.set_xlabel(panel.y_label if _lies(panel) else panel.x_label)
    axes.set_ylabel("" if _lies(panel) else panel.y_label)
    if titled:
        part.suptitle(fill(panel.title, 48), x=0.02, horizontalalignment="left", fontsize=9, fontweight="bold")
    if _has_legend(panel):
        handles, names = axes.get_legend_handles_labels()
        part.legend(handles, names, loc="outside lower center", ncols=_legend_columns(panel.series))


def categories(series: Sequence[Series]) -> list[str]:
    """The words along an axis, in the order in which they come first; none where it has numbers."""
    return list(dict.fromkeys(x for line in series for x in line.x if isinstance(x, str)))


def _lies(panel: Figure) -> bool:
    """Whether words stand along the upright axis, where long ones can be read."""
    return panel.kind != "lines" and bool(categories(panel.series))


def _has_legend(panel: Figure) -> bool:
    return len(panel.series) > 1 and not _labels_points(panel) and not _labels_ends(panel)


def _labels_ends(panel: Figure) -> bool:
    """Whether so many lines are drawn that each has its name at its end."""
    return panel.kind == "lines" and len(panel.series) > MANY


def _labels_points(panel: Figure) -> bool:
    """Whether each series is one point, with its name beside it."""
    return panel.kind == "points" and not _lies(panel) and all(len(line.x) == 1 for line in panel.series)


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
        _few_ticks(axes, [float(value) for line in panel.series for value in line.x], panel.log_x)
    axes.grid(False, axis="x")
    if _labels_ends(panel):
        _name_ends(axes, panel.series, ends, row=END_ROW / (_height(panel) - 0.9))


def _places(panel: Figure) -> list[int]:
    """The place of each series' colour, marker, dashes and hatch."""
    places = places_of([line.name for line in panel.series])
    return [place if line.style is None else line.style for place, line in zip(places, panel.series, strict=True)]


def _stands_out(name: str) -> bool:
    """Whether it is what the report is about."""
    return is_model(name) or is_ours(name)


def _line_style(place: int, name: str, many: bool) -> dict[str, str]:
    """Among many lines only what the report is about has a colour; markers and dashes tell the others apart."""
    return style_of(place) | ({"color": colour_of(name)} if many else {})


def _name_ends(axes: "Axes", series: Sequence[Series], ends: Sequence[tuple[float, float]], row: float) -> None:
    """The name of each line to the right of its end, pushed apart where ends are close."""
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
    """Rising heights within 0 to 1, at least a row apart, each as near to its own as that allows."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + row) if placed else height)
    top = 1.0
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], top)
        top = placed[place] - row
    return placed


def _few_ticks(axes: "Axes", x: Sequence[float], log: bool) -> None:
    """Ticks at the values that were tried, where these are few."""
    tried = sorted(set(x))
    if not log and len(tried) <= 11:
        axes.set_xticks(tried)


def _across(panel: Figure) -> bool:
    """Whether the lying axis is logarithmic."""
    return panel.log_y if _lies(panel) else panel.log_x


def _number(axes: "Axes", panel: Figure) -> None:
    """Short numbers along each axis that has numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    words = bool(categories(panel.series))
    numbered = [axes.xaxis, axes.yaxis] if not words else [axes.xaxis if _lies(panel) else axes.yaxis]
    for axis in numbered:
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """A number with few signs: 250 k, 1.5 M."""
    for size, sign in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (size if size > 1e4 else 1e3):.6g}{sign}"
    return f"{value:.6g}".replace("-", "−")


def _bars(axes: "Axes", panel: Figure) -> None:
    names = categories(panel.series)
    beside = _beside(panel)
    thick = 0.8 / beside
    if names and beside == 1 < len(panel.series):  # kinds of one thing: together in one order, the longest on top
        lengths = {str(x): y for line in panel.series for x, y in zip(line.x, line.y, strict=True)}
        names.sort(key=lambda name: -lengths[name])
    for place, (style, line) in enumerate(zip(_places(panel), panel.series, strict=True)):
        middle = [names.index(str(x)) if names else float(x) for x in line.x]
        at = [value + (place - (beside - 1) / 2) * thick * (beside > 1) for value in middle]
        alone = len(panel.series) == 1 and any(map(_stands_out, names))  # one bar a model, and no kinds to tell apart
        look: dict[str, Any] = {
            "color": [colour_of(str(x)) for x in line.x] if alone else style_of(style)["color"],
            "hatch": "" if alone else HATCHES[style % len(HATCHES)],
            "edgecolor": light("paper"),
            "linewidth": 0.5,
            "label": line.name,
            "ecolor": light("ink"),
            "error_kw": {"elinewidth": 0.9, "capsize": 2},
        }
        if names:
            axes.barh(at, line.y, thick, xerr=_whiskers(line), **look)
        else:
            axes.bar(at, line.y, thick, yerr=_whiskers(line), **look)
    _upright(axes, panel, names)


def _points(axes: "Axes", panel: Figure) -> None:
    names = categories(panel.series)
    for place, (at_place, line) in enumerate(zip(_places(panel), panel.series, strict=True)):
        style = style_of(at_place)
        look: dict[str, Any] = {
            "label": line.name,
            "color": style["color"],
            "marker": style["marker"],
            "linestyle": "none",
            "markersize": 5.5,
            "elinewidth": 1.1,
            "capsize": 2,
        }
        if names:
            shift = 0.22 * (place - (len(panel.series) - 1) / 2)
            at = [names.index(str(x)) + shift for x in line.x]
            axes.errorbar(line.y, at, xerr=_whiskers(line), **look)
        else:
            axes.errorbar([float(x) for x in line.x], line.y, yerr=_whiskers(line), **look)
    _upright(axes, panel, names)
    if _labels_points(panel):
        _name_points(axes, panel.series)


def _name_points(axes: "Axes", series: Sequence[Series]) -> None:
    for line in series:
        place = (float(line.x[0]), line.y[0])
        axes.annotate(line.name, place, xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.margins(x=0.22, y=0.12)


def _upright(axes: "Axes", panel: Figure, names: Sequence[str]) -> None:
    """Words along the upright axis, the first on top."""
    if names:
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(False, axis="y")


def _whiskers(line: Series) -> list[list[float]] | None:
    """How far intervals reach below and above."""
    if not (line.low and line.high):
        return None
    below = [max(0.0, y - low) for y, low in zip(line.y, line.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(line.y, line.high, strict=True)]
    return [below, above]


def _legend_columns(series: Sequence[Series]) -> int:
    longest = max(len(line.name) for line in series)
    return 3 if longest <= 9 else 2 if longest <= 20 else 1
