"""The command line as a stranger meets it: results on stdout, errors in one sentence, nothing half done."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightgc2n.cli import COMMANDS
from lightgc2n.cli.main import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*words: object) -> Done:
    """The command in this process: starting Python and torch anew for each would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lightgc2n", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    code = ended.value.code
    return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def households(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    assert run("generate", "--accounts", 60, "--out", folder / "log.csv").returncode == 0
    done = run("import", folder / "log.csv", "--out", folder / "data")
    assert done.returncode == 0, done.stderr
    return folder / "data"


def test_the_story_from_a_seed_to_a_table(households: Path, tmp_path: Path) -> None:
    done = run("compare", households, "--models", "floors", "--out", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert "markov-recency" in done.stdout
    assert "MRR@20" in done.stdout
    assert "error" not in done.stderr
    assert (tmp_path / "results" / "results.json").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "DATA", "--models", "markov", "--domain", "video"],
        ["describe", "DATA"],
        ["audit", "DATA", "--protocol", "last"],
        ["simulate", "MERGE", "--members", "2", "--min-events", "1", "--out", "OUT"],
        ["generate", "--accounts", "50", "--out", "OUT"],
        ["identify", "DATA", "--methods", "session-k-means"],
        ["doctor"],
    ],
    ids=lambda words: words[0],
)
def test_json_is_all_that_stdout_holds(words: list[str], households: Path, tmp_path: Path) -> None:
    rows = [f"u{user},i{event},{1_400_000_000 + event}" for user in range(6) for event in range(4)]
    (tmp_path / "users.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    assert run("import", tmp_path / "users.csv", "--out", tmp_path / "users").returncode == 0
    places = {"DATA": households, "OUT": tmp_path / "out", "MERGE": tmp_path / "users"}
    done = run(*(places.get(word, word) for word in words), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["describe", "nowhere"],
            "nowhere: not a prepared dataset (no manifest.json). Make one with: lightgc2n import",
        ),
        (["import", "nowhere.csv", "--out", "x"], "nowhere.csv: no such file or folder"),
        (["compare", "DATA", "--models", "markow"], "Did you mean 'markov'?"),
        (["compare", "DATA", "--protocol", "lasst"], "Did you mean 'last'?"),
        (["compare", "DATA", "--set", "markov.raech=2"], "Did you mean 'reach'?"),
        (["compare", "DATA", "--set", "markow.reach=2"], "Did you mean 'markov'?"),
        (["compare", "DATA", "--domain", "vidoe"], "Did you mean 'video'?"),
        (["compare", "DATA", "--cutoffs", "5,x"], "expected whole numbers like 5,10,20"),
        (["compare", "DATA", "--device", "gpu"], "expected cpu, cuda or auto"),
        (["compare", "DATA", "--protocol", "windows"], "holds logs"),
        (["compare", "DATA", "--out", "DATA"], "exists already"),
        (["generate", "--accounts", "10", "--out", "x"], "accounts must be at least 50"),
        (["identify", "DATA", "--methods", "one-persn"], "Did you mean 'one-person'?"),
        (["identify", "DATA", "--accounts", "tests"], "Did you mean 'test'?"),
        (["identify", "DATA", "--run", "nowhere"], "nowhere: not a run"),
        (["evaluate", "DATA"], "It is a prepared dataset. Make a run with: lightgc2n train DIR --out RUN"),
        (["serve", "DATA"], "(no config.json). It is a prepared dataset."),
    ],
)
def test_user_errors_are_one_sentence(
    words: list[str], message: str, households: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*(households if word == "DATA" else word for word in words))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_leaking_protocol_works_and_says_so(tmp_path: Path) -> None:
    log = ["p", "q", "r", "s", "t", "u", "v", "w"]
    windows = [
        f"a{account}\t" + "\t".join(log[start : start + 4]) + "\t" for account in range(20) for start in range(5)
    ]
    (tmp_path / "windows.txt").write_text("\n".join(windows) + "\n")
    assert run("import", tmp_path / "windows.txt", "--out", tmp_path / "data").returncode == 0
    done = run("compare", tmp_path / "data", "--protocol", "windows", "--models", "markov", "--target-in-input")
    assert done.returncode == 0, done.stderr
    assert "Leaks:" in done.stderr
    assert "TARGET IN INPUT" in done.stdout
    assert "random windows" in done.stdout


def test_shares_of_a_split_can_be_set(households: Path) -> None:
    words = ["compare", households, "--models", "recency", "--protocol", "cold-accounts", "--json"]
    few, many = (json.loads(run(*words, *more).stdout) for more in ([], ["--set", "split.test_share=0.3"]))
    assert (few["counts"]["test_queries"], many["counts"]["test_queries"]) == (6, 18)
    refused = run(*words, "--set", "split.test_share=0.9")
    assert (refused.returncode, "test_share must be at most 0.4" in refused.stderr) == (2, True)


def test_identify_prints_and_writes_its_results(households: Path, tmp_path: Path) -> None:
    done = run("identify", households, "--methods", "one-person,session-k-means", "--out", tmp_path / "people")
    assert done.returncode == 0, done.stderr
    assert "the true count given" in done.stdout
    assert "the count inferred" in done.stdout
    names = sorted(path.name for path in (tmp_path / "people").iterdir())
    assert names == ["accounts.csv", "results.csv", "results.json", "results.md"]


def test_identify_needs_known_members(tmp_path: Path) -> None:
    rows = [f"u{user},i{event},{1_400_000_000 + event}" for user in range(6) for event in range(4)]
    (tmp_path / "users.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    assert run("import", tmp_path / "users.csv", "--out", tmp_path / "users").returncode == 0
    done = run("identify", tmp_path / "users")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no labels of people. Make labelled data with lightgc2n simulate or generate." in done.stderr


@pytest.mark.parametrize("command", [("describe",), ("simulate", "--out", "merged")])
def test_damaged_data_are_refused(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("generate", "--accounts", 50, "--out", "data").returncode == 0
    events = bytearray(Path("data/events.npy").read_bytes())
    events[-4:] = b"\xff\xff\xff\x7f"
    Path("data/events.npy").write_bytes(events)
    done = run(command[0], "data", *command[1:])
    assert (done.returncode, "events.npy: checksum" in done.stderr) == (2, True)
    assert not Path("merged").exists()


def test_too_little_memory_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte.")

    monkeypatch.setattr("lightgc2n.synthetic.households.build_world", refuse)
    done = run("generate", "--out", tmp_path / "out")
    assert (done.returncode, "not enough memory: [enforce fail]" in done.stderr) == (2, True)


def test_a_model_is_one_model(tmp_path: Path) -> None:
    assert run("generate", "--accounts", 50, "--out", tmp_path / "data").returncode == 0
    done = run("train", tmp_path / "data", "--model", "floors", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown model 'floors'. Nearest: ")


def test_a_seed_that_is_too_large_is_refused(tmp_path: Path) -> None:
    assert run("generate", "--seed", 2**32, "--out", tmp_path / "data").returncode == 2
    assert not (tmp_path / "data").exists()


def test_a_stopped_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("lightgc2n.synthetic.households.build_world", stop)
    done = run("generate", "--out", tmp_path / "out")
    assert done.returncode == 130
    assert "stopped; no half-written file was left behind." in done.stderr


def test_ctrl_c_before_all_is_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    """A package that takes its time stands in for those that take 0.3 s."""
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    command = [sys.executable, "-m", "lightgc2n", "doctor"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "importing\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert (child.returncode, said) == (130, "")


def test_a_second_signal_does_not_disturb_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cleaned = []

    def stop(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(True)

    monkeypatch.setattr("lightgc2n.synthetic.households.build_world", stop)
    assert run("generate", "--out", tmp_path / "out").returncode == 130
    assert cleaned


def test_the_reader_may_go_away(households: Path) -> None:
    command = f"{sys.executable} -m lightgc2n describe {households} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    assert all(name in shown for name in COMMANDS)


def test_starting_up_needs_neither_torch_nor_polars() -> None:
    code = "import sys, lightgc2n.cli.main; assert not {'torch', 'polars', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
