"""The service on a store of events: writes a second, lists beside a service without a store, p99 and memory.

python benchmarks/store_load.py BUNDLE [--events 10000000] [--seconds 60] [--databases sqlite postgresql]

Needs wrk (Debian: apt-get install wrk) and for PostgreSQL Debian's packages postgresql and python's psycopg: a server
is started in a temporary folder. The store holds the events of the bundle's accounts, and events of other accounts up
to --events, 100 each. Each account that is asked for has one event more than in the bundle, so that its history comes
from the store. Everything is measured in one run, by turns of 3 seconds:
- `recommend, no store`: 20 items for an account of the bundle, from a service without a store.
- `recommend`: the same requests to a service on the store.
- `write`: batches of 100 events of random accounts of the store, each with an id of its own, 4 connections.
- `recommend while writing`: both at once; writes at the rate of one connection.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serving_load import LUA, ROUND_SECONDS, memory, process, wrk

PER_ACCOUNT, BATCH, WRITERS, BODIES = 100, 100, 4, 1000
DAY = 86_400_000_000
ROWS = 100_000  # of one COPY


@contextmanager
def empty_store(database: str, folder: Path) -> Iterator[str]:
    """The address of an empty store."""
    from lightgc2n.store.event_store import create_store
    from tests.store.postgres import find_binaries, running_postgres

    if database == "sqlite":
        create_store(str(folder / "events.db")).close()
        yield str(folder / "events.db")
        return
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed"
    inner = folder / "server"
    inner.mkdir()
    folder.chmod(0o755)
    with running_postgres(inner, binaries) as server:
        url = server.new_database("events")
        create_store(url).close()
        yield url


def fill(url: str, bundle: Path, events: int) -> tuple[list[str], list[str]]:
    """Fill a store; return the accounts of the bundle, and those of the store."""
    from lightgc2n.recommending.load_bundle import load_bundle
    from lightgc2n.serving.live_histories import events_in_bundle
    from lightgc2n.store.event_store import NewEvent, open_store

    store, recommender = open_store(url), load_bundle(bundle)
    known, items = list(recommender.dataset.accounts), list(recommender.dataset.items)
    dice = random.Random(0)
    newest = int(recommender.dataset.times.max()) if recommender.dataset.times is not None else 0
    for start in range(0, len(known), 500):
        new = [NewEvent(account, dice.choice(items), newest + DAY) for account in known[start : start + 500]]
        store.append(new, lambda account: events_in_bundle(recommender, account))
    left = max(0, events - store.facts().events) // PER_ACCOUNT
    others = [f"x{number:08}" for number in range(left)]
    with store.database.transaction() as session:
        session.copy("accounts", ("id", "version"), ((account, 1) for account in others))
        numbers = [row[0] for row in session.run("SELECT number FROM accounts WHERE id LIKE ?", ("x%",))]
        places = [row[0] for row in session.run("SELECT number FROM items")]
        for start in range(0, len(numbers), ROWS // PER_ACCOUNT):
            rows = (
                (account, dice.choice(places), newest - dice.randrange(365 * DAY))
                for account in numbers[start : start + ROWS // PER_ACCOUNT]
                for _ in range(PER_ACCOUNT)
            )
            session.copy("events", ("account", "item", "time"), rows)
    store.close()
    return known, known + others


def write_requests(accounts: list[str], folder: Path) -> Path:
    """The requests for lists, and what makes wrk send them."""
    dice = random.Random(1)
    bodies = [{"account": dice.choice(accounts)} for _ in range(BODIES)]
    (folder / "bodies").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    (folder / "load.lua").write_text(LUA % (folder / "bodies"))
    return folder / "load.lua"


class Writer:
    """Sends batches of events over one connection."""

    def __init__(self, port: int, accounts: list[str], items: list[str], seed: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._accounts, self._items, self._dice, self._sent, self._name = accounts, items, random.Random(seed), 0, seed

    def run(self, seconds: float) -> list[float]:
        """Send batches for some seconds and return the milliseconds that each took."""
        end, took = time.monotonic() + seconds, list[float]()
        while time.monotonic() < end:
            body = json.dumps({"events": [self._event() for _ in range(BATCH)]})
            started = time.perf_counter()
            self._connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            content = answer.read()
            took.append(1e3 * (time.perf_counter() - started))
            assert answer.status == 201, content
            assert json.loads(content)["stored"] == BATCH, content
        return took

    def _event(self) -> dict[str, Any]:
        self._sent += 1
        account, item = self._dice.choice(self._accounts), self._dice.choice(self._items)
        return {"account": account, "item": item, "id": f"{os.getpid()}-{self._name}-{self._sent}"}


def measure(url: str, bundle: Path, known: list[str], every: list[str], given: argparse.Namespace) -> Iterator[str]:
    items = (bundle / "items.txt").read_text().splitlines()
    serve = ("-m", "lightgc2n", "serve", bundle, "--port", "PORT")
    with (
        tempfile.TemporaryDirectory() as folder,
        process(*serve) as (other, plain, _),
        process(*serve, "--store", url) as (pid, live, _),
        ThreadPoolExecutor(WRITERS) as threads,
    ):
        script = write_requests(known, Path(folder))
        writers = [Writer(live, every, items, seed) for seed in range(WRITERS)]
        address = {name: f"http://127.0.0.1:{port}/v1/recommend" for name, port in (("plain", plain), ("live", live))}
        rates: dict[str, list[tuple[int, float, float, float]]] = {"plain": [], "live": [], "both": []}
        pids, cost = (
            {"plain": other, "live": pid},
            {"plain": list[float](), "live": list[float](), "write": list[float]()},
        )
        wrote: list[list[float]] = []
        beside: list[int] = []
        resident: list[float] = []
        for _ in range(max(2, given.seconds // ROUND_SECONDS)):
            for name in ("plain", "live"):
                before = cpu_seconds(pids[name])
                rates[name].append(wrk(script, address[name], ROUND_SECONDS, given.connections))
                cost[name].append(1e3 * (cpu_seconds(pids[name]) - before) / rates[name][-1][0])
            before = cpu_seconds(pid)
            each = threads.map(lambda one: one.run(ROUND_SECONDS), writers)
            wrote.append([milliseconds for one in each for milliseconds in one])
            cost["write"].append(1e3 * (cpu_seconds(pid) - before) / max(1, len(wrote[-1])))
            batches = threads.submit(writers[0].run, ROUND_SECONDS)
            rates["both"].append(wrk(script, address["live"], ROUND_SECONDS, given.connections))
            beside.append(len(batches.result()))
            resident.append(memory(pid, "VmRSS"))
        yield from report(rates, wrote, beside)
        own, others = (statistics.median(cost[name]) for name in ("live", "plain"))
        batch = statistics.median(cost["write"])
        yield (
            f"CPU time of the service, ms: {own:.2f} a list, without a store {others:.2f} ({others / own:.2f} of it); "
            f"{batch:.1f} a batch of {BATCH} events"
        )
        first, last, most = resident[0], resident[-1], max(resident)
        yield f"RSS of the service, MB: {first:.0f} after the first turn, {last:.0f} at the end, at most {most:.0f}"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(
    rates: dict[str, list[tuple[int, float, float, float]]], wrote: list[list[float]], beside: list[int]
) -> Iterator[str]:
    yield "| | a second: median (least to most) | p50, ms | p99, ms | share of no store |\n|---|---|---|---|---|"
    names = {"plain": "recommend, no store", "live": "recommend", "both": "recommend while writing"}
    for name, each in rates.items():
        _, rate, middle, far = zip(*each, strict=True)
        share = statistics.median(own[1] / other[1] for own, other in zip(each, rates["plain"], strict=True))
        yield (
            f"| {names[name]} | {statistics.median(rate):,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) | "
            f"{statistics.median(middle):.1f} | {statistics.median(far):.1f} | {share:.2f} |"
        )
    events = [len(turn) * BATCH / ROUND_SECONDS for turn in wrote]
    took = sorted(one for turn in wrote for one in turn)
    yield (
        f"| write, events | {statistics.median(events):,.0f} ({min(events):,.0f} to {max(events):,.0f}) | "
        f"{took[len(took) // 2]:.1f} | {took[int(0.99 * len(took))]:.1f} | |"
    )
    yield f"while writing, events a second: {statistics.median(beside) * BATCH / ROUND_SECONDS:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=60, help="of load of each kind")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    given = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for database in given.databases:
        with tempfile.TemporaryDirectory() as folder, empty_store(database, Path(folder)) as url:
            started = time.perf_counter()
            known, every = fill(url, given.bundle, given.events)
            print(f"\n{database}: {given.events:,} events, filled in {time.perf_counter() - started:.0f} s", flush=True)
            for line in measure(url, given.bundle, known, every, given):
                print(line, flush=True)


if __name__ == "__main__":
    main()
