"""Colours that colour-blind readers tell apart, on light and on dark paper; a marker and a line style repeat each.

Plots are drawn with the light colours. On the page each becomes a variable of the style sheet, so that plots follow the
reader's choice of light or dark.
"""

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
    """The colour so called on light paper."""
    return COLOURS[name][0]


def style_of(place: int) -> dict[str, str]:
    """Colour, marker and line of the series at this place; marker and line alone tell the first 40 apart."""
    names = list(SERIES)
    return {
        "color": light(names[place % len(names)]),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[(place // len(MARKERS) + place) % len(DASHES)],
    }
