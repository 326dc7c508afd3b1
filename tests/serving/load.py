"""Many who ask at once, and what became of every question."""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.serving.running import Client, Reply


@dataclass
class Asked:
    """What those who asked have got."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # connections that were not accepted
    lost: list[str] = field(default_factory=list)  # asked over an accepted connection, and never answered


@contextmanager
def asking(
    port: int, bodies: list[dict[str, Any]], judge: Callable[[dict[str, Any], Reply], str], threads: int = 4
) -> Iterator[Asked]:
    """Asks as fast as it can while the block runs.

    Args:
        judge: names an answer, or says what is wrong with it by raising AssertionError.
    """
    asked, enough = Asked(), threading.Event()

    def one(number: int) -> None:
        client, turn = Client(port), number
        while not enough.is_set():
            body = bodies[turn % len(bodies)]
            turn += 1
            try:
                name = judge(body, client.recommend(**body))
            except ConnectionRefusedError as problem:
                asked.refused.append(repr(problem))
                return
            except (OSError, http.client.HTTPException) as problem:
                asked.lost.append(repr(problem))
                return
            except AssertionError as problem:
                asked.wrong.append(str(problem))
            else:
                asked.answers[name] += 1
        client.close()

    workers = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield asked
    finally:
        enough.set()
        for worker in workers:
            worker.join(30)
