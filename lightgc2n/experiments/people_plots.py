"""How sure a method was of its counts, and how often it was right: a picture beside the tables."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.data.plots import line_styles, plain_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RELIABILITY = "reliability.png"
FEWEST = 5  # accounts in a tenth; the share of fewer says nothing


def write_reliability(result: dict[str, Any], folder: Path) -> str:
    """Draws the picture, if a method says how sure it is; gives a line to tell where it cannot be drawn."""
    told = {name: row["reliability"] for name, row in result["tables"]["inferred"].items() if "reliability" in row}
    if not told:
        return ""
    if find_spec("matplotlib") is None:
        return f"No {RELIABILITY}: matplotlib is not installed (pip install 'lightgc2n[report]')."
    reliability_plot(told, result["dataset"]["name"]).savefig(folder / RELIABILITY)
    return ""


def reliability_plot(told: dict[str, dict[str, Any]], name: str) -> "Figure":
    """Share of right counts over confidence, by tenths of confidence; larger dots stand for more accounts."""
    figure, (axes,) = plain_figure(f"{name}: is the count right as often as it is sure?")
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="as sure as right")
    for (method, facts), style in zip(told.items(), line_styles(len(told)), strict=True):
        lines = [line for line in facts["tenths"] if line["accounts"] >= FEWEST]
        sure, right = ([line[key] for line in lines] for key in ("confidence", "right"))
        error = facts["calibration error"]
        axes.plot(sure, right, label=f"{method} ({error:.3f} apart on average)", **style)
        sizes = [400 * line["accounts"] / facts["accounts"] for line in lines]
        axes.scatter(sure, right, s=sizes, color=style["color"], alpha=0.5, linewidths=0)
    axes.set_xlabel("confidence: the chance given to the count that was said")
    axes.set_ylabel("share of accounts with that count")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.legend(loc="lower right", fontsize="small")
    return figure
