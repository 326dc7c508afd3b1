"""Logs are lines of JSON that say what happened, and to whom only when asked."""

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lightgc2n.serving import logs
from lightgc2n.serving.logs import LIBRARIES, LineWriter, RepeatFilter, flush_logs, log, log_problem, set_up_logs
from tests.export.town import bundle_of
from tests.serving.running import running, wait_for


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been logged before, and no thread does the writing."""
    monkeypatch.setattr(logs, "_repeats", RepeatFilter())
    monkeypatch.setattr(logs, "_writer", None)


@pytest.fixture
def server_words() -> Iterator[logging.Logger]:
    """The web server's logger; all loggers are put back as they were afterwards."""
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    set_up_logs()
    yield loggers[0]
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def told(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("with_ids", [False, True])
def test_requests_are_logged(capsys: pytest.CaptureFixture[str], with_ids: bool) -> None:
    bundle = bundle_of("lightgc2n")
    capsys.readouterr()  # making it has its own words
    with running(bundle, log_ids=with_ids) as service:
        client = service.client()
        client.recommend(account="h000007", k=2)
        client.get("/v1/accounts/h000008/people")
        client.get("/somewhere/h000009")
        client.recommend(requests=[{"account": "h000010"}, {"history": ["secret-item"]}])
    written = capsys.readouterr().err
    requests = [one for one in told(written) if one["event"] == "request"]
    assert [(one["route"], one["status"]) for one in requests] == [
        ("/v1/recommend", 200), ("/v1/accounts/{account}/people", 200), ("other", 404), ("/v1/recommend", 200),
    ]  # fmt: skip
    assert all({"time", "level", "worker", "method", "ms", "bytes"} <= set(one) for one in requests)
    named = [name for name in ("h000007", "h000008", "h000009", "h000010") if name in written]
    assert named == (["h000007", "h000008", "h000009", "h000010"] if with_ids else [])
    assert "secret-item" not in written
    assert [one["event"] for one in told(written)][-2:] == ["draining", "ended"]


@pytest.mark.parametrize("with_message", [False, True])
def test_unexpected_errors_are_logged_by_their_place(capsys: pytest.CaptureFixture[str], with_message: bool) -> None:
    try:
        {}["h000001"]
    except KeyError as problem:
        log_problem(problem, with_message)
    (actual,) = told(capsys.readouterr().err)
    assert (actual["event"], actual["problem"], actual["level"]) == ("failed", "KeyError", "error")
    assert actual["at"][0].startswith(f"{__file__}:")
    assert actual.get("words") == ("'h000001'" if with_message else None)


def test_a_line_a_thing(capsys: pytest.CaptureFixture[str], server_words: logging.Logger) -> None:
    log("bundle_refused", "error", reason="two\nlines \ud800")
    server_words.getChild("error").warning("words of the %s", "server")
    server_words.getChild("error").info("nobody asked")
    try:
        {}["h000001"]
    except KeyError:
        server_words.getChild("error").exception("in the words of somebody")
    flush_logs()
    first, second, third = told(capsys.readouterr().err)
    assert (first["event"], first["level"], first["reason"]) == ("bundle_refused", "error", "two\nlines \ud800")
    assert (second["event"], second["level"], second["message"]) == ("server", "warning", "words of the server")
    assert (third["event"], third["problem"]) == ("failed", "KeyError")
    assert "h000001" not in json.dumps(third)


def test_the_same_error_is_logged_once_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    for _ in range(1000):
        log("cannot_accept", "error", reason="Too many open files")
    log("cannot_accept", "error", reason="Out of memory")
    log("request", status=200)
    log("request", status=200)
    first = told(capsys.readouterr().err)
    assert [(one["event"], one.get("reason"), one.get("suppressed")) for one in first] == [
        ("cannot_accept", "Too many open files", None), ("cannot_accept", "Out of memory", None),
        ("request", None, None), ("request", None, None),
    ]  # fmt: skip
    now = 101.0
    log("cannot_accept", "error", reason="Too many open files")
    log("cannot_accept", "error", reason="Too many open files")
    (again,) = told(capsys.readouterr().err)
    assert (again["reason"], again["suppressed"]) == ("Too many open files", 999)
    now = 102.0
    flush_logs()
    (last,) = told(capsys.readouterr().err)
    assert (last["reason"], last["suppressed"]) == ("Too many open files", 1)
    flush_logs()
    assert not capsys.readouterr().err


def test_different_problems_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_KINDS", 3)
    repeats = RepeatFilter()
    for number in range(9):
        assert repeats.passing({"event": f"e{number}"}, 1.0) == {"event": f"e{number}"}
    assert len(repeats._kinds) == 3
    assert repeats.passing({"event": "e8"}, 1.0) is None


class Pipe:
    """Takes nothing until it is opened."""

    def __init__(self) -> None:
        self.opened, self.entered, self.data, self.broken = threading.Event(), threading.Event(), b"", False

    def write(self, data: bytes) -> None:
        self.entered.set()
        assert self.opened.wait(30)
        if self.broken:
            raise BrokenPipeError
        self.data += data


def test_a_blocked_stderr_delays_no_request() -> None:
    pipe, dropped = Pipe(), []
    writer = LineWriter(pipe.write, lambda lines: b"%d lost\n" % lines, lambda: dropped.append(1), most_bytes=50)
    writer.put(b"first line\n")
    assert pipe.entered.wait(30)
    for number in range(100):  # returns at once, though nothing can be written
        writer.put(b"line %05d\n" % number)
    assert len(dropped) == 97  # 11 bytes and three times 11 fit
    assert not writer.flush(0.01)
    pipe.opened.set()
    assert writer.flush(30)
    wait_for(lambda: b"lost" in pipe.data)
    lines = pipe.data.decode().splitlines()
    assert [line for line in lines if "lost" not in line] == ["first line", "line 00000", "line 00001", "line 00002"]
    assert [line for line in lines if "lost" in line] == ["97 lost"]
    writer.put(b"another\n")
    assert writer.flush(30)
    assert pipe.data.endswith(b"another\n")


def test_lines_dropped_on_a_full_disk_are_reported_later() -> None:
    pipe = Pipe()
    pipe.broken = True
    pipe.opened.set()
    writer = LineWriter(pipe.write, lambda lines: b"%d lost\n" % lines)
    writer.put(b"never seen\n")
    assert writer.flush(30)
    pipe.broken = False
    writer.put(b"seen\n")
    wait_for(lambda: b"lost" in pipe.data and b"seen" in pipe.data)
    assert sorted(pipe.data.splitlines()) == [b"1 lost", b"seen"]
