"""Closing a listening socket without turning anybody away who was let in.

The kernel lets connections in before the program accepts them, and cuts those that wait when the socket is closed. So
first nobody else is let in, then all who wait are accepted, and then the socket is closed. Who comes meanwhile tries
again by himself and finds the socket closed. Where the kernel cannot do that (it is Linux that can), a moment is left
in which a connection may be cut before it was accepted.
"""

import array
import socket
import struct
import sys
from collections.abc import Iterator

ATTACH_FILTER = 26  # SO_ATTACH_FILTER
NOTHING_PASSES = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction: return, and keep 0 bytes of the packet


def bar(listening: socket.socket) -> None:
    """Lets nobody else in; who waits already stays."""
    if sys.platform == "linux":
        program = array.array("B", NOTHING_PASSES)
        where = struct.pack("HP", 1, program.buffer_info()[0])
        listening.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, where)


def waiting_at(listening: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """The connections that wait to be accepted, and where each comes from."""
    while True:
        try:
            connection, address = listening.accept()
        except OSError:  # nobody waits, or nobody else can be let in
            return
        connection.setblocking(False)
        yield connection, str(address[0])
