"""The settings of the service: bundle, address, API keys and limits."""

import hashlib
import ipaddress
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n.config import parse_overrides, setting
from lightgc2n.errors import SettingError

SHORTEST_KEY = 16
MOST_QUERIES = 1000  # of one request
MEBIBYTE = 2**20
EVERY_ORIGIN = ("*", "null")  # sandboxed pages send Origin: null, and any website can open one


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one worker. A request beyond a limit gets 413, 422, 429 or 503."""

    max_body: int = setting(2 * MEBIBYTE, at_least=1, help="Bytes of a request's body.")
    max_k: int = setting(1000, at_least=1, help="Items of one list.")
    max_history: int = setting(5000, at_least=1, help="Events of one history.")
    max_values: int = setting(200_000, at_least=1, help="Values of a body: events, times, items and names of fields.")
    max_named: int = setting(100_000, at_least=1, help="Items that `allow` or `deny` may name.")
    max_listed: int = setting(100_000, at_least=1, help="Items of all lists of one request.")
    max_waiting_events: int = setting(
        20_000, at_least=1, help="Events that may wait to be stored; one client may have half of them waiting."
    )
    max_cached_events: int = setting(2_000_000, at_least=0, help="Events of histories that are kept in memory.")
    max_requests: int = setting(256, at_least=1, help="Requests that a worker computes at once.")
    max_waiting: int = setting(4096, at_least=1, help="Lists that may wait in a worker.")
    max_memory: int = setting(
        128 * MEBIBYTE, at_least=1, help="Estimated bytes that bodies and answers hold; one client may hold half."
    )
    max_connections: int = setting(512, at_least=1, help="Open connections of a worker.")
    max_connections_per_client: int = setting(256, at_least=1, help="Open connections of one address.")
    max_people: int = setting(64, at_least=1, help="Requests that wait for people to be found.")
    max_people_per_client: int = setting(8, at_least=1, help="Of these, and of those being computed, one client's.")
    people_threads: int = setting(1, at_least=1, at_most=64, help="Threads that find people.")
    seconds: float = setting(10.0, at_least=0.001, help="Time for a request to arrive and its answer to begin.")
    head_seconds: float = setting(10.0, at_least=0.001, help="Time for the head of a request to arrive.")
    idle_seconds: float = setting(75.0, at_least=0.001, help="Time that a connection may wait for its next request.")
    send_seconds: float = setting(120.0, at_least=0.001, help="Time for a client to take the next 64 KiB of an answer.")
    drain_seconds: float = setting(
        1.0, at_least=0.0, help="Time after SIGTERM in which new connections are still answered."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of a worker."""

    bundle: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    key_digests: tuple[bytes, ...] = ()  # SHA-256 of the valid API keys; none: no key is needed
    listen_without_key: bool = False
    store: str | None = None  # a path for SQLite, or the address of a PostgreSQL database
    report: Path | None = None
    titles: Path | None = None
    log_ids: bool = False
    cors: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()  # names allowed in the Host header
    watch_seconds: float = 1.0
    limits: Limits = field(default_factory=Limits)

    @property
    def checks_host(self) -> bool:
        """Whether the Host header is checked.

        This is the defence against DNS rebinding: without keys, a website whose name resolves to this machine could
        read from the service.
        """
        return not self.key_digests or bool(self.allow_hosts)


def parse_limits(pairs: Iterable[str]) -> dict[str, Any]:
    """`["max_people=8"]` as `{"max_people": 8}`."""
    given = list(pairs)
    for pair in given:
        if "=" not in pair:
            raise SettingError(f"--limit {pair}: expected NAME=VALUE, for example max_connections=1000.")
    return parse_overrides(f"limits.{pair}" for pair in given).get("limits", {})


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_missing_key(settings: ServiceSettings) -> None:
    """Raise an error if the settings expose the service to others without an API key."""
    if settings.key_digests:
        return
    if not is_loopback(settings.host) and not settings.listen_without_key:
        raise SettingError(
            f"--host {settings.host}: others could reach the service without a key. "
            f"Give --api-key-file FILE, or --listen-without-key if a firewall or proxy restricts access."
        )
    for origin in settings.cors:
        if origin in EVERY_ORIGIN:
            raise SettingError(
                f"--cors {origin!r} without keys: every website that a visitor opens could read from the service. "
                f"Name the origin (--cors https://shop.example), or give --api-key-file FILE."
            )


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Digests of the keys in a file, one a line; empty lines and lines that begin with # are skipped."""
    with path.open("rb") as file:
        mode, content = os.fstat(file.fileno()).st_mode, file.read()
    _refuse_shared_folder(path)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingError(
            f"{path}: expected a file that only its owner may write, found mode {stat.S_IMODE(mode):04o}: others could "
            f"add a key. Run: chmod go-w {path}"
        )
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
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


def _refuse_shared_folder(path: Path) -> None:
    """Raise an error when others could put another file in the place of the keys, as ssh does.

    In a folder with the sticky bit, such as /tmp, only the owner of a file may replace it.
    """
    for folder in Path(os.path.realpath(path)).parents:
        mode = folder.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            raise SettingError(
                f"{path}: expected a key file in folders that only their owners may write, found {folder} with mode "
                f"{stat.S_IMODE(mode):04o}: others could replace the file. Run: chmod go-w {folder}"
            )


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
