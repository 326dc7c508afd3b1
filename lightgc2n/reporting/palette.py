"""Colours that colour-blind readers tell apart, on light and on dark paper; a marker and a line style repeat each.

Plots are drawn with the light colours. On the page each becomes a variable of the style sheet, so that plots follow the
reader's choice of light or dark.
"""

# name: on light paper, on dark paper
SERIES = {
    "blue": ("#0a6db0", "#5cb3f0"),
    "orange": ("#c4500a", "#f08a4b"),
    "green": ("#1a7f5a", "#52c79b"),
    "purple": ("#7d3f98", "#cf9be6"),
    "mustard": ("#8a6a00", "#d9b84a"),
    "rose": ("#b0305c", "#f27fa5"),
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
    """The colour so called on light paper."""
    return COLOURS[name][0]


def style_of(place: int) -> dict[str, str]:
    """Colour, marker and line of the series at this place; no two of the first 30 look the same."""
    names = list(SERIES)
    # Marks change with every series, so that neighbours differ in all three.
    return {
        "color": light(names[place % len(names)]),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[(place // len(names) + place) % len(DASHES)],
    }
