"""Plots of a dataset as PNG files: lengths, popularity, repeats and event times."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import MICROSECONDS, Dataset, Longs
from lightgc2n.data.statistics import domain_views, item_popularity, repeat_rate_from_end
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import FolderKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

STATISTICS = "statistics.json"
PLOTS = FolderKind("folder of plots", STATISTICS, ("lengths.png", "popularity.png", "repeats.png", "times.png"))
# Okabe and Ito's palette is safe for colour-blind readers; line styles distinguish the curves in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
BINS = 40
POSITIONS = 40
REACHED_BY = 0.05
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAY_SECONDS = 86_400

Views = list[tuple[str, Dataset]]


def write_plots(dataset: Dataset, numbers: dict[str, Any], out: Path, force: bool = False) -> list[str]:
    """Write the plots and the statistics into `out`; return the file names of the plots."""
    views = domain_views(dataset)
    if len(views) > 1:
        views.append(("all" if dataset.targets is None else "input", dataset))
    views = [(title, data) for title, data in views if len(data.events)]
    if not views:
        raise DataError(f"{dataset.name} holds no events, so there is nothing to plot. Leave --plots out.")
    figures = {
        "lengths.png": length_plot(views, dataset.name),
        "popularity.png": popularity_plot(views, dataset.name),
        "repeats.png": repeat_plot(views, dataset.name),
    }
    if dataset.times is not None and len(dataset.times):
        figures["times.png"] = time_plot(dataset.times, dataset.name)
    with new_folder(out, force, kind=PLOTS) as folder:
        text = json.dumps(numbers, indent=1, ensure_ascii=False)
        (folder / STATISTICS).write_text(text + "\n", encoding="utf-8")
        for file, figure in figures.items():
            figure.savefig(folder / file)
    return list(figures)


def length_plot(views: Views, name: str) -> "Figure":
    """Plot a histogram of sequence lengths on a logarithmic axis; each bar is the mean over the lengths of its bin."""
    figure, (axes,) = plain_figure(f"{name}: sequence lengths")
    edges = _length_edges([data.lengths[data.lengths > 0] for _, data in views])
    for (title, data), style in zip(views, line_styles(len(views)), strict=True):
        lengths = data.lengths[data.lengths > 0]
        counts, _ = np.histogram(lengths, edges)
        axes.stairs(counts / np.diff(edges), edges, label=f"{title} (median {np.median(lengths):,.0f})", **style)
    axes.set(xscale="log", yscale="log", xlabel="events in the sequence", ylabel="sequences of each length")
    # Windows may all have one length; widen the axis so that it has ticks.
    axes.set_xlim(max(0.6, min(edges[0], edges[-1] / 4)), edges[-1])
    _thousands(axes)
    axes.xaxis.set_major_locator(_one_two_five())
    axes.legend()
    return figure


def popularity_plot(views: Views, name: str) -> "Figure":
    """Plot item frequency by rank, and the share of events of the most popular items."""
    figure, (ranks, lorenz) = plain_figure(f"{name}: item popularity", panels=2)
    for (title, data), style in zip(views, line_styles(len(views)), strict=True):
        popularity = item_popularity(data)
        ranks.plot(np.arange(1, len(popularity) + 1), popularity, label=title, **style)
        share = np.append(0, np.cumsum(popularity[::-1])) / popularity.sum()
        lorenz.plot(np.linspace(0, 100, len(share)), 100 * share, label=title, **style)
    ranks.set(xscale="log", yscale="log", xlabel="rank of the item", ylabel="events")
    _thousands(ranks)
    lorenz.plot([0, 100], [0, 100], color="#888888", linewidth=1, label="all equally popular")
    lorenz.set(xlabel="% of items that occur, rarest first", ylabel="% of events", xlim=(0, 100), ylim=(0, 100))
    lorenz.set_aspect("equal")
    for axes in (ranks, lorenz):
        axes.legend()
    return figure


def repeat_plot(views: Views, name: str) -> "Figure":
    """Plot the share of repeats by position from the end of the sequence."""
    figure, (axes,) = plain_figure(f"{name}: repeats of an earlier item")
    for (title, data), style in zip(views, line_styles(len(views)), strict=True):
        # The rate is noise where few sequences are that long.
        enough = max(1, int(REACHED_BY * (data.lengths > 0).sum()))
        rates = repeat_rate_from_end(data, POSITIONS, at_least=enough)
        axes.plot(np.arange(1, POSITIONS + 1), 100 * rates, label=title, **style)
    axes.set_xlabel(f"position from the end (1: last event), as far as {100 * REACHED_BY:.0f} % of the sequences reach")
    axes.set_ylabel("% of events there that repeat")
    axes.set_xlim(POSITIONS + 0.5, 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xticks([1, *range(5, POSITIONS + 1, 5)])
    axes.legend()
    return figure


def time_plot(times: Longs, name: str) -> "Figure":
    """Plot a heat map of events by weekday and hour, or by weekday and month if timestamps are whole days."""
    cells, labels, unit = _calendar(times)
    figure, (axes,) = plain_figure(f"{name}: when people act", height=3.4)
    image = axes.imshow(cells, cmap="viridis", aspect="auto", vmin=0)
    axes.set_yticks(range(7), WEEKDAYS)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel(unit)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label="% of events", pad=0.02)
    return figure


def _calendar(times: Longs) -> tuple[npt.NDArray[np.float64], tuple[str, ...], str]:
    """Return the share of events by weekday (rows) and hour or month (columns), the column labels and their unit."""
    seconds = times // MICROSECONDS
    days = seconds // DAY_SECONDS
    weekday = (days + 3) % 7  # day 0, the first of 1970, was a Thursday
    if (seconds % DAY_SECONDS).any():
        column, labels, unit = seconds % DAY_SECONDS // 3600, tuple(map(str, range(24))), "hour (UTC)"
    else:
        column = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        labels, unit = MONTHS, "month (the stamps are whole days)"
    cells = np.bincount(weekday * len(labels) + column, minlength=7 * len(labels)).reshape(7, len(labels))
    return 100 * cells / len(times), labels, unit


def _length_edges(lengths: list[Longs]) -> npt.NDArray[np.float64]:
    """Return bin edges between whole numbers, spaced evenly on a logarithmic axis where possible."""
    values = np.concatenate(lengths)
    return np.unique(np.round(np.geomspace(values.min(), values.max() + 1, BINS))).astype(np.float64) - 0.5


def plain_figure(title: str, panels: int = 1, height: float = 4.2) -> tuple["Figure", list["Axes"]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 if panels == 1 else 10, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for one in axes:
        one.grid(color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def line_styles(count: int) -> list[dict[str, Any]]:
    return [
        {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)], "linewidth": 1.8}
        for number in range(count)
    ]


def _thousands(axes: "Axes") -> None:
    """Format numbers with thousands separators instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _one_two_five() -> "Locator":
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1, 2, 5))
