"""How long an honest client waits while others attack the service.

python benchmarks/serving_attack.py BUNDLE [--requests 10000] [--attackers 8] [--memory MIB]

Attackers in other processes send huge arrays, deep JSON, slow bodies, half heads, mixed framing, histories of thousands
of sessions, and requests whose answers they never read. All come from the address of the honest client, which asks for
lists of known accounts and of histories, and now and then whether the service is well. Prints its waiting times without
and under attack, the statuses of both sides, and the memory of the service.

--memory gives the service an address space of so many MiB (RLIMIT_AS).
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.serving.attacks import Attacker

PAUSE = 0.01  # of the honest client between two questions
CALM_SECONDS = 5.0


def attack(port: int, seed: int, number: int, told: "multiprocessing.Queue[Any]") -> None:
    attacker = Attacker(port, random.Random(seed))
    for _ in range(number):
        attacker.attack()
    attacker.close()
    told.put((dict(attacker.statuses), attacker.wrong))


class Honest(threading.Thread):
    """Asks until it is told to stop."""

    def __init__(self, port: int, accounts: list[str]) -> None:
        super().__init__()
        self._port, self._accounts, self.stop = port, accounts, threading.Event()
        self.seconds: list[float] = []
        self.statuses: Counter[int | str] = Counter()

    def run(self) -> None:
        connection, dice = HTTPConnection("127.0.0.1", self._port, timeout=60), random.Random(0)
        while not self.stop.is_set():
            started = time.perf_counter()
            try:
                self.statuses[self._ask(connection, dice)] += 1
            except (OSError, HTTPException) as problem:
                self.statuses[type(problem).__name__] += 1
                connection.close()
            self.seconds.append(time.perf_counter() - started)
            time.sleep(PAUSE)
        connection.close()

    def _ask(self, connection: HTTPConnection, dice: random.Random) -> int:
        kind = dice.random()
        if kind < 0.1:
            connection.request("GET", "/healthz")
        else:
            history = {"history": [f"v{dice.randrange(1, 60):05}" for _ in range(20)]}
            body = {"account": dice.choice(self._accounts)} if kind < 0.6 else history
            connection.request("POST", "/v1/recommend", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def told(self) -> str:
        ordered = sorted(self.seconds)
        at = [1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.9, 0.99)]
        waits = f"p50 {at[0]:.1f} ms, p90 {at[1]:.1f} ms, p99 {at[2]:.1f} ms, longest {1e3 * ordered[-1]:.1f} ms"
        return f"{len(ordered):,} requests, {waits}; statuses {dict(self.statuses)}"


def memory(pid: int) -> dict[str, int]:
    """Megabytes: now and at most, resident and of the address space."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM", "VmPeak")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--attackers", type=int, default=8)
    parser.add_argument("--memory", type=int, help="MiB of the service's address space")
    options = parser.parse_args()

    def bound() -> None:
        if options.memory:
            resource.setrlimit(resource.RLIMIT_AS, (options.memory * 2**20,) * 2)

    words = [sys.executable, "-m", "lightgc2n", "serve", str(options.bundle), "--port", "0", "--json"]
    with tempfile.TemporaryFile() as log:
        service = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=bound)
        try:
            measure(service, options)
        finally:
            service.send_signal(signal.SIGTERM)
            print(f"service: ended with {service.wait(60)}; {os.fstat(log.fileno()).st_size / 2**20:.1f} MB of logs")
            log.seek(0)
            levels = Counter((json.loads(line)["event"], json.loads(line)["level"]) for line in log)
            print("log lines:", {" ".join(name): number for name, number in levels.most_common()})


def measure(service: "subprocess.Popen[str]", options: argparse.Namespace) -> None:
    assert service.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        text += service.stdout.readline()
    port = int(json.loads(text)["address"].rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/v1/accounts?limit=100")
    accounts = [one["account"] for one in json.loads(connection.getresponse().read())["accounts"]]
    connection.close()
    print("memory before:", memory(service.pid))
    calm = Honest(port, accounts)
    calm.start()
    time.sleep(CALM_SECONDS)
    calm.stop.set()
    calm.join()
    print("honest client, alone:", calm.told())

    context = multiprocessing.get_context("spawn")
    told: multiprocessing.Queue[Any] = context.Queue()
    share = -(-options.requests // options.attackers)
    attackers = [context.Process(target=attack, args=(port, seed, share, told)) for seed in range(options.attackers)]
    honest, started = Honest(port, accounts), time.perf_counter()
    honest.start()
    for one in attackers:
        one.start()
    statuses: Counter[tuple[str, int]] = Counter()
    wrong: list[str] = []
    for _ in attackers:
        found, mistakes = told.get()
        statuses.update(found)
        wrong += mistakes
    seconds = time.perf_counter() - started
    honest.stop.set()
    honest.join()
    for one in attackers:
        one.join()
    print(f"attack: {sum(statuses.values()):,} requests in {seconds:.0f} s by {options.attackers} attackers")
    for name in sorted({name for name, _ in statuses}):
        print(f"  {name}:", {status: number for (one, status), number in sorted(statuses.items()) if one == name})
    print("wrong answers:", len(wrong), *wrong[:5], sep="\n  ")
    print("honest client, under attack:", honest.told())
    print("memory after:", memory(service.pid))


if __name__ == "__main__":
    main()
