"""A real Ray cluster on loopback for the tests: a head without CPUs and two nodes with one CPU each.

Prints a JSON object: the address and the process id of each node's raylet. A line `kill PID` ends a raylet at once, a
line `add` starts another node; each is answered by a JSON object of the same kind. It ends with its standard input.
"""

import json
import sys
from typing import Any

from ray.cluster_utils import Cluster

COMMON: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 150 * 2**20,
    "include_dashboard": False,
}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **COMMON})
    nodes = {}

    def add() -> None:
        node = cluster.add_node(num_cpus=1, **COMMON)
        nodes[node.all_processes["raylet"][0].process.pid] = node

    def report() -> None:
        raylets = {pid: node.unique_id for pid, node in nodes.items()}
        print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)

    add()
    add()
    report()
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "add":
            add()
        else:
            cluster.remove_node(nodes.pop(int(rest[0])), allow_graceful=False)
        report()
    cluster.shutdown()


if __name__ == "__main__":
    main()
