"""The process group of the workers of a run: they meet at an address of worker 0, on the network of that address only.

The exchanges are neither encrypted nor authenticated, so the network must be closed to others.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lightgc2n.devices import device_of
from lightgc2n.layers.workers import LostWorkerError, Workers
from lightgc2n.training.beats import beating

INTERFACE = "GLOO_SOCKET_IFNAME"
ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux


def open_meeting(host: str, count: int, seconds: float) -> TCPStore:
    """Listen at a free port of this address; the others find it as the port of the result."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        count,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
        master_listen_fd=listener.detach(),
    )


def find_meeting(host: str, port: int, count: int, seconds: float) -> TCPStore:
    """Connect to the meeting of a run."""
    try:
        return TCPStore(host, port, count, is_master=False, timeout=timedelta(seconds=seconds))
    except RuntimeError as problem:
        raise LostWorkerError(f"worker 0 cannot be reached at {host}:{port}: {problem}") from None


@contextmanager
def joined(number: int, count: int, store: TCPStore, device: str, seconds: float) -> Iterator[Workers]:
    """Join the process group of a run for the block.

    Args:
        seconds: how long an exchange may take before the others count as lost.
    """
    if INTERFACE not in os.environ and (name := _interface_to(store.host, store.port)):
        os.environ[INTERFACE] = name  # gloo would choose a network by the name of this machine
    backend = "cpu:gloo,cuda:nccl" if device_of(device).is_gpu else "gloo"
    limit = timedelta(seconds=seconds)
    try:
        distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=limit)
    except RuntimeError as problem:
        raise LostWorkerError(f"worker {number}: not all workers joined: {problem}") from None
    try:
        with beating(number, store.host, store.port):
            yield Workers(number, count)
    finally:
        distributed.destroy_process_group()


def _interface_to(host: str, port: int) -> str:
    """The name of the network interface that leads to an address; empty where the system does not tell."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            import fcntl

            probe.connect((host, port))  # sends nothing
            own = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode())
                try:
                    if fcntl.ioctl(probe, ADDRESS_OF_INTERFACE, request)[20:24] == own:
                        return name
                except OSError:  # an interface without an address
                    continue
        except (ImportError, OSError):
            return ""
    return ""
