"""The interface of a live-quality recorder, which receives stored events with the histories before them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lightgc2n.recommending.queries import History
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.store.events import NewEvent


class RecordedEvent(NamedTuple):
    """A stored event, and the history of its account before it."""

    event: NewEvent
    before: History


class EventRecorder(Protocol):
    """Attached as `service.recorder`. Both methods run in the event loop and must return at once: queue the work."""

    def select(self, events: Sequence[NewEvent]) -> Sequence[int]:
        """Return the indices of the events whose histories are needed; none under load."""

    def record(self, served: ServedBundle, events: Sequence[RecordedEvent]) -> None:
        """Receive those of the selected events that were stored; not called for duplicates and refused ones.

        Args:
            served: the bundle whose item numbers the histories have.
        """
