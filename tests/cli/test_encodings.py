"""Every command prints whatever the encoding of stdout and stderr is: a letter it does not have becomes an escape."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightgc2n.cli.main import main
from lightgc2n.cli.people import BARS, PLAIN_BARS
from lightgc2n.export.write_bundle import ExportOptions, export_run
from tests.export.town import data, run_of

TITLE = "Café – 映画"
ENCODINGS = ("ascii", "latin-1", "cp1252", "utf-8")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose titles have letters of several alphabets."""
    folder = tmp_path_factory.mktemp("titles")
    items = (data() / "items.txt").read_text().splitlines()
    (folder / "titles.tsv").write_text("".join(f"{item}\t{TITLE}\n" for item in items), encoding="utf-8")
    export_run(run_of("sasrec"), folder / "bundle", ExportOptions(titles=folder / "titles.tsv"))
    return folder / "bundle"


def printed(encoding: str, monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose streams have this encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "argv", ["lightgc2n", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    texts = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode(encoding))
    return ended.value.code if isinstance(ended.value.code, int) else 0, texts[0], texts[1]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_people(encoding: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = printed(encoding, monkeypatch, "people", bundle, "--account", "h000003", "-k", 3)
    assert code == 0
    bars = BARS if encoding == "utf-8" else PLAIN_BARS
    assert f"0h {bars[0]}" in out or f"0h {bars[1]}" in out
    assert TITLE in out if encoding == "utf-8" else "\\u6620" in out
    assert ("Café" in out) == (encoding != "ascii")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_is_the_same_value(encoding: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("people", bundle, "--account", "h000003", "-k", 2, "--json")
    code, out, _ = printed(encoding, monkeypatch, *words)
    assert code == 0
    assert {one["title"] for one in json.loads(out)["account"]["items"]} == {TITLE}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_what_else_prints(encoding: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, words in (
        (0, ("describe", data())),
        (0, ("audit", data())),
        (0, ("doctor",)),
        (0, ("recommend", bundle, "--account", "h000003")),
        (0, ("recommend", bundle, "--history", f"v00001,{TITLE}")),
        (0, ("--help",)),
        (0, ("people", "--help")),
        (2, ("recommend", bundle, "--account", TITLE)),
        (2, ("describe", f"/nowhere/{TITLE}")),
        (2, ("describe", "/nowhere/\udcff")),
    ):
        actual, out, err = printed(encoding, monkeypatch, *words)
        assert (actual, "Traceback" in err) == (code, False), (words, err)
        assert out or code


@pytest.mark.parametrize("words", [("people", "-k", "3"), ("people", "--json")], ids=" ".join)
def test_under_an_ascii_locale(words: tuple[str, ...], bundle: Path) -> None:
    command = [sys.executable, "-m", "lightgc2n", words[0], str(bundle), "--account", "h000003", *words[1:]]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"\\u6620" in done.stdout
