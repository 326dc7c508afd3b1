"""Progress of long loops for a caller that shows it; this folder itself shows nothing and needs numpy alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Value = TypeVar("Value")
Show = Callable[[str, Sequence[Any]], Iterable[Any]]
_show: ContextVar[Show | None] = ContextVar("lightgc2n-people-progress", default=None)


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Pass the long loops of the block to `show`, which yields the values and shows how many are done."""
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)


def tracked(title: str, values: Sequence[Value]) -> Iterable[Value]:
    """The values, one by one, shown to the caller if there is one that wants to see them."""
    show = _show.get()
    return values if show is None else show(title, values)
