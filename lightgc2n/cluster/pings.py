"""Which nodes of a cluster are silent: an actor on each answers small messages, as long as the node is not frozen.

Ray notices a dead node by itself, but a frozen one only after its own health checks; until then it would still be given
work, which would wait there for as long as the node stays frozen.
"""

import time
from typing import Any

import ray
from ray.exceptions import RayError

from lightgc2n.cluster.connect import Cluster, Node
from lightgc2n.progress import say

NODE = "ray.io/node-id"


class Answerer:
    """Shows that its node is alive."""

    def alive(self) -> bool:
        return True


class Pings:
    """The silent nodes among those that take work."""

    def __init__(self, cluster: Cluster, threads: int, gpus: int) -> None:
        self.cluster, self.threads, self.gpus = cluster, threads, gpus
        self.silent: set[str] = set()
        self._heard: dict[str, float] = {}  # a node is judged from its first answer on
        self._actors: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}

    def nodes(self) -> list[Node]:
        """The live nodes that can take a task."""
        return [node for node in self.cluster.nodes() if node.cpus >= self.threads and node.gpus >= self.gpus]

    @property
    def elsewhere(self) -> dict[str, str]:
        """The label selector that leaves out silent nodes, where others are left."""
        heard = {node.id for node in self.nodes()} - self.silent
        return {NODE: f"!in({','.join(sorted(self.silent))})"} if self.silent and heard else {}

    def newly_silent(self) -> set[str]:
        """Take the answers, ask again, and return the nodes that have just been silent for the limit."""
        now, limit, silent = time.monotonic(), self.cluster.limits.hung, set()
        for node in self.nodes():
            if self._answers(node.id):
                self._heard[node.id] = now
                self.silent.discard(node.id)
            elif node.id not in self.silent and now - self._heard.get(node.id, now) > limit:
                say(f"node {node.name} is silent for {limit:g} s and gets no work until it answers")
                self.silent.add(node.id)
                silent.add(node.id)
        return silent

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors.values():
            ray.kill(actor)

    def _answers(self, node: str) -> bool:
        """Whether a node has answered the last message; then it is sent the next."""
        pending, answered = self._asked.get(node), False
        if pending is not None and not ray.wait([pending], timeout=0)[0]:
            return False
        if pending is not None:
            try:
                answered = bool(ray.get(pending))
            except RayError:
                self._actors.pop(node, None)
        if node not in self._actors:
            self._actors[node] = ray.remote(Answerer).options(num_cpus=0, label_selector={NODE: node}).remote()
        self._asked[node] = self._actors[node].alive.remote()
        return answered
