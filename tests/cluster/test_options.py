"""What the commands refuse to do on a cluster, before they connect to one."""

import subprocess
import sys

import pytest

CLUSTER = ("--cluster", "127.0.0.1:1")


def refusal(*words: object) -> str:
    """The error of a command that must not get as far as importing ray."""
    code = "import sys; sys.modules['ray'] = None; from lightgc2n.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("train", "--plan", "p", "--out", "o", "--threads", 2), "--threads needs --cluster"),
        (("train", "--plan", "p", "--out", "o", "--only", "x", *CLUSTER), "--only cannot be combined with --cluster"),
        (
            ("train", "--plan", "p", "--out", "o", "--side-by-side", 2, *CLUSTER),
            "--side-by-side cannot be combined with",
        ),
        (("train", "--plan", "p", "--out", "o", "--device", "cuda:1", *CLUSTER), "a cluster takes cpu or cuda"),
        (("recommend", "r", "--account", "a", *CLUSTER), "--cluster is for the lists of all accounts"),
        (("recommend", "r", "--all", "--out", "lists.csv", *CLUSTER), "give --out DIR"),
        (("people", "r", "--account", "a", *CLUSTER), "--cluster and --threads need --all"),
        (("people", "r", "--all", *CLUSTER), "give --out DIR"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[object, ...], wanted: str) -> None:
    assert wanted in refusal(*words)


@pytest.mark.parametrize("words", [("train", "--plan", "p", "--out", "o"), ("compare", "d"), ("doctor",)])
def test_the_extra_is_named_by_every_command(words: tuple[object, ...]) -> None:
    assert "pip install 'lightgc2n[cluster]'" in refusal(*words, *CLUSTER)
