"""An estimate of the memory that requests use; one client can use at most half of it."""

from collections import Counter

from lightgc2n.serving.errors import RefusedError, busy

BYTES_PER_BODY_BYTE = 16  # memory of a parsed body, per byte of JSON
BYTES_PER_LISTED_ITEM = 300  # memory of an item of a list until the list is sent
UNCOUNTED_BYTES = 2**16  # of a request that are not counted: most requests are small


class RequestMemory:
    """Estimated bytes of the bodies and responses of one worker.

    Args:
        most: the limit in bytes; one client may use half of it.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0
        self._of_client: Counter[str] = Counter()

    def reserve(self, client: str) -> "Reservation":
        """An empty reservation for a request of this client."""
        return Reservation(self, client)

    def change(self, client: str, bytes_: int) -> bool:
        """Add or release bytes; return whether they fit. If nothing is reserved, any request fits."""
        own = self._of_client[client] + bytes_
        if bytes_ > 0 and self.held and (self.held + bytes_ > self._most or own > max(self._most // 2, bytes_)):
            if not self._of_client[client]:
                del self._of_client[client]
            return False
        self.held += bytes_
        self._of_client[client] = own
        if not own:
            del self._of_client[client]
        return True


class Reservation:
    """The bytes that one request has reserved."""

    def __init__(self, memory: RequestMemory, client: str) -> None:
        self._memory, self._client = memory, client
        self._bytes = 0

    def grow_to(self, bytes_: int) -> bool:
        """Reserve at least so many bytes; return whether they fit."""
        more = bytes_ - self._bytes
        if bytes_ <= UNCOUNTED_BYTES or more <= 0:
            return True
        if not self._memory.change(self._client, more):
            return False
        self._bytes = bytes_
        return True

    def need(self, bytes_: int) -> None:
        """Reserve at least so many bytes, or raise an error."""
        if not self.grow_to(bytes_):
            raise no_room()

    def release(self) -> None:
        if self._bytes:
            self._memory.change(self._client, -self._bytes)
            self._bytes = 0


def no_room() -> RefusedError:
    return busy("large requests have used up their memory limit; retry in a moment.")
