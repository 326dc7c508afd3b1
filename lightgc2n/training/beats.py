"""Signs of life of the workers of a run: a thread of each counts up in the store where they met.

A process that computes or waits counts on. One that the system has stopped does not, and neither does one whose machine
is cut off, so it need not be waited for until an exchange takes too long.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

SECONDS_BETWEEN_BEATS = 1.0
MISSED_BEATS = 3  # fewer prove nothing: a thread may be late
SECONDS_TO_CONNECT = 60.0


@contextmanager
def beating(number: int, host: str, port: int) -> Iterator[None]:
    """Show during the block that this worker is alive."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(number, host, port, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS_BETWEEN_BEATS)


def _beat(number: int, host: str, port: int, ended: threading.Event) -> None:
    with suppress(RuntimeError):  # the run has ended, and with it the store
        # A connection of its own: the other one is busy for as long as the process waits for a key.
        limit = timedelta(seconds=SECONDS_TO_CONNECT)
        store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
        while not ended.is_set():
            store.add(_key(number), 1)
            ended.wait(SECONDS_BETWEEN_BEATS)


class Beats:
    """How long each worker has been silent; it is judged from its first sign of life on."""

    def __init__(self, store: TCPStore, workers: int, limit: float) -> None:
        self.store, self.limit = store, max(limit, MISSED_BEATS * SECONDS_BETWEEN_BEATS)
        self._heard, self._silence = [0] * workers, [0.0] * workers
        self._looked = time.monotonic()

    def silent(self) -> list[int]:
        """The workers that are silent for longer than the limit."""
        # Time in which this process itself was stopped does not count.
        passed = min(time.monotonic() - self._looked, SECONDS_BETWEEN_BEATS)
        self._looked = time.monotonic()
        for number, heard in enumerate(self._heard):
            self._heard[number] = self.store.add(_key(number), 0)
            alive = self._heard[number] != heard or not heard
            self._silence[number] = 0.0 if alive else self._silence[number] + passed
        return [number for number, silence in enumerate(self._silence) if silence > self.limit]


def _key(number: int) -> str:
    return f"beats of worker {number}"
