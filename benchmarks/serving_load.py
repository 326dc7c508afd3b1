"""What the service takes and gives: cold start, memory, and requests a second under load from another process.

python benchmarks/serving_load.py BUNDLE [--seconds 60] [--connections 16] [--requests 200000]

Needs wrk (Debian: apt-get install wrk). Everything is measured beside its yardstick in the same run, by turns:
- `recommend`: half of the requests name an account of the bundle, half bring a history of 5 to 40 events; 20 items.
- `constant, in the service`: a POST route of the same process with the same request and response models, whose answer
  is a constant that goes out the same way.
- `constant, bare`: such a route in a FastAPI application that has nothing else: no keys, limits, logs or metrics.
- a bare application of FastAPI and onnxruntime for the cold start, from the start of the process to the first answer.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ROUND_SECONDS = 3
BODIES = 1000
LUA = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local bodies, place = {}, 0
for line in io.lines("%s") do bodies[#bodies + 1] = line end
request = function() place = place %% #bodies + 1; return wrk.format(nil, nil, nil, bodies[place]) end
"""
BARE = """
import sys
import fastapi, numpy, onnxruntime, uvicorn
app = fastapi.FastAPI()
@app.get("/readyz")
async def readyz():
    return {"status": "ok"}
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""


def serve_with_constant(bundle: Path, port: int) -> None:
    """The service with one route more."""
    from lightgc2n.serving.logs import set_up_logs
    from lightgc2n.serving.routes import json_response, list_json
    from lightgc2n.serving.served_bundle import freeze_garbage_collector
    from lightgc2n.serving.server import Server
    from lightgc2n.serving.service import Service
    from lightgc2n.serving.settings import ServiceSettings
    from lightgc2n.serving.workers import reserve

    settings = ServiceSettings(bundle=bundle, port=port)
    set_up_logs()
    service = Service(settings)
    server, served = Server(service), service.served
    answer = list_json(served.recommender.recommend(history=[]), served)
    add_constant(server.config.app, lambda: json_response(answer))
    freeze_garbage_collector()
    server.run(sockets=[reserve(settings)])


def serve_constant(port: int) -> None:
    """A bare application with the constant route alone."""
    import uvicorn
    from fastapi import FastAPI

    from lightgc2n.serving.schemas import Answer, Listed

    items = [Listed(item=f"v{rank:05}", score=9.87654321 / rank, rank=rank) for rank in range(1, 21)]
    answer = Answer(account=None, items=items, fallback=False, notes=[], model="0123456789ab")
    app = FastAPI()
    add_constant(app, lambda: answer)
    uvicorn.run(app, port=port, access_log=False, log_level="warning", http="h11", loop="asyncio")


def add_constant(app: Any, answer: Any) -> None:
    from fastapi import Body

    from lightgc2n.serving.schemas import Answer, AskBody, ManyAnswers

    async def constant(body: Annotated[AskBody, Body()]) -> Any:
        return answer()

    app.post("/v1/constant", response_model=Answer | ManyAnswers, response_model_exclude_none=True)(constant)


@contextmanager
def process(*words: object) -> Iterator[tuple[int, int, float]]:
    """A server on a free port: its process id, port, and the seconds until it first answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *(str(port) if word == "PORT" else str(word) for word in words)]
    started = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answers(port):
            assert running.poll() is None, f"{command} has ended"
            time.sleep(0.005)
        yield running.pid, port, time.perf_counter() - started
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except URLError as problem:
        return getattr(problem, "code", None) == 404  # a bare application answers too


def memory(pid: int, name: str) -> float:
    """Megabytes: VmRSS now, VmHWM at most so far."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024 / 1e6


def write_load(bundle: Path, folder: Path) -> Path:
    """The requests, and what makes wrk send them."""
    dice = random.Random(0)
    items = (bundle / "items.txt").read_text().splitlines()
    accounts = (bundle / "server" / "accounts.txt").read_text().splitlines()
    bodies: list[Any] = [{"account": dice.choice(accounts)} for _ in range(BODIES // 2)]
    bodies += [{"history": dice.choices(items, k=dice.randint(5, 40))} for _ in range(BODIES // 2)]
    dice.shuffle(bodies)
    (folder / "bodies").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    (folder / "load.lua").write_text(LUA % (folder / "bodies"))
    return folder / "load.lua"


def wrk(script: Path, address: str, seconds: int, connections: int) -> tuple[int, float, float, float]:
    """Requests answered, requests a second, and p50 and p99 in milliseconds; an error ends everything."""
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), address]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in told, told
    assert "Socket errors" not in told, told
    count = re.search(r"(\d+) requests in", told)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
    assert count is not None
    assert rate is not None
    middle, far = (_milliseconds(told, share) for share in (50, 99))
    return int(count.group(1)), float(rate.group(1)), middle, far


def _milliseconds(told: str, share: int) -> float:
    found = re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", told)
    assert found is not None
    return float(found.group(1)) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found.group(2)]


def cold_starts(bundle: Path, turns: int) -> Iterator[str]:
    ways = {
        "bare FastAPI + onnxruntime": ("-c", BARE, "PORT"),
        "lightgc2n serve": ("-m", "lightgc2n", "serve", bundle, "--port", "PORT"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, words in ways.items():
            with process(*words) as (pid, _, seconds):
                found[name].append((seconds, memory(pid, "VmHWM")))
    yield "| | cold start, s: median (least to most) | RSS, MB |\n|---|---|---|"
    for name, each in found.items():
        seconds, peak = zip(*each, strict=True)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        yield f"| {name} | {statistics.median(seconds):.2f} ({spread}) | {max(peak):.0f} |"


def load(bundle: Path, script: Path, seconds: int, connections: int, requests: int) -> Iterator[str]:
    me = Path(__file__)
    with (
        process(me, bundle, "--as", "service", "--port", "PORT") as (pid, port, _),
        process(me, bundle, "--as", "bare", "--port", "PORT") as (_, bare, _),
    ):
        addresses = {
            "recommend": f"http://127.0.0.1:{port}/v1/recommend",
            "constant, in the service": f"http://127.0.0.1:{port}/v1/constant",
            "constant, bare": f"http://127.0.0.1:{bare}/v1/constant",
        }
        turns: dict[str, list[tuple[int, float, float, float]]] = {name: [] for name in addresses}
        for _ in range(max(1, seconds // ROUND_SECONDS)):
            for name, address in addresses.items():
                turns[name].append(wrk(script, address, ROUND_SECONDS, connections))
        yield "| | requests | a second: median (least to most) | p50, ms | p99, ms | recommend is |"
        yield "|---|---|---|---|---|---|"
        for name, each in turns.items():
            count, rate, middle, far = zip(*each, strict=True)
            # Turn by turn, because other work on the machine comes and goes.
            share = statistics.median(own[1] / other[1] for own, other in zip(turns["recommend"], each, strict=True))
            yield (
                f"| {name} | {sum(count):,} | {statistics.median(rate):,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) | "
                f"{statistics.median(middle):.1f} | {statistics.median(far):.1f} | {share:.2f} |"
            )
        yield "\n| requests | RSS, MB |\n|---|---|"
        done, next_line = sum(one[0] for one in turns["recommend"]), 0
        while done < requests or next_line == 0:
            done += wrk(script, addresses["recommend"], ROUND_SECONDS, connections)[0]
            if done >= next_line:
                yield f"| {done:,} | {memory(pid, 'VmRSS'):.1f} |"
                next_line = done + requests // 10
        _ask_everything(port, bundle)
        now, most = memory(pid, "VmRSS"), memory(pid, "VmHWM")
        yield f"| {done:,}, then every other route, and 1,000 at once | {now:.1f}, at most {most:.1f} |"


def _ask_everything(port: int, bundle: Path) -> None:
    item = (bundle / "items.txt").read_text().split("\n", 1)[0]
    account = (bundle / "server" / "accounts.txt").read_text().split("\n", 1)[0]
    for path in (
        "/v1/model",
        "/v1/items?search=1",
        f"/v1/items/{item}/similar",
        f"/v1/accounts/{account}/people",
        "/metrics",
    ):
        urlopen(f"http://127.0.0.1:{port}{path}").read()
    many = json.dumps({"requests": [{"account": account, "exclude_seen": True}] * 1000}).encode()
    urlopen(Request(f"http://127.0.0.1:{port}/v1/recommend", many, {"Content-Type": "application/json"})).read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="of load on each route")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=200_000, help="over which memory is watched")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--as", dest="role", choices=("service", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "service":
        serve_with_constant(given.bundle, given.port)
    elif given.role == "bare":
        serve_constant(given.port)
    else:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        for line in cold_starts(given.bundle, given.starts):
            print(line, flush=True)
        print(flush=True)
        with tempfile.TemporaryDirectory() as folder:
            script = write_load(given.bundle, Path(folder))
            for line in load(given.bundle, script, given.seconds, given.connections, given.requests):
                print(line, flush=True)


if __name__ == "__main__":
    main()
