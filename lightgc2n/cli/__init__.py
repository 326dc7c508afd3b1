"""The commands, in the order of the story; each parses, calls one function and prints."""

from collections.abc import Callable
from typing import Any

COMMANDS: dict[str, Callable[..., Any]] = {}
