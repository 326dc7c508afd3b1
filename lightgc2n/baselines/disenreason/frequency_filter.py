"""Sequences split into frequency bands by an FFT, from slow to fast changes.

Shapes: I sequences, L places, Q bands, F frequencies, D width.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

FIRST_DEVIATION = 0.02


def frequencies_of(length: int) -> int:
    """The number of frequencies of the real FFT."""
    return length // 2 + 1


class Bands(nn.Module):
    """Bands of equal width, the last one perhaps narrower; without a filter they sum to the sequence."""

    inside: Float[Tensor, "F Q"]

    def __init__(self, length: int, bands: int) -> None:
        super().__init__()
        self.length = length
        frequency = torch.arange(frequencies_of(length))
        band = frequency // -(-len(frequency) // bands)
        self.register_buffer("inside", (band[:, None] == torch.arange(bands)).float(), persistent=False)

    def forward(self, events: Float[Tensor, "I L D"]) -> Float[Tensor, "I L Q D"]:
        spectrum = torch.fft.rfft(events, dim=1, norm="ortho") * self.factors()  # Θ ⊙ Z
        parts = self.inside[:, :, None] * spectrum[:, :, None]
        return torch.fft.irfft(parts, n=self.length, dim=1, norm="ortho")  # B_q

    def factors(self) -> Tensor:
        """The factor of every frequency."""
        return self.inside.new_ones(())


class FilteredBands(Bands):
    """Bands after a learned filter: one complex factor for each frequency and feature."""

    def __init__(self, length: int, bands: int, width: int) -> None:
        super().__init__(length, bands)
        ones = torch.view_as_real(torch.ones(frequencies_of(length), width, dtype=torch.complex64))
        self.filter = nn.Parameter(ones + FIRST_DEVIATION * torch.randn_like(ones))

    def factors(self) -> Tensor:
        return torch.view_as_complex(self.filter)
