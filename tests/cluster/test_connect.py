"""Connecting to a cluster, as far as no cluster is needed."""

import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import create_server
from threading import Thread

import pytest

from lightgc2n.cluster.connect import FIT, HUNG, Limits, Node, deferred_signals, differing, refuse_here, versions_here
from lightgc2n.errors import ClusterError, SettingError

WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from lightgc2n.cli.main import main; main()"


def without_ray(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_RAY, *words], capture_output=True, text=True, check=False)


def test_without_ray_the_extra_is_named() -> None:
    done = without_ray("doctor", "--cluster", "127.0.0.1:6379")
    assert done.returncode == 2
    assert done.stderr == "error: ray is not installed. Install it with: pip install 'lightgc2n[cluster]'\n"
    assert done.stdout == ""


def test_without_the_option_ray_is_not_imported() -> None:
    assert without_ray("models").returncode == 0


@pytest.mark.parametrize("address", ["auto", "6379", "host:", "host:0", "ray://host:10001", "host:70000", "host:²"])
def test_an_address_is_host_and_port(address: str) -> None:
    pytest.importorskip("ray")
    from lightgc2n.cluster.connect import connect

    with pytest.raises(SettingError, match="expected HOST:PORT"), connect(address):
        pass


@pytest.mark.parametrize(
    ("address", "local"), [("127.0.0.1", True), ("127.0.0.2", False), ("192.0.2.1", False), ("node-a", False)]
)
def test_only_127_0_0_1_is_local_because_ray_listens_on_all_networks_with_any_other(address: str, local: bool) -> None:
    assert Node("id", address, 1.0, 0.0).is_local is local


def test_a_cluster_that_others_can_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from lightgc2n.cluster.connect import connect

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ClusterError, match="must require a token"), connect("192.0.2.7:6379"):
        pass


def test_an_address_where_nothing_listens_is_reported_at_once() -> None:
    pytest.importorskip("ray")
    from lightgc2n.cluster.connect import connect

    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1: no cluster answers"), connect("127.0.0.1:1"):
        pass


def test_a_port_of_another_program_is_reported_at_once() -> None:
    """Such as that of Ray's dashboard; Ray would try to connect for minutes."""
    pytest.importorskip("ray")
    from lightgc2n.cluster.connect import connect

    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{other.server_port}"
        with pytest.raises(ClusterError, match="what listens there is no Ray cluster"), connect(address):
            pass
        other.shutdown()


def test_a_cluster_with_tls_is_not_asked_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from lightgc2n.cluster.connect import _refuse_unreachable

    monkeypatch.setenv("RAY_USE_TLS", "1")
    with create_server(("127.0.0.1", 0)) as server:  # it never answers what is no TLS
        port = server.getsockname()[1]
        _refuse_unreachable("127.0.0.1", port, f"127.0.0.1:{port}")


def test_the_error_of_an_actor_that_a_task_passes_on_is_found() -> None:
    pytest.importorskip("ray")
    from ray.exceptions import RayTaskError

    from lightgc2n.cluster.connect import cause_of

    full = OSError(28, "No space left on device", "runs/a/last.safetensors")
    of_actor = RayTaskError("keep", "Traceback ...", full).as_instanceof_cause()
    assert cause_of(RayTaskError("attempt", "Traceback ...", of_actor)) is full
    assert cause_of(full) is full


def test_limits_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HUNG, "7.5")
    assert Limits.from_environment() == Limits(hung=7.5, fit=10.0)
    for wrong in ("0", "-1", "soon", "inf", "nan"):
        monkeypatch.setenv(FIT, wrong)
        with pytest.raises(SettingError, match=FIT):
            Limits.from_environment()


def test_versions_that_differ_are_named() -> None:
    here = versions_here()
    assert differing({"versions": here, "token": False}) == ""
    assert differing({"versions": here | {"torch": "1.0"}, "token": False}) == f"torch 1.0, here {here['torch']}"


def test_a_node_with_other_versions_takes_no_work() -> None:
    refuse_here(versions_here())
    with pytest.raises(ClusterError, match=r"torch .*, expected 1\.0\. Install the same versions"):
        refuse_here(versions_here() | {"torch": "1.0"})


def test_a_signal_waits_until_it_is_delivered() -> None:
    before, reached = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test of a command may have left its own

    def work() -> None:
        with deferred_signals() as deliver:
            deliver()
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of a call")
            deliver()
            reached.append("too far")

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert reached == ["the end of a call"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
