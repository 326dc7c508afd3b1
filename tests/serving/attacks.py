"""Hostile requests as bytes on a connection: huge arrays, deep JSON, slow bodies, mixed framing, work that takes long.

Every attack tells the statuses that it got; a connection that was closed without an answer tells none.
"""

import json
import random
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 30.0  # for an answer to come
LINGERING = 20  # connections of one attacker that are left open and bring nothing more
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HOUR = 3600 * 10**6
ITEMS = [f"v{number:05}" for number in range(1, 60)]
UNITS = (b"0", b'"v00001"', b"[]", b"{}", b"null", b"1e9", b'{"":0}', b'""', b"-1", b"true")
FIELDS = ("history", "times", "allow", "deny", "requests", "account", "k", "colour")


@dataclass
class Attacker:
    """One who asks nonsense, and what came of it."""

    port: int
    dice: random.Random
    largest: int = 2**21  # bytes of a body
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    left_open: deque[socket.socket] = field(default_factory=deque)

    def attack(self) -> None:
        name = self.dice.choice(list(ATTACKS))
        raw = socket.socket()
        raw.settimeout(SECONDS)
        try:
            raw.connect(("127.0.0.1", self.port))
            ATTACKS[name](self, raw, name)
        except (ConnectionError, BrokenPipeError):
            self.statuses[name, 0] += 1
        except TimeoutError:
            self.wrong.append(f"{name}: neither an answer nor an end")
        finally:
            if raw not in self.left_open:
                raw.close()

    def linger(self, raw: socket.socket) -> None:
        """Leave a connection as it is; the oldest that was left so is closed."""
        self.left_open.append(raw)
        if len(self.left_open) > LINGERING:
            self.left_open.popleft().close()

    def close(self) -> None:
        while self.left_open:
            self.left_open.popleft().close()

    def read(self, raw: socket.socket, name: str) -> None:
        """Reads one answer and judges it."""
        data = b""
        while b"\r\n\r\n" not in (data := data.removeprefix(CONTINUE)):
            part = raw.recv(2**16)
            if not part:
                self.statuses[name, 0] += 1
                return
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        status, headers = int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        while len(body) < length and (part := raw.recv(2**16)):
            body += part
        self.statuses[name, status] += 1
        if status == 500 or (status in (429, 503) and "retry-after" not in headers):
            self.wrong.append(f"{name}: {head!r} {body[:300]!r}")
        if status >= 400 and set(json.loads(body[:length])) != {"error"}:
            self.wrong.append(f"{name}: not an error of ours: {body[:300]!r}")


def post(body: bytes, path: str = "/v1/recommend", more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _path(dice: random.Random) -> str:
    return dice.choice(("/v1/recommend", "/v1/recommend", "/v1/people"))


def huge_array(attacker: Attacker, raw: socket.socket, name: str) -> None:
    dice = attacker.dice
    unit, size = dice.choice(UNITS), int(attacker.largest * dice.random() ** 2)
    array = b"[" + b",".join([unit] * max(1, size // (len(unit) + 1) - 30)) + b"]"
    inner = b'{"history": ["v00001"], "%s": %s}' % (dice.choice(FIELDS).encode(), array)
    body = dice.choice((array, inner, inner, b'{"requests": [%s]}' % inner))
    raw.sendall(post(body, _path(dice)))
    attacker.read(raw, name)


def deep_json(attacker: Attacker, raw: socket.socket, name: str) -> None:
    dice = attacker.dice
    depth = dice.choice((10, 900, 5_000, attacker.largest // 8))
    opening, closing = dice.choice(
        ((b"[", b"]"), (b'{"a":', b"}"), (b'{"requests":[', b"]}"), (b'{"history":[', b"]}"))
    )
    body = (opening * depth + b"0" + closing * (depth if dice.random() < 0.7 else 0))[: attacker.largest]
    raw.sendall(post(body, _path(dice)))
    attacker.read(raw, name)


def many_fields(attacker: Attacker, raw: socket.socket, name: str) -> None:
    number = attacker.dice.choice((40, 3_000, attacker.largest // 12))
    raw.sendall(post(json.dumps({f"{place:x}": 0 for place in range(number)}).encode(), _path(attacker.dice)))
    attacker.read(raw, name)


def slow_body(attacker: Attacker, raw: socket.socket, name: str) -> None:
    """Half a body, in a few parts; the rest never comes, or the client goes away."""
    message = post(b'{"history": [' + b'"v00001", ' * attacker.dice.choice((2, 2_000)) + b'"v00001"]}')
    stop = attacker.dice.randrange(20, len(message))
    for first in range(0, stop, max(1, stop // 3)):
        raw.sendall(message[first : min(stop, first + max(1, stop // 3))])
    if attacker.dice.random() < 0.8:
        attacker.linger(raw)
    attacker.statuses[name, 0] += 1


def half_a_head(attacker: Attacker, raw: socket.socket, name: str) -> None:
    head = b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 3000
    raw.sendall(head[: attacker.dice.choice((0, 0, 5, 40, 3000))])
    attacker.linger(raw)
    attacker.statuses[name, 0] += 1


def mixed_framing(attacker: Attacker, raw: socket.socket, name: str) -> None:
    dice, body = attacker.dice, b'{"history": []}'
    lines = dice.sample(
        (
            b"Content-Length: 15", b"Content-Length: 7", b"Content-Length: -1", b"Content-Length: 1e3",
            b"Expect: 100-continue", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: identity",
            b"Transfer-Encoding : chunked", b" folded: line", b"Upgrade: websocket\r\nConnection: upgrade", b"\x00: 1",
        ),
        dice.randrange(1, 4),
    )  # fmt: skip
    version, end = dice.choice((b"1.1", b"1.1", b"1.0", b"2.0", b"9")), dice.choice((b"\r\n", b"\r\n", b"\n"))
    head = end.join([b"POST /v1/recommend HTTP/" + version, b"Host: localhost", *lines, b"", b""])
    chunks = dice.choice(
        (body, b"f\r\n" + body + b"\r\n0\r\n\r\n", b"zz\r\n" + body, b"fffffffff\r\n" + body, b"0\r\n\r\n")
    )
    raw.sendall(head + chunks + post(body))
    raw.shutdown(socket.SHUT_WR)
    attacker.read(raw, name)


def odd_head(attacker: Attacker, raw: socket.socket, name: str) -> None:
    dice = attacker.dice
    method = dice.choice(("HEAD", "BREW", "OPTIONS", "TRACE", "DELETE", "PATCH", "GET"))
    path = dice.choice(
        ("/", "//", "/v1/items?search=" + "x" * 9000, "/%00", "/page/../../x", "*", "/v1/accounts/%ff/people")
    )
    more = dice.choice(("", "X-Request-Id: " + "y" * 500 + "\r\n", "Range: bytes=0-1,5-,-3\r\n", "A: b\r\n" * 3000))
    raw.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n".encode())
    if method == "HEAD":
        status = int((raw.recv(2**16) or b"x 0").split()[1])
        attacker.statuses[name, status] += 1
        return
    attacker.read(raw, name)


def many_sessions(attacker: Attacker, raw: socket.socket, name: str) -> None:
    number = attacker.dice.choice((10, 400, 5000))
    history = [ITEMS[place % len(ITEMS)] for place in range(number)]
    body = {"history": history, "times": [7 * HOUR * place for place in range(number)]}
    raw.sendall(post(json.dumps(body).encode(), "/v1/people"))
    if attacker.dice.random() < 0.5:
        attacker.read(raw, name)
    else:
        attacker.statuses[name, 0] += 1  # gone before the answer


def thousand_persons(attacker: Attacker, raw: socket.socket, name: str) -> None:
    ask = attacker.dice.choice(({"person": "A"}, {"together": True}, {}))
    raw.sendall(post(json.dumps({"requests": [{"account": "h000001", "k": 20, **ask}] * 1000}).encode()))
    attacker.linger(raw)  # the answer is never read
    attacker.statuses[name, 0] += 1


ATTACKS: dict[str, Callable[[Attacker, socket.socket, str], None]] = {
    one.__name__: one
    for one in (
        huge_array, deep_json, many_fields, slow_body, half_a_head, mixed_framing, odd_head, many_sessions,
        thousand_persons,
    )
}  # fmt: skip
