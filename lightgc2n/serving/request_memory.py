"""How much memory requests hold, estimated; one client cannot take all of it."""

from collections import Counter

from lightgc2n.serving.errors import RefusedError, busy

BODY_TIMES = 16  # bytes that a byte of a body becomes when it is read
LISTED_BYTES = 300  # that an item of a list takes until the list is sent
FREE_BYTES = 2**16  # that are not counted: most requests are small


class Memory:
    """Estimated bytes that the bodies and answers of one worker hold.

    Args:
        most: bytes; one client may hold half of them.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0
        self._of_client: Counter[str] = Counter()

    def hold(self, client: str) -> "Hold":
        """What a request of this client holds; nothing yet."""
        return Hold(self, client)

    def change(self, client: str, bytes_: int) -> bool:
        """Hold more, or less; returns whether that fits. A request that finds nothing held always fits."""
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


class Hold:
    """What one request holds, until it is released."""

    def __init__(self, memory: Memory, client: str) -> None:
        self._memory, self._client = memory, client
        self._bytes = 0

    def grow_to(self, bytes_: int) -> bool:
        """Hold at least so many bytes; returns whether there is room."""
        more = bytes_ - self._bytes
        if bytes_ <= FREE_BYTES or more <= 0:
            return True
        if not self._memory.change(self._client, more):
            return False
        self._bytes = bytes_
        return True

    def need(self, bytes_: int) -> None:
        """Hold at least so many bytes, or refuse the request."""
        if not self.grow_to(bytes_):
            raise no_room()

    def release(self) -> None:
        if self._bytes:
            self._memory.change(self._client, -self._bytes)
            self._bytes = 0


def no_room() -> RefusedError:
    return busy("large requests fill the memory that is set aside for them; ask again in a moment.")
