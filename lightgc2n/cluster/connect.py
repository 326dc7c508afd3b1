"""Connect a command to a running Ray cluster and disconnect at the end; clusters are never started or stopped here.

The machine of the command must be a node of the cluster: `ray start --address HOST:PORT` makes it one. Every node needs
the versions of this machine, because results must not depend on where a run is trained. Where a node has an address
that other machines can reach, the cluster must require a token: whoever reaches a cluster can run any code on it.
"""

import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from lightgc2n import __version__
from lightgc2n.errors import ClusterError, SettingError

VERSIONED = ("ray", "torch", "numpy")
HUNG, FIT = "LIGHTGC2N_CLUSTER_HUNG_SECONDS", "LIGHTGC2N_CLUSTER_FIT_SECONDS"
REACH_SECONDS = 5.0
HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # Ray speaks gRPC, on HTTP/2
HTTP2_SETTINGS = bytes([4])  # the type of the first frame of every HTTP/2 server
ANY_LOOPBACK = "0.0.0.0"  # Ray replaces 127.0.0.1 by an outside address, where a cluster on loopback does not listen
TOKENS = (
    "Require a token: run `ray get-auth-token --generate` once, copy ~/.ray/auth_token to every machine, "
    "and set RAY_AUTH_MODE=token for `ray start` and for this command."
)


@dataclass(frozen=True)
class Limits:
    """How long a cluster may be silent, in seconds.

    Args:
        hung: a node that is silent for so long loses its run, which another node resumes.
        fit: work that no node can ever take ends with an error after this time.
    """

    hung: float = 60.0
    fit: float = 10.0

    @classmethod
    def from_environment(cls) -> "Limits":
        """The limits that environment variables set."""
        return cls(_seconds(HUNG, cls.hung), _seconds(FIT, cls.fit))


@dataclass(frozen=True)
class Node:
    """A live node of a cluster."""

    id: str
    address: str
    cpus: float
    gpus: float

    @property
    def name(self) -> str:
        """The address and the start of the id: several nodes may share one machine."""
        return f"{self.address}/{self.id[:6]}"

    @property
    def is_local(self) -> bool:
        """Whether no other machine can reach the node."""
        return _is_loopback(self.address)


@dataclass(frozen=True)
class Cluster:
    """A connection to a cluster."""

    address: str
    home: str  # the id of this machine's node
    limits: Limits

    def nodes(self) -> list[Node]:
        """The live nodes, in the order of their names."""
        import ray

        live = [node for node in ray.nodes() if node["Alive"]]
        nodes = [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in live
        ]
        return sorted(nodes, key=lambda node: node.name)

    @cached_property
    def facts(self) -> dict[str, dict[str, Any] | None]:
        """Versions and authentication by node id; None for a node that does not answer."""
        return ask(self.nodes(), facts_here, self.limits.fit)


@contextmanager
def connect(address: str, limits: Limits | None = None, check: bool = True) -> Iterator[Cluster]:
    """Connect to the cluster at HOST:PORT for the block; the cluster itself goes on running.

    Args:
        check: raise an error where the nodes have other versions than this machine.
    """
    limits = limits or Limits.from_environment()
    host, port = _parsed(address)
    # Else a task is first offered to the node that has its data, and waits there for as long as that node is frozen.
    os.environ.setdefault("RAY_locality_aware_leasing_enabled", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as in later versions of Ray, without its warning
    import ray

    _refuse_open(not _is_loopback(host), address)
    _refuse_unreachable(host, port, address)
    if ray.is_initialized():
        raise ClusterError("this process is connected to a cluster already: call ray.shutdown() first.")
    with _own_signals():
        _join(ANY_LOOPBACK if _is_loopback(host) else host, port, address)
    try:
        cluster = Cluster(address, ray.get_runtime_context().get_node_id(), limits)
        _refuse_open(not all(node.is_local for node in cluster.nodes()), address)
        if check:
            refuse_differing(cluster)
        yield cluster
    finally:
        ray.shutdown()


def ask(nodes: Sequence[Node], question: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """The answer of each node by its id; None for a node that does not answer in time."""
    import ray
    from ray.exceptions import RayError

    call = ray.remote(question)
    waiting = {
        node.id: call.options(num_cpus=0, max_retries=0, label_selector={"ray.io/node-id": node.id}).remote()
        for node in nodes
    }
    done, _ = ray.wait(list(waiting.values()), num_returns=len(waiting), timeout=max(seconds, 1.0))
    answers: dict[str, Any] = {}
    for node, reference in waiting.items():
        try:
            answers[node] = ray.get(reference) if reference in done else None
        except RayError as problem:
            answers[node] = {"problem": str(problem).strip().splitlines()[-1]}
        if reference not in done:
            ray.cancel(reference, force=True)
    return answers


def facts_here() -> dict[str, Any]:
    """Versions and authentication of the node that this runs on."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return {"versions": versions_here(), "token": bool(is_token_auth_enabled())}


def versions_here() -> dict[str, str]:
    """The versions that results depend on."""
    own = {"lightgc2n": __version__, "python": platform.python_version()}
    return own | {name: _version(name) for name in VERSIONED}


def differing(facts: dict[str, Any] | None) -> str:
    """What a node's versions have that this machine's do not; empty where they are the same."""
    if facts is None:
        return ""
    if "problem" in facts:
        return str(facts["problem"])
    here = versions_here()
    return ", ".join(f"{name} {there}, here {here[name]}" for name, there in facts["versions"].items()
                     if there != here[name])  # fmt: skip


def describe(cluster: Cluster) -> dict[str, Any]:
    """Everything that `lightgc2n doctor --cluster` shows."""
    facts = cluster.facts
    nodes = [
        {
            "node": node.name,
            "cpus": node.cpus,
            "gpus": node.gpus,
            "home": node.id == cluster.home,
            "versions": (facts[node.id] or {}).get("versions"),
            "problem": "does not answer" if facts[node.id] is None else differing(facts[node.id]),
        }
        for node in cluster.nodes()
        if node.id in facts
    ]
    return {"nodes": nodes, "versions": versions_here(), "token": facts_here()["token"]}


def cause_of(problem: BaseException) -> BaseException:
    """The error that a task raised, also where it passes on the error of an actor."""
    from ray.exceptions import RayTaskError

    while isinstance(problem, RayTaskError) and problem.cause is not None:
        problem = problem.cause
    return problem


def refuse_here(wanted: dict[str, str]) -> None:
    """Raise an error on a node that has other versions than the machine of the command, and had not answered it."""
    if wrong := [f"{name} {here}, expected {wanted[name]}" for name, here in versions_here().items()
                 if here != wanted[name]]:  # fmt: skip
        raise ClusterError(f"node {platform.node()}: {', '.join(wrong)}. Install the same versions.")


def refuse_differing(cluster: Cluster) -> None:
    """Raise an error where nodes have other versions, or where a node that others can reach requires no token."""
    answers = [(node, facts) for node in cluster.nodes() if (facts := cluster.facts.get(node.id)) is not None]
    if wrong := [f"{node.name}: {problem}" for node, facts in answers if (problem := differing(facts))]:
        listed = "; ".join(wrong)
        raise ClusterError(f"{cluster.address}: nodes differ from this machine: {listed}. Install the same versions.")
    for node, facts in answers:
        if not facts["token"] and not node.is_local:
            raise ClusterError(f"{cluster.address}: node {node.name} requires no token. {TOKENS}")


def _join(host: str, port: int, address: str) -> None:
    import ray
    from ray.exceptions import RayError

    try:
        ray.init(address=f"{host}:{port}", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, AssertionError, RayError) as problem:
        reason = str(problem).strip().splitlines()[0].rstrip(".")
        raise ClusterError(
            f"{address}: cannot connect: {reason}. This machine must be a node of the cluster (ray start --address "
            f"{address}), and have its token if it requires one (RAY_AUTH_MODE=token)."
        ) from None


def _parsed(address: str) -> tuple[str, int]:
    """Host and port; `auto` is refused, because it would take whatever cluster was started last."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise SettingError(f"--cluster: expected HOST:PORT as `ray start` shows it, found {address!r}.")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    """Whether Ray listens on loopback alone: with any other address, 127.0.0.2 too, it listens on all networks."""
    return host in {"localhost", "127.0.0.1"}


def _refuse_open(reachable: bool, address: str) -> None:
    if reachable and os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        raise ClusterError(f"{address}: other machines can reach this cluster, so it must require a token. {TOKENS}")


def _refuse_unreachable(host: str, port: int, address: str) -> None:
    """Raise an error at once where no cluster listens: Ray itself would try for minutes."""
    try:
        with socket.create_connection((host, port), REACH_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "").lower() in {"1", "true"}:
                return  # what listens there speaks only TLS
            connection.sendall(HTTP2_START)
            answer = connection.makefile("rb").read(4)
    except OSError as problem:
        raise ClusterError(
            f"{address}: no cluster answers ({problem.strerror or problem}). docs/cluster.md shows how to start one."
        ) from None
    if answer[3:] != HTTP2_SETTINGS:
        raise ClusterError(f"{address}: what listens there is no Ray cluster. Give the port that `ray start` shows.")


@contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Keep Ctrl-C and SIGTERM until the yielded function is called: a call of Ray would lose their exception."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    received: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    restored = False

    def restore() -> None:
        nonlocal restored
        if not restored:  # once: the handler of a signal may have put others in its place
            restored = True
            for number, handler in before.items():
                signal.signal(number, handler)

    def deliver() -> None:
        if received and not restored:
            number, frame = received[0]
            restore()
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)
            else:
                signal.raise_signal(number)

    for number in before:
        signal.signal(number, lambda number, frame: received.append((number, frame)))
    try:
        yield deliver
    finally:
        restore()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handlers of Ctrl-C and SIGTERM, which ray.init would replace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        value = float(text or default)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise SettingError(f"{name}: expected a number of seconds above 0, found {text!r}.")
    return value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
