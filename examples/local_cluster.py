"""Start a Ray cluster on this machine alone, to try --cluster without a token: no other machine can reach it.

Run `python examples/local_cluster.py`; it prints the address for --cluster. Ctrl-C ends its processes and no others.
"""

import argparse
import signal
from typing import Any

from ray.cluster_utils import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=6379, help="0 chooses a free one (default 6379)")
    parser.add_argument("--nodes", type=int, default=2, help="number of nodes (default 2)")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of each node (default 1)")
    options = parser.parse_args()
    node: dict[str, Any] = {
        "num_cpus": options.cpus,
        "node_ip_address": "127.0.0.1",  # the only address with which Ray listens on loopback alone
        "object_store_memory": 256 * 2**20,
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args={"gcs_server_port": options.port, **node})
    try:
        for _ in range(options.nodes - 1):
            cluster.add_node(**node)
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray has put its own handlers in place
            signal.signal(number, signal.default_int_handler)
        print(f"{cluster.address}: {options.nodes} nodes; Ctrl-C ends them", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("ending the nodes", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
