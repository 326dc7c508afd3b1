"""A service that lives: events of generated households are replayed, and the pipeline renews the model meanwhile.

The first weeks of the log go into an event store, and the pipeline trains a first model on them. Then the service runs
and the rest of the log is sent to it in time order, 200 events a second, while other clients ask for lists and the
pipeline runs round after round. At the end the live quality is printed; its plot is on the page, in the tab Model.

In a terminal the page stays up until Ctrl-C; with --check, or without a terminal, everything ends by itself. All files
are in a new temporary folder, which is removed at the end; all processes end with this one.
"""

import argparse
import csv
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BATCH, RATE = 20, 200  # events of a request, and a second
FIRST_SHARE = 0.1  # of the log, for the first model
PAUSE = 5.0  # seconds between two rounds of the pipeline
INTERRUPTED = 130  # the exit code after Ctrl-C
SETTINGS = """[pipeline]
store = "events.db"
challenger = "train"
catalogue = "first"

[split]
protocol = "time"
test_share = 0.05

[training]
epochs = {epochs}
batch_size = 64
learning_rate = 0.01
"""


Rows = list[dict[str, str]]


class Children:
    """The processes of the demo; all of them end with it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._all: list[subprocess.Popen[str]] = []
        self._lock, self._ending, self._starting, self._stopped = threading.Lock(), False, False, False

    def start(self, *words: object, **options: Any) -> "subprocess.Popen[str]":
        # Libraries keep caches in the folder for temporary files; these are removed with the demo as well.
        environment = os.environ | {"TMPDIR": str(self.place), "OMP_NUM_THREADS": "1"}
        with self._lock:
            if self._ending:
                raise SystemExit(INTERRUPTED)
            # A signal, which interrupts the main thread, waits until the process is in the list.
            self._starting = threading.current_thread() is threading.main_thread()
            child = subprocess.Popen(
                ["lightgc2n", *map(str, words)], cwd=self.place, env=environment, text=True, **options
            )
            self._all.append(child)
            self._starting = False
        if self._stopped:
            raise SystemExit(INTERRUPTED)
        return child

    def stop(self, _number: int, _frame: Any) -> None:
        """The first signal ends the demo, any further one kills its processes: the folder is removed in any case."""
        if self._stopped:
            for child in self._all:
                child.kill()
            return
        self._stopped = True
        if not self._starting:
            raise SystemExit(INTERRUPTED)

    def run(self, *words: object) -> None:
        """Run a command to its end; a failure ends the demo."""
        print(f"$ lightgc2n {' '.join(map(str, words))}", flush=True)
        child = self.start(*words)
        if child.wait():
            raise SystemExit(child.returncode)

    def end(self) -> None:
        self._stopped = True  # from here on a signal only kills
        with self._lock:
            self._ending = True
        for child in reversed(self._all):
            if child.poll() is None:
                child.terminate()
        for child in self._all:
            try:
                child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class Client:
    """One connection to the service, and what it counted."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self.asked, self.failed = 0, list[str]()

    def send(self, method: str, path: str, body: Any = None) -> Any:
        self.asked += 1
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            text = None if body is None else json.dumps(body)
            self._connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            content = answer.read()
            if answer.status >= 300:
                self.failed.append(f"{method} {path}: {answer.status} {content[:200].decode(errors='replace')}")
            return json.loads(content)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.failed.append(f"{method} {path}: {type(problem).__name__}: {problem}")
            self._connection = None
            return None


class Reader(threading.Thread):
    """Asks for the list of one account after another until it is stopped."""

    def __init__(self, port: int, accounts: list[str]) -> None:
        super().__init__(daemon=True)
        self.client, self._accounts, self.stopped = Client(port), accounts, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            account = self._accounts[self.client.asked % len(self._accounts)]
            self.client.send("POST", "/v1/recommend", {"account": account, "k": 10})


class Renewer(threading.Thread):
    """Runs the pipeline again and again until it is stopped."""

    def __init__(self, children: Children) -> None:
        super().__init__(daemon=True)
        self._children, self.stopped, self.problems = children, threading.Event(), list[int]()

    def run(self) -> None:
        while not self.stopped.wait(PAUSE):
            with (self._children.place / "pipeline-output.log").open("a") as log:
                child = self._children.start("pipeline", "run", "households.toml", stdout=log, stderr=log)
                if child.wait():
                    self.problems.append(child.returncode)


def prepare(children: Children, accounts: int, epochs: int) -> tuple[Rows, Rows]:
    """Generate the log, fill the store with its first part, train the first model; return the parts of the log."""
    children.run("generate", "--accounts", accounts, "--seed", 1, "--out", "households.csv", "--titles", "titles.tsv")
    with (children.place / "households.csv").open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["timestamp"]))
    cut = int(FIRST_SHARE * len(rows))
    with (children.place / "first.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[:cut])
    children.run("import", "first.csv", "--items", "titles.tsv", "--out", "first")
    children.run("store", "init", "events.db")
    children.run("store", "import", "events.db", "--data", "first")
    (children.place / "households.toml").write_text(SETTINGS.format(epochs=epochs), encoding="utf-8")
    children.run("pipeline", "run", "households.toml")
    return rows[:cut], rows[cut:]


def serve(children: Children) -> int:
    """Start the service and return its port."""
    with (children.place / "service.log").open("w") as log:
        service = children.start(
            "serve", "pipeline/live", "--store", "events.db", "--port", 0, stdout=subprocess.PIPE, stderr=log
        )
    assert service.stdout is not None
    line = service.stdout.readline()
    address = next((word.strip(";.,") for word in line.split() if word.startswith("http://")), None)
    if address is None:
        raise SystemExit(f"the service did not start; see {children.place / 'service.log'}")
    print(f"the page: {address}/#model", flush=True)
    return int(address.rstrip("/").rpartition(":")[2])


def requests(rows: Rows) -> Iterator[list[dict[str, Any]]]:
    """The events in time order, a batch at a time; each has an id, so that sending it twice counts once."""
    for start in range(0, len(rows), BATCH):
        yield [
            {
                "account": row["account_id"],
                "item": row["item_id"],
                "time": int(row["timestamp"]) * 1_000_000,
                "domain": row["domain"],
                "id": f"replay-{start + place}",
            }
            for place, row in enumerate(rows[start : start + BATCH])
        ]


def replay(port: int, rows: Rows) -> Client:
    """Send the events at a steady rate."""
    client, began, sent = Client(port), time.monotonic(), 0
    for batch in requests(rows):
        time.sleep(max(0.0, began + sent / RATE - time.monotonic()))
        client.send("POST", "/v1/events", {"events": batch})
        sent += len(batch)
        if sent % 2000 < BATCH:
            rate = sent / max(time.monotonic() - began, 1e-9)
            print(
                f"replayed {sent:,} of {len(rows):,} events, {rate:.0f} a second, {len(client.failed)} failed",
                flush=True,
            )
    return client


def report(port: int) -> tuple[float, float]:
    """Print live quality by week and all decisions; return MRR@20 of the first and of the last third of the days."""
    found = Client(port).send("GET", "/v1/quality")
    days = [day for day in found["days"] if day["scored"]]
    print(f"\nlive quality; the baseline lists {found['baseline']}")
    print("from         scored  models   MRR@20    RC@20   baseline MRR@20    RC@20")
    for start in range(0, len(days), 7):
        part = days[start : start + 7]
        own, simple = (mean(part, name) for name in ("model", "baseline"))
        models = len({model for day in part for model in day["models"]})
        numbers = f"{own[0]:7.2f} %  {own[1]:6.1f} %         {simple[0]:7.2f} %  {simple[1]:6.1f} %"
        print(f"{part[0]['day']}  {sum(day['scored'] for day in part):7,}  {models:6}  {numbers}")
    for one in found["promotions"]:
        print(f"{one['at'][:19]}  round {one['round']}: {one['kind']}: {one['reason']}")
    third = len(days) // 3
    return mean(days[:third], "model")[0], mean(days[-third:], "model")[0]


def mean(days: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """MRR@20 and RC@20 in percent over the questions of some days."""
    total = sum(day["scored"] for day in days)
    mrr, rc = (100 * sum(day["scored"] * day[name][metric] for day in days) / total for metric in ("mrr", "rc"))
    return mrr, rc


def main(check: bool, accounts: int, epochs: int, children: Children) -> int:
    first, rest = prepare(children, accounts, epochs)
    port = serve(children)
    reader, renewer = Reader(port, sorted({row["account_id"] for row in first})), Renewer(children)
    reader.start()
    renewer.start()
    writer = replay(port, rest)
    renewer.stopped.set()
    renewer.join()
    time.sleep(5)  # until the last ranks are stored, and the last bundle is taken
    reader.stopped.set()
    reader.join()
    before, after = report(port)
    failed = [*writer.failed, *reader.client.failed]
    promoted = sum(one["kind"] == "promoted" for one in Client(port).send("GET", "/v1/quality")["promotions"])
    asked = writer.asked + reader.client.asked
    print(f"\n{asked:,} requests, {len(failed)} failed; {promoted} promotions under load")
    print(f"live MRR@20: {before:.2f} % in the first third of the days, {after:.2f} % in the last")
    for line in failed[:5]:
        print(line)
    if not check and sys.stdout.isatty():
        print("the page stays up until Ctrl-C", flush=True)
        signal.pause()
    return 0 if not failed and promoted and after > before and not renewer.problems else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="end when the replay is over")
    parser.add_argument("--accounts", type=int, default=800, help="households (800)")
    parser.add_argument("--epochs", type=int, default=3, help="of the first model and of each challenger (3)")
    given = parser.parse_args()
    if shutil.which("lightgc2n") is None:
        raise SystemExit("lightgc2n is not on the PATH. Run: make demo-live")
    folder = Path(tempfile.mkdtemp(prefix="lightgc2n-demo-live-"))
    started = Children(folder)
    try:
        signal.signal(signal.SIGTERM, started.stop)
        signal.signal(signal.SIGINT, started.stop)
        sys.exit(main(given.check, given.accounts, given.epochs, started))
    finally:
        started.end()
        shutil.rmtree(folder)
