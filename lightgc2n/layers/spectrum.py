"""Sequences divided into bands of frequencies: what changes slowly, what changes fast, each as a sequence of its own.

Shapes: I sequences, L places, Q bands, F frequencies, D width.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

FIRST_DEVIATION = 0.02


def frequencies_of(length: int) -> int:
    """How many frequencies tell a real sequence."""
    return length // 2 + 1


class Bands(nn.Module):
    """Bands of equal width, the last one perhaps narrower; without a filter they add up to the sequence."""

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
        """What every frequency is multiplied by."""
        return self.inside.new_ones(())


class FilteredBands(Bands):
    """The same after a learned filter, which multiplies each frequency of each feature by a complex number."""

    def __init__(self, length: int, bands: int, width: int) -> None:
        super().__init__(length, bands)
        ones = torch.view_as_real(torch.ones(frequencies_of(length), width, dtype=torch.complex64))
        self.filter = nn.Parameter(ones + FIRST_DEVIATION * torch.randn_like(ones))

    def factors(self) -> Tensor:
        return torch.view_as_complex(self.filter)
