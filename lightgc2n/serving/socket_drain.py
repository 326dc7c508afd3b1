"""Closes a listening socket without resetting connections in its accept queue.

The kernel completes handshakes before the program calls accept(), and resets the queued connections when the socket is
closed. So a packet filter first drops new handshakes, then the queue is accepted, then the socket is closed. A client
whose handshake was dropped retries and finds the port closed. Only Linux has such filters; on other systems a
connection that arrives between the last accept() and close() is reset.
"""

import array
import socket
import struct
import sys
from collections.abc import Iterator

ATTACH_FILTER = 26  # SO_ATTACH_FILTER
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # one BPF instruction: return 0, which drops the packet


def block_new_connections(listening: socket.socket) -> None:
    """Drop new handshakes; connections in the accept queue are kept."""
    if sys.platform == "linux":
        program = array.array("B", DROP_ALL)
        where = struct.pack("HP", 1, program.buffer_info()[0])
        listening.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, where)


def pending_connections(listening: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """The connections in the accept queue, with their addresses."""
    while True:
        try:
            connection, address = listening.accept()
        except OSError:  # the queue is empty, or no file descriptor is left
            return
        connection.setblocking(False)
        yield connection, str(address[0])
