"""The settings of the service: bundle, address, API keys and limits."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n.config import parse_overrides, setting
from lightgc2n.errors import SettingError

MOST_QUERIES = 1000  # queries of one request
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
    max_people: int = setting(64, at_least=1, help="Requests that may wait for a thread that finds people.")
    max_people_per_client: int = setting(8, at_least=1, help="Waiting and running requests of one client for people.")
    people_threads: int = setting(1, at_least=1, at_most=64, help="Threads that find people.")
    seconds: float = setting(10.0, at_least=0.001, help="Time until a request has arrived and its response starts.")
    head_seconds: float = setting(10.0, at_least=0.001, help="Time for the head of a request to arrive.")
    idle_seconds: float = setting(75.0, at_least=0.001, help="Time that a connection may wait for its next request.")
    send_seconds: float = setting(120.0, at_least=0.001, help="Time for a client to read 64 KiB of a response.")
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
    keys: Mapping[bytes, frozenset[str]] = field(default_factory=dict)  # digest -> scopes; none: no key is needed
    key_file: Path | None = None  # where they were read, to be read again when it changes
    listen_without_key: bool = False
    audit_log: Path | None = None
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
        return not self.keys or bool(self.allow_hosts)


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
    if settings.keys:
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
