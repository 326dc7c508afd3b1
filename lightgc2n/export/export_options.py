"""What a bundle contains."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export."""

    int8: bool = False
    histories: bool = True
    people: bool = True
    titles: Path | None = None
