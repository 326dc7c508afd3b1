"""The option --workers, as far as no cluster is needed."""

import pytest

from tests.cli.test_commands import run

HOMES = "homes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", HOMES, "--out", "run", "--workers", "2"), "--workers needs --cluster HOST:PORT."),
        (("train", HOMES, "--out", "run", "--cluster", "127.0.0.1:1"), "--cluster needs --plan FILE, or --workers K"),
        (("train", HOMES, "--out", "run", "--threads", "2"), "--threads needs --plan FILE, or --workers K"),
        (("train", "--plan", "plan.toml", "--out", "run", "--workers", "2"), "--workers trains one model, not a plan"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr
