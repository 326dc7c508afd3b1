"""How the service runs: what it serves, where it listens, who may ask, and how much."""

import hashlib
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from lightgc2n.config import setting
from lightgc2n.errors import SettingError

SHORTEST_KEY = 16
MOST_QUESTIONS = 1000  # of one request
MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one worker takes on; more is refused with 413, 422, 429 or 503."""

    max_body: int = setting(2 * MEBIBYTE, at_least=1, help="Bytes of a request's body.")
    max_k: int = setting(1000, at_least=1, help="Items of one list.")
    max_history: int = setting(5000, at_least=1, help="Events of one history.")
    max_listed: int = setting(100_000, at_least=1, help="Items of all lists of one request.")
    max_requests: int = setting(256, at_least=1, help="Requests that a worker works on at once.")
    max_waiting: int = setting(4096, at_least=1, help="Lists that may wait in a worker.")
    seconds: float = setting(10.0, at_least=0.001, help="Time for a request to arrive and its answer to begin.")
    drain_seconds: float = setting(
        1.0, at_least=0.0, help="How long new connections are still answered after SIGTERM, so that others stop asking."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Everything that a worker needs to know."""

    bundle: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    key_digests: tuple[bytes, ...] = ()  # of the keys that may ask; none: everybody may
    listen_without_key: bool = False
    report: Path | None = None
    titles: Path | None = None
    log_ids: bool = False
    cors: tuple[str, ...] = ()
    watch_seconds: float = 1.0
    limits: Limits = field(default_factory=Limits)

    @property
    def local_names_only(self) -> bool:
        """Whether a request must call the service by a local name.

        Without keys, being reachable from this machine alone is the lock: a page whose name is made to point at this
        machine must not open it.
        """
        return not self.key_digests and is_loopback(self.host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_open_door(settings: ServiceSettings) -> None:
    """Stops where the service would answer strangers without anybody having said so."""
    if not is_loopback(settings.host) and not settings.key_digests and not settings.listen_without_key:
        raise SettingError(
            f"--host {settings.host}: others could reach the service, and no key is asked of them. "
            f"Give --api-key-file FILE, or say --listen-without-key if something else keeps strangers out."
        )


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Digests of the keys in a file, one a line; empty lines and lines that begin with # say nothing."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise SettingError(f"{path}: not a text file in UTF-8. Write one key a line.") from None
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#") and (len(line) < SHORTEST_KEY or not line.isascii() or " " in line):
            raise SettingError(
                f"{path}:{number}: expected a key of at least {SHORTEST_KEY} letters, digits or signs. "
                f"Make one with: openssl rand -hex 32"
            )
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise SettingError(f"{path}: holds no key. Make one with: openssl rand -hex 32 > {path}")
    return tuple(digest(key) for key in keys)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
