"""Colours that colour-blind readers can distinguish, in light and dark mode; markers and line styles repeat them.

Plots are drawn with the light colours. On the page each colour becomes a CSS variable, so that plots follow the
reader's light or dark mode. LightGC²N has the same colour in every plot, our models another, and no other model uses
either.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from lightgc2n.paper.document import is_model, is_ours

# name: on light paper, on dark paper
SERIES = {
    "blue": ("#244db9", "#6189ff"),
    "orange": ("#ad4f25", "#ef6247"),
    "green": ("#549c87", "#a7ffcb"),
    "purple": ("#5a037e", "#ad81ac"),
    "mustard": ("#b3830b", "#efe534"),
    "rose": ("#7b0f42", "#eaa6ab"),
}
SHADES = {
    "paper": ("#ffffff", "#14171c"),
    "raised": ("#f5f6f8", "#1d2128"),
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#59616b", "#a3abb6"),
    "rule": ("#d9dde2", "#343a43"),
    "holds": ("#1a6e4f", "#52c79b"),
    "fails": ("#a63d00", "#f08a4b"),
    "open": ("#59616c", "#a3abb5"),
}
COLOURS = SERIES | SHADES
LOOKS_LIKE = {shades[0]: f"var(--{name})" for name, shades in COLOURS.items()}  # light colour -> variable
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")


def light(name: str) -> str:
    """The light-mode colour with this name."""
    return COLOURS[name][0]


def style_of(place: int) -> dict[str, str]:
    """Colour, marker and line of the series at this index; marker and line alone distinguish the first 40."""
    names = list(SERIES)
    return {
        "color": light(names[place % len(names)]),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[(place // len(MARKERS) + place) % len(DASHES)],
    }


def places_of(names: Sequence[str]) -> list[int]:
    """The index of each series by its name: LightGC²N has the first colour, ours the last, the others those between."""
    last = len(SERIES) - 1
    left = [_with_colours(0, 0), _with_colours(last, last), _with_colours(1, last - 1)]
    return [next(left[0 if is_model(name) else 1 if is_ours(name) else 2]) for name in names]


def _with_colours(first: int, last: int) -> Iterator[int]:
    return (place for place in count() if first <= place % len(SERIES) <= last)


def colour_of(name: str) -> str:
    """The colour of a series among many: LightGC²N and ours have their own, all others are grey."""
    standing_out = is_model(name) or is_ours(name)
    return style_of(places_of([name])[0])["color"] if standing_out else light("open")
