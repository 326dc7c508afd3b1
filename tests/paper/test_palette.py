"""Colours can be told from the paper, and from each other by people who see fewer of them."""

from itertools import combinations, product

import numpy as np
import pytest

from lightgc2n.paper.palette import COLOURS, SERIES, colour_of, light, places_of, style_of

# What red-, green- and blue-blind people see of linear red, green and blue (Machado et al. 2009, severity 1).
SEEN = {
    "all": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


# To Björn Ottosson's Oklab, in which distances are about as large as they look.
CONES = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
OKLAB = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The ratio of the Web Content Accessibility Guidelines."""
    bright, dark = sorted((float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_all_colours_contrast_with_the_background(paper: int) -> None:
    shade = {name: shades[paper] for name, shades in COLOURS.items()}
    for name in SERIES:
        assert contrast(shade[name], shade["paper"]) >= 3, name
    for text, ground in product(("ink", "muted", "holds", "fails", "open", "blue"), ("paper", "raised")):
        assert contrast(shade[text], shade[ground]) >= 4.5, (text, ground)


def looks(colour: str, seen: str) -> np.ndarray:
    return OKLAB @ np.cbrt(CONES @ np.clip(SEEN[seen] @ linear(colour), 0, 1))


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_series_differ_for_everybody(paper: int, seen: str) -> None:
    for one, other in combinations(SERIES, 2):
        apart = looks(SERIES[one][paper], seen) - looks(SERIES[other][paper], seen)
        # Black and white are 1 apart.
        assert np.linalg.norm(apart) > 0.1, (one, other)


def test_series_differ_without_colour() -> None:
    marks = [(style["marker"], style["linestyle"]) for style in map(style_of, range(40))]
    assert len(set(marks)) == 40


def test_no_two_names_share_a_colour() -> None:
    lights = [shades[0] for shades in COLOURS.values()]
    assert len(set(lights)) == len(lights), "a plot's colour could not be turned into its variable"


def test_the_model_and_ours_have_the_same_colour_everywhere() -> None:
    names = ["sasrec", "lightgc2n-plus", *(f"other {place}" for place in range(20)), "lightgc2n", "lightgc2n-wo-a"]
    for order in (names, names[::-1]):
        styles = dict(zip(order, map(style_of, places_of(order)), strict=True))
        assert styles["lightgc2n"]["color"] == light("blue") == colour_of("LightGC²N")
        assert styles["lightgc2n-plus"]["color"] == light("rose") == colour_of("ours")
        others = {style["color"] for name, style in styles.items() if name not in ("lightgc2n", "lightgc2n-plus")}
        assert others == {light(name) for name in ("orange", "green", "purple", "mustard")}
        assert len({(style["marker"], style["linestyle"]) for style in styles.values()}) == len(names)
    assert colour_of("lightgc2n-wo-a") == colour_of("sasrec") == light("open")
