"""`lightgc2n serve` as a process: without torch, with several workers, and ending without losing a request."""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.recommending.load_bundle import load_bundle
from tests.cli.test_commands import run
from tests.export.town import bundle_of
from tests.serving.load import asking
from tests.serving.running import Reply, command, wait_for

BODIES: list[dict[str, Any]] = [
    *({"account": f"h{number:06}", "k": 5} for number in range(0, 60, 7)),
    {"requests": [{"account": "h000001", "k": 3}] * 40},
]


def wanted_answers(bundle: Path) -> dict[str, list[list[str]]]:
    recommender = load_bundle(bundle)
    actual = {}
    for body in BODIES:
        asks = body.get("requests", [body])
        actual[json.dumps(body)] = [[one.item_id for one in recommender.recommend(**ask)] for ask in asks]
    return actual


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_when_it_ends(workers: int) -> None:
    """Whoever was connected gets a whole, right answer; whoever comes later cannot connect."""
    wanted = wanted_answers(bundle_of("lightgc2n"))

    def judge(body: dict[str, Any], reply: Reply) -> str:
        assert reply.status == 200, reply.body
        answers = reply.json.get("answers", [reply.json])
        assert [[one["item"] for one in answer["items"]] for answer in answers] == wanted[json.dumps(body)]
        return "right"

    with command(bundle_of("lightgc2n"), "--workers", workers) as served:
        process, client, _ = served
        with asking(client.port, BODIES, judge, threads=6) as asked:
            wait_for(lambda: sum(one["event"] == "started" for one in served.events()) == workers)
            wait_for(lambda: asked.answers.total() > 50)
            before = asked.answers.total()
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: len(asked.refused) == 6 or asked.lost or asked.wrong)
        assert (asked.wrong, asked.lost, len(asked.refused)) == ([], [], 6)
        assert asked.answers.total() > before
        assert process.wait(20) == 0
        events = [one["event"] for one in served.events()]
        assert events.count("ended") == workers
        assert not {"failed", "worker_died", "server"} & set(events)


def test_workers_import_no_python_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -c`, which starts a worker, would import it in place of the standard library."""
    executed, bundle = tmp_path / "executed", bundle_of("lightgc2n")
    (tmp_path / "socket.py").write_text(f"open({str(executed)!r}, 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-P", "-m", "lightgc2n", "serve", str(bundle), "--workers", "2", "--port", "0", "--json"]
    with command(words=words) as (_, client, _):
        assert client.get("/healthz").status == 200
    assert not executed.exists()


def test_several_workers_add_up_and_replace_each_other() -> None:
    with command(bundle_of("lightgc2n"), "--workers", 2) as (process, client, _):

        def counted() -> float:
            client.close()  # another connection, perhaps to the other worker
            lines = client.get("/metrics").body.decode().splitlines()
            return float(next(line for line in lines if 'route="/v1/recommend",status="200"' in line).split()[-1])

        for _ in range(20):
            client.close()
            assert client.recommend(account="h000001").status == 200
        assert {counted() for _ in range(6)} == {20.0}
        workers = children(process.pid)
        assert len(workers) == 2
        for gone, how in ((workers[0], signal.SIGKILL), (workers[1], signal.SIGTERM)):
            os.kill(gone, how)
            wait_for(lambda gone=gone: len(set(children(process.pid)) - {gone}) == 2)
            client.close()
            assert client.recommend(account="h000001").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_worker_that_ends_alone_leaves_the_socket_to_the_others() -> None:
    """Who comes while it still answers somebody is let in by the other worker."""
    with command(bundle_of("lightgc2n"), "--workers", 2) as served:
        process, client, _ = served
        wait_for(lambda: sum(one["event"] == "started" for one in served.events()) == 2)
        ending, other = children(process.pid)
        os.kill(other, signal.SIGSTOP)
        with socket.create_connection(("127.0.0.1", client.port)) as slow:
            slow.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            wait_for(lambda: has_socket_of(ending, slow))
            os.kill(other, signal.SIGCONT)
            os.kill(ending, signal.SIGTERM)
            door = listening_at(client.port)
            wait_for(lambda: door not in sockets_of(ending))
            for _ in range(3):
                client.close()
                assert client.recommend(account="h000001").status == 200
            assert ending in children(process.pid), "it was still busy, and nobody had to wait for that"
        wait_for(lambda: ending not in children(process.pid))


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open."""
    actual = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            actual.add(os.readlink(one).removeprefix("socket:[").removesuffix("]"))
    return actual


def table_of_sockets() -> list[list[str]]:
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def listening_at(port: int) -> str:
    return next(row[9] for row in table_of_sockets() if (row[1][-4:], row[3]) == (f"{port:04X}", "0A"))


def has_socket_of(pid: int, client: socket.socket) -> bool:
    """Whether a process has accepted this connection."""
    port = f":{client.getsockname()[1]:04X}"
    return bool({row[9] for row in table_of_sockets() if row[2].endswith(port)} & sockets_of(pid))


def test_workers_do_not_outlive_who_looks_after_them() -> None:
    with command(bundle_of("lightgc2n"), "--workers", 2) as (process, client, _):
        assert client.get("/readyz").status == 200
        workers = children(process.pid)
        process.kill()
        wait_for(lambda: not [one for one in workers if Path(f"/proc/{one}").exists()])


def children(pid: int) -> list[int]:
    """The workers among the processes that a process has started."""
    actual = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [one for one in actual if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()]


def test_a_bundle_that_cannot_be_served(tmp_path: Path) -> None:
    for words in ([tmp_path], [tmp_path, "--workers", "2"]):
        done = run("serve", *words, "--port", "0")
        assert done.returncode == 2
        assert f"error: {tmp_path}: not a bundle" in " ".join(done.stderr.split())
        assert done.stdout == ""


def test_workers_that_cannot_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = run("serve", bundle_of("lightgc2n"), "--workers", "2", "--titles", tmp_path / "missing", "--port", "0")
    assert done.returncode == 2
    assert "a worker could not start" in " ".join(done.stderr.split())
    assert '"event": "cannot_start"' in capfd.readouterr().err


def test_strangers_and_taken_ports() -> None:
    done = run("serve", bundle_of("lightgc2n"), "--host", "0.0.0.0", "--port", "0")
    assert (done.returncode, "Give --api-key-file FILE" in " ".join(done.stderr.split())) == (2, True)
    with command(bundle_of("lightgc2n")) as (_, client, _):
        done = run("serve", bundle_of("lightgc2n"), "--port", client.port)
        assert (done.returncode, "Choose another --port" in " ".join(done.stderr.split())) == (2, True)


def test_limits_on_the_command_line(tmp_path: Path) -> None:
    for words, problem in (
        (["--limit", "max_connection=5"], "Did you mean 'max_connections'?"),
        (["--limit", "max_connections"], "expected NAME=VALUE"),
        (["--limit", "max_connections=0"], "max_connections must be at least 1"),
        (["--cors", "*"], "every website"),
    ):
        done = run("serve", bundle_of("lightgc2n"), *words, "--port", "0")
        assert (done.returncode, problem in " ".join(done.stderr.split())) == (2, True), done.stderr
        assert done.stdout == ""
    with command(bundle_of("lightgc2n"), "--limit", "max_k=3", "--limit", "seconds=5") as (_, client, _):
        assert client.recommend(account="h000001", k=4).code == "k_too_large"


def test_a_key_opens_it(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a-key-of-enough-letters\n")
    with command(bundle_of("lightgc2n"), "--api-key-file", tmp_path / "keys", "--host", "0.0.0.0") as (_, client, _):
        assert client.recommend(account="h000001").status == 401
        client.headers["Authorization"] = "Bearer a-key-of-enough-letters"
        assert client.recommend(account="h000001").status == 200


WITHOUT_TORCH = """
import sys

for package in ("torch", "jaxtyping", "polars", "onnx", "matplotlib", "scipy", "pandas"):
    sys.modules[package] = None  # importing it fails

from lightgc2n.__main__ import main

sys.argv = ["lightgc2n", "serve", sys.argv[1], "--port", "0", "--json"]
main()
"""


def test_no_torch_is_needed() -> None:
    words = [sys.executable, "-c", WITHOUT_TORCH, str(bundle_of("lightgc2n-plus"))]
    with command(words=words) as (process, client, _):
        assert len(client.recommend(account="h000001").json["items"]) == 20
        assert client.get("/v1/accounts/h000001/people").json["count"] >= 1
        assert client.get("/v1/items/v00001/similar").status == 200
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        assert "onnxruntime" in loaded
        assert "libtorch" not in loaded
        # What reports to the maker of onnxruntime keeps a file open, in a folder of that name.
        opened = [os.readlink(one) for one in Path(f"/proc/{process.pid}/fd").iterdir() if one.is_symlink()]
        assert not [name for name in opened if "Microsoft" in name]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_an_unread_log_pipe_does_not_block() -> None:
    """Every request is answered, the lines that find no room are counted, and SIGTERM ends it."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    try:
        with command(bundle_of("lightgc2n"), stderr=writing) as (process, client, _):
            os.close(writing)
            for _ in range(1000):
                assert client.recommend(account="h000001").status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    finally:
        os.close(reading)


def test_ctrl_c_twice_ends_it_at_once() -> None:
    with command(bundle_of("lightgc2n")) as (process, client, _):
        assert client.get("/healthz").status == 200
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
