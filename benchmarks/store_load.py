"""The service on a store of events: writes a second, lists beside a service without a store, p99 and memory.

python benchmarks/store_load.py BUNDLE [--events 10000000] [--seconds 60] [--databases sqlite postgresql]

Needs wrk (Debian: apt-get install wrk) and for PostgreSQL Debian's packages postgresql and python's psycopg: a server
with its default settings is started in a temporary folder. The store holds the events of the bundle's accounts, and
events of other accounts up to --events, 100 each, each with an id. Each account that is asked for has one event more
than in the bundle, so that its history comes from the store. With --keep FOLDER the filled stores stay there and the
next run measures on them; --fill-only ends before the load. Everything is measured in one run, by turns of 3 seconds:
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serving_load import LUA, ROUND_SECONDS, memory, process, wrk

PER_ACCOUNT, BATCH, WRITERS, BODIES = 100, 100, 4, 1000
DAY = 86_400_000_000
BLOCK = 500_000  # events of one transaction
BY_ITEM = "events_of_item"  # an index that is made after the filling


@contextmanager
def readable_folder() -> Iterator[Path]:
    """A temporary folder that PostgreSQL can read, which runs as another user if this is root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextmanager
def server_of(database: str, folder: Path) -> Iterator[str]:
    """The address for a store in this folder; a PostgreSQL server runs meanwhile."""
    from tests.store.postgres import find_binaries, running_postgres

    folder.mkdir(parents=True, exist_ok=True)
    if database == "sqlite":
        yield str(folder / "events.db")
        return
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed"
    inner = folder / "server"
    inner.mkdir(exist_ok=True)
    with running_postgres(inner, binaries) as server:
        yield server.address("events") if (folder / "filled").exists() else server.new_database("events")


def fill(database: str, url: str, bundle: Path, events: int) -> None:
    """Create a store with the bundle's accounts, one event more each, and other accounts up to a number of events."""
    from lightgc2n.recommending.load_bundle import load_bundle
    from lightgc2n.serving.live_histories import events_in_bundle
    from lightgc2n.store.event_store import NewEvent, create_store
    from lightgc2n.store.schema import MIGRATIONS

    store, recommender = create_store(url), load_bundle(bundle)
    known, items = list(recommender.dataset.accounts), list(recommender.dataset.items)
    dice = random.Random(0)
    newest = int(recommender.dataset.times.max()) if recommender.dataset.times is not None else 0
    for start in range(0, len(known), 500):
        new = [NewEvent(account, dice.choice(items), newest + DAY) for account in known[start : start + 500]]
        store.append(new, lambda account: events_in_bundle(recommender, account))
    left = -(-max(0, events - store.facts().events) // PER_ACCOUNT)
    with store.database.transaction() as session:
        session.copy("accounts", ("id", "version"), ((f"x{number:08}", 1) for number in range(left)))
        numbers = [row[0] for row in session.run("SELECT number FROM accounts WHERE id LIKE ?", ("x%",))]
        places = np.array([row[0] for row in session.run("SELECT number FROM items")])
        session.run(f"DROP INDEX {BY_ITEM}")
    for start in range(0, left, BLOCK // PER_ACCOUNT):
        with store.database.transaction() as session:
            rows = random_events(numbers[start : start + BLOCK // PER_ACCOUNT], places, newest, start)
            if database == "postgresql":  # the numbers of accounts and items were just read: do not check each row
                session.run("SET LOCAL session_replication_role = replica")
            session.copy("events", ("account", "item", "time", "id"), rows)
        print(f"\r{(start + BLOCK // PER_ACCOUNT) * PER_ACCOUNT:,} events", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    with store.database.transaction() as session:
        session.run(next(one for one in MIGRATIONS[0] if BY_ITEM in one))
    store.close()
    if database == "postgresql":  # else the server does it by itself during the measurement
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM (FREEZE, ANALYZE)")


def random_events(accounts: Sequence[int], items: Any, newest: int, seed: int) -> Iterator[tuple[int, int, int, str]]:
    """Events of accounts in the year before the newest event of the bundle, oldest first."""
    dice = np.random.default_rng(seed)
    size = (len(accounts), PER_ACCOUNT)
    times = newest - np.sort(dice.integers(0, 365 * DAY, size), axis=1)[:, ::-1]
    owners = np.repeat(accounts, PER_ACCOUNT)
    ids = (f"e{seed}-{number}" for number in range(len(owners)))
    return zip(owners.tolist(), dice.choice(items, size).ravel().tolist(), times.ravel().tolist(), ids, strict=True)


def filled(database: str, url: str, folder: Path, bundle: Path, events: int) -> None:
    """Fill the store, unless an earlier run with --keep has done so."""
    marker, wanted = folder / "filled", f"{events} {(bundle / 'SHA256SUMS').read_text()}"
    if marker.exists():
        assert marker.read_text() == wanted, f"{folder} was filled for another bundle or number of events"
        return
    started = time.perf_counter()
    fill(database, url, bundle, events)
    marker.write_text(wanted)
    print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)


def accounts_of(url: str, bundle: Path) -> tuple[list[str], list[str]]:
    """The accounts of the bundle, and all those of the store."""
    from lightgc2n.store.event_store import open_store

    store = open_store(url)
    every = [str(account) for (account,) in store.database.query("SELECT id FROM accounts ORDER BY number")]
    print(f"{store.facts().events:,} events of {len(every):,} accounts", flush=True)
    store.close()
    return (bundle / "server" / "accounts.txt").read_text().splitlines(), every


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
        quarters = [resident[round(share * (len(resident) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
        numbers = ", ".join(f"{one:.0f}" for one in quarters)
        yield f"RSS of the service, MB, after the first turn, and after each quarter of the turns: {numbers}"


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
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled stores here and use them again")
    parser.add_argument("--fill-only", action="store_true", help="fill the stores of --keep, and measure nothing")
    given = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for database in given.databases:
        with ExitStack() as stack:
            folder = (given.keep or stack.enter_context(readable_folder())).absolute() / database
            url = stack.enter_context(server_of(database, folder))
            print(f"\n{database}", flush=True)
            filled(database, url, folder, given.bundle, given.events)
            if not given.fill_only:
                for line in measure(url, given.bundle, *accounts_of(url, given.bundle), given):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
