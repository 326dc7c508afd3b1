"""The local cluster that docs/cluster.md starts to try the commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import QUIET, descendants, start, until

pytestmark = pytest.mark.services
SCRIPT = Path(__file__).parents[2] / "examples" / "local_cluster.py"


def test_it_has_two_local_nodes_and_ends_its_processes() -> None:
    pytest.importorskip("ray")
    command = [sys.executable, str(SCRIPT), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | QUIET, text=True) as process:
        assert process.stdout is not None
        try:
            address = next(line.split(": ")[0] for line in process.stdout if "2 nodes" in line)
            nodes = json.loads(start("doctor", "--cluster", address, "--json").communicate(timeout=200)[0])["nodes"]
            assert [(node["node"].split("/")[0], node["cpus"]) for node in nodes] == [("127.0.0.1", 1.0)] * 2
            started = descendants(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of its processes")
