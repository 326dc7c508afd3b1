"""What goes into a bundle."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ExportOptions:
    """Choices of whoever exports."""

    int8: bool = False
    histories: bool = True
    people: bool = True
    titles: Path | Mapping[str, str] | None = None  # a file, or titles by item id
