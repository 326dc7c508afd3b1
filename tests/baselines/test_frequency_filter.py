"""Bands of frequencies: what each keeps, and that together they lose nothing."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n.baselines.disenreason import Bands, FilteredBands, frequencies_of


@given(st.integers(1, 9), st.integers(1, 4))
def test_bands_add_up_to_the_sequence(length: int, bands: int) -> None:
    events = torch.randn(2, length, 3)
    parts = Bands(length, bands)(events)
    assert parts.shape == (2, length, bands, 3)
    assert_close(parts.sum(dim=2), events, rtol=1e-4, atol=1e-5)


def test_waves_fall_into_their_bands() -> None:
    """Eight places have the frequencies 0 to 4, in bands of three and two: a slow wave, 1, and a fast one, 3."""
    place = 2 * math.pi * torch.arange(8) / 8
    slow, fast = torch.cos(place), torch.sin(3 * place)
    actual = Bands(8, 2)((5 + slow + fast)[None, :, None])
    assert_close(actual[0, :, 0, 0], 5 + slow, rtol=1e-4, atol=1e-5)
    assert_close(actual[0, :, 1, 0], fast, rtol=1e-4, atol=1e-5)


def test_the_filter_weighs_and_shifts() -> None:
    """A factor of 2 doubles a frequency; the factor -i turns a cosine into a sine."""
    made = FilteredBands(8, 1, 1)
    factors = torch.ones(frequencies_of(8), 1, dtype=torch.complex64)
    factors[1], factors[2] = 2, -1j
    with torch.no_grad():
        made.filter.copy_(torch.view_as_real(factors))
    place = 2 * math.pi * torch.arange(8) / 8
    actual = made((torch.cos(place) + torch.cos(2 * place))[None, :, None])
    assert_close(actual[0, :, 0, 0], 2 * torch.cos(place) + torch.sin(2 * place), rtol=1e-4, atol=1e-5)
