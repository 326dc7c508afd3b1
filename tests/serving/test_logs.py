"""Logs are lines of JSON that say what happened, and to whom only when asked."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lightgc2n.serving.logs import log, log_problem, set_up_logs
from tests.export.town import bundle_of
from tests.serving.running import running


@pytest.fixture
def server_words() -> Iterator[logging.Logger]:
    """The web server's logger, put back as it was afterwards."""
    logger = logging.getLogger("uvicorn")
    before = logger.handlers, logger.propagate, logger.level
    set_up_logs()
    yield logger
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


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


@pytest.mark.parametrize("with_words", [False, True])
def test_unexpected_errors_are_logged_by_their_place(capsys: pytest.CaptureFixture[str], with_words: bool) -> None:
    try:
        {}["h000001"]
    except KeyError as problem:
        log_problem(problem, with_words)
    (found,) = told(capsys.readouterr().err)
    assert (found["event"], found["problem"], found["level"]) == ("failed", "KeyError", "error")
    assert found["at"][0].startswith(f"{__file__}:")
    assert found.get("words") == ("'h000001'" if with_words else None)


def test_a_line_a_thing(capsys: pytest.CaptureFixture[str], server_words: logging.Logger) -> None:
    log("bundle_refused", "error", reason="two\nlines \ud800")
    server_words.getChild("error").warning("words of the %s", "server")
    server_words.getChild("error").info("nobody asked")
    try:
        {}["h000001"]
    except KeyError:
        server_words.getChild("error").exception("in the words of somebody")
    first, second, third = told(capsys.readouterr().err)
    assert (first["event"], first["level"], first["reason"]) == ("bundle_refused", "error", "two\nlines \ud800")
    assert (second["event"], second["level"], second["message"]) == ("server", "warning", "words of the server")
    assert (third["event"], third["problem"]) == ("failed", "KeyError")
    assert "h000001" not in json.dumps(third)
