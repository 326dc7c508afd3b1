"""Experiments as a stranger runs them: a quick look, going on after a kill, another machine, refusals."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.leak_audit import audit_split
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, OutputError
from lightgc2n.paper.catalogue import EXPERIMENTS
from lightgc2n.paper.experiment_pack import run_pack, unpack
from lightgc2n.paper.experiment_results import read_experiment
from lightgc2n.paper.experiment_runner import Pace, merge_requests
from lightgc2n.paper.quick_data import quick_data
from lightgc2n.paper.report import document
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import run
from tests.paper.run_folders import in_this_process

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).parents[2]
SMALL = ["--models", "recency,da-gcn", "--budget", 1, "--device", "cpu"]


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("lightgc2n.experiments.plan_runner.run_children", in_this_process)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    logs, windows = quick_data(tmp_path_factory.mktemp("quick"))
    return windows, logs


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All experiments, smaller than --quick makes them."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("look")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightgc2n.experiments.plan_runner.run_children", in_this_process)
        patch.chdir(folder)
        done = run("experiment", "all", "--quick", *SMALL, "--out", "look")
        assert done.returncode == 0, done.stderr
        assert "written to look/report.html" in done.stdout
        yield folder / "look"


def test_a_quick_look_runs_every_experiment_and_reports_on_each(looked: Path) -> None:
    made = document(looked)
    assert [section.name for section in made.sections] == [*EXPERIMENTS, "published"]
    page = (looked / "report.html").read_text(encoding="utf-8")
    for section in made.sections[:-1]:
        assert section.tables, section.name
        assert section.figures, section.name
        assert section.title in page
        for table in section.tables:
            assert (looked / "tables" / f"{table.name}.csv").is_file()
            assert table.command == "lightgc2n experiment all --models recency,da-gcn --budget 1 --quick --out look"
            assert any(note.startswith("Cost: ") for note in table.notes)
            assert not any(note.startswith("Missing") for note in table.notes)
    assert len(made.verdicts) >= 14
    assert any("pi-net" not in row[0].text and "two domains" in row[0].text for row in made.sections[1].tables[0].rows)
    assert "generated households" in " ".join(made.summary)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_the_report_of_a_quick_look_opens_in_a_browser_with_every_plot(looked: Path) -> None:
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto((looked / "report.html").as_uri())
        figures = [figure for section in document(looked).sections for figure in section.figures]
        for figure in figures:
            plots = page.locator(f"#figure-{figure.name} .plot svg")
            assert plots.count() == max(1, len(figure.panels)), figure.name
            assert all(plots.nth(place).bounding_box()["height"] > 50 for place in range(plots.count()))
        browser.close()
    assert problems == []
    assert len(figures) >= len(EXPERIMENTS)


def test_the_same_command_trains_nothing_again_and_makes_the_same_report(
    looked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in looked.glob("*/*/results.json")}
    files = {
        path: path.read_bytes() for path in [*looked.glob("tables/*"), *looked.glob("figures/*"), *looked.glob("*.md")]
    }
    monkeypatch.chdir(looked.parent)
    monkeypatch.setattr("lightgc2n.experiments.plan_runner.run_children", in_this_process)
    assert run("experiment", "all", "--quick", *SMALL, "--out", "look").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.usefixtures("at_home")
def test_other_settings_in_the_same_folder_are_refused(looked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(looked.parent)
    done = run("experiment", "layers", "--quick", "--budget", 2, "--out", "look")
    assert (done.returncode, "holds another run (training." in done.stderr) == (2, True)


@pytest.mark.usefixtures("at_home")
def test_more_data_is_added_to_what_is_there(data: tuple[Path, Path], tmp_path: Path) -> None:
    windows, logs = data
    words = ["--models", "recency,markov", "--out", tmp_path / "out"]
    assert run("experiment", "table1", "--data", logs, *words).returncode == 0
    assert run("experiment", "table1", "--data", windows, *words).returncode == 0
    section, _ = document(tmp_path / "out").sections
    assert [table.name for table in section.tables] == [
        "table1-homes-video-last",
        "table1-homes-learn-last",
        "table1-homes-windows-windows",
    ]
    assert str(windows) not in section.tables[0].command
    assert run("report", tmp_path / "out").stdout == f"written to {tmp_path / 'out' / 'report.html'}\n"


def test_a_table_of_two_commands_names_both(data: tuple[Path, Path], tmp_path: Path) -> None:
    for models in ("recency", "markov", "recency"):
        run("experiment", "table1", "--data", data[0], "--models", models, "--out", tmp_path / "out", "--device", "cpu")
    (section, *_) = document(tmp_path / "out").sections
    first, second = section.tables[0].command.split(" && ")
    assert "--models recency" in first
    assert "--models markov" in second
    assert [row[0].text for row in section.tables[0].rows] == ["recency", "markov"]


def test_quick_windows_leak_as_the_published_ones_do(data: tuple[Path, Path]) -> None:
    windows = load_dataset(data[0])
    audit = audit_split(windows, split_dataset(windows, SplitConfig(protocol="windows")))
    assert audit.leaks
    logs = load_dataset(data[1])
    video = logs.only("video")
    own = {tuple(video.events[start:stop]) for start, stop in zip(video.offsets[:-1], video.offsets[1:], strict=True)}
    longest = max(own, key=len)
    places = zip(windows.offsets[:-1], windows.offsets[1:], strict=True)
    assert longest[-12:] in {tuple(windows.events[start:stop]) for start, stop in places}


@pytest.mark.slow
def test_killed_at_any_moment_it_resumes_with_the_same_results(data: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["leak", "--data", *data, "--models", "recency,lightgc2n-wo-a", "--budget", 15, "--out", "out"]
    words += ["--set", "training.patience=15", "--side-by-side", 2, "--together", 2, "--device", "cpu"]
    command = [sys.executable, "-m", "lightgc2n", "experiment", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for moment in ("leak/*/last.safetensors", "leak/*lightgc2n*/results.json"):
        child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        while not any((tmp_path / "out").glob(moment)) and child.poll() is None:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "whole").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightgc2n.experiments.plan_runner.run_children", in_this_process)
        patch.chdir(tmp_path / "whole")
        assert run("experiment", *words).returncode == 0
    names = [f"{kind}/leak-homes-windows.{ending}" for kind, ending in (("tables", "csv"), ("figures", "svg"))]
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / "out" / name).read_bytes()


@pytest.mark.usefixtures("at_home")
def test_a_pack_runs_in_slices_elsewhere_and_comes_home(data: tuple[Path, Path], tmp_path: Path) -> None:
    pack, results = tmp_path / "pack.tgz", tmp_path / "results.tgz"
    words = ["ablation", "--data", data[1], "--models", "recency,lightgc2n-wo-a", "--budget", 2, "--seeds", 1]
    assert run("experiment", *words, "--pack", pack).returncode == 0
    assert run("experiment", *words, "--pack", pack).returncode == 2  # never overwritten without being asked
    with tarfile.open(pack) as tar:
        assert {"ablation/plan.toml", "data/homes/events.npy", "lightgc2n/__main__.py"} <= set(tar.getnames())
    state = run_pack(pack, results, Pace(seconds=0))
    assert len(state.left) == 4
    shutil.copytree(tmp_path / "results.tgz.work", tmp_path / "stale")
    shutil.rmtree(tmp_path / "results.tgz.work")  # a fresh machine that is given what the last one wrote
    assert run_pack(pack, results, Pace()).left == []
    with tarfile.open(results) as tar:
        kept = {Path(name).name for name in tar.getnames() if "wo-a" in name}
    assert kept == {"run.json", "results.json", "ranks.npz", "metrics.jsonl", "homes-video-lightgc2n-wo-a-seed0.txt",
                    "homes-learn-lightgc2n-wo-a-seed0.txt"}  # fmt: skip
    shutil.rmtree(tmp_path / "results.tgz.work")  # the first machine is given what the second one wrote
    (tmp_path / "stale").rename(tmp_path / "results.tgz.work")
    assert run_pack(pack, results, Pace(seconds=0)).left == []
    with tarfile.open(results) as tar:
        assert sum(name.endswith("/results.json") for name in tar.getnames()) == 4
    done = run("experiment", "--unpack", results, "--out", tmp_path / "home")
    assert (done.returncode, done.stdout) == (0, f"ablation: written to {tmp_path / 'home' / 'report.html'}\n")
    again = run("experiment", *words, "--out", tmp_path / "home", "--device", "cpu")
    assert "4 runs, 4 of them finished" in again.stderr  # what came home counts as done here
    with pytest.MonkeyPatch.context() as patch:  # a disk that is full before a run's results are there
        patch.setattr("lightgc2n.paper.experiment_pack.shutil.copy2", full)
        with pytest.raises(OutputError):
            unpack(results, tmp_path / "full")
    assert not list((tmp_path / "full").rglob("results.json"))
    assert unpack(results, tmp_path / "home") == ["ablation"]
    shutil.copy(pack, tmp_path / "other.tgz")
    with (tmp_path / "other.tgz").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(OutputError, match="made from another pack"):
        run_pack(tmp_path / "other.tgz", results, Pace())
    with pytest.raises(DataError, match="not an archive of this program"):
        unpack(data[1] / "events.npy", tmp_path / "home")


def full(source: Path, to: Path) -> Path:
    if Path(source).name == "results.json":
        raise OSError(errno.ENOSPC, "No space left on device")
    return Path(shutil.copyfile(source, to))


@pytest.mark.usefixtures("at_home")
def test_data_of_one_name_in_two_folders_have_a_table_each(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for seed, folder in enumerate(folders):
        generate(HouseholdConfig(accounts=50), seed=seed, out=tmp_path / "homes")
        (tmp_path / "homes").rename(folder)
    assert len({load_dataset(folder).name for folder in folders}) == 1
    words = ["--models", "popularity", "--device", "cpu", "--out", tmp_path / "out"]
    assert run("experiment", "table1", "--data", *folders, *words).returncode == 0
    section, _ = document(tmp_path / "out").sections
    assert len({table.caption for table in section.tables}) == len(section.tables) >= 2


@pytest.mark.usefixtures("at_home")
def test_a_later_command_keeps_the_honest_logs_of_a_leak(data: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["--device", "cpu", "--out", tmp_path / "out", "--models"]
    assert run("experiment", "leak", "--data", *data, *words, "recency").returncode == 0
    assert run("experiment", "leak", "--data", data[0], *words, "popularity").returncode == 0
    asked = read_experiment(tmp_path / "out" / "leak")["asked"]
    assert asked[data[0].name]["beside"] == data[1].name


def test_a_pack_needs_a_bare_machine_and_the_source_in_it(data: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["table1", "--data", data[0], "--models", "recency,lightgc2n-wo-a", "--budget", 1, "--seeds", 1]
    assert run("experiment", *words, "--pack", tmp_path / "pack.tgz").returncode == 0
    with tarfile.open(tmp_path / "pack.tgz") as tar:
        tar.extractall(tmp_path, [member for member in tar if member.name.startswith("lightgc2n/")], filter="data")
    for package in ("polars", "zstandard", "matplotlib", "scipy", "jinja2", "sklearn", "pandas", "tensorboard"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not on a bare machine')\n")
    command = [sys.executable, "-m", "lightgc2n", "experiment", "--run", "pack.tgz", "--out", "results.tgz"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path)}  # no git either
    done = subprocess.run(
        [*command, "--device", "cpu"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "lightgc2n experiment --unpack results.tgz --out DIR" in done.stdout
    with tarfile.open(tmp_path / "results.tgz") as tar:
        assert "table1/homes-windows-lightgc2n-wo-a-seed0/ranks.npz" in tar.getnames()


@pytest.mark.usefixtures("at_home")
def test_a_failed_run_is_reported_and_the_report_is_written(data: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["--models", "recency,lightgc2n-wo-a", "--set", "training.learning_rate=1e30", "--set", "training.clip=0"]
    done = run(
        "experiment", "table1", "--data", data[0], *words, "--seeds", 1, "--out", tmp_path / "out", "--device", "cpu"
    )
    assert (done.returncode, "1 runs failed: table1/homes-windows-lightgc2n-wo-a-seed0" in done.stderr) == (1, True)
    section, _ = document(tmp_path / "out").sections
    assert any("Use a smaller learning rate" in note for note in section.tables[0].notes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of: an experiment by its name"),
        (["table1", "--run", "pack.tgz"], "give one of: an experiment by its name"),
        (["tabel1", "--out", "out"], "Did you mean 'table1'?"),
        (["table1", "--out", "out"], "no data: give --data DIR"),
        (["table1", "--data", "nowhere", "--out", "out"], "nowhere: not a prepared dataset"),
        (["table1", "--data", "LOGS"], "--out is missing"),
        (["table1", "--data", "LOGS", "LOGS", "--out", "out"], "2 folders called homes"),
        (["table1", "--data", "LOGS", "--models", "markow", "--out", "out"], "Did you mean 'markov'?"),
        (["table1", "--data", "LOGS", "--config", "nowhere", "--out", "out"], "--config nowhere: expected a folder"),
        (["table1", "--data", "LOGS", "--set", "split.tset_share=1", "--out", "out"], "Did you mean 'test_share'?"),
        (["leak", "--data", "LOGS", "--out", "out"], "leak: needs random windows"),
        (["--run", "nowhere.tgz", "--out", "results.tgz"], "nowhere.tgz: no such file"),
        (["--unpack", "nowhere.tgz", "--out", "out"], "nowhere.tgz: no such file"),
    ],
)
def test_user_errors_are_one_sentence(
    words: list[str], message: str, data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("experiment", *(data[1] if word == "LOGS" else word for word in words), "--device", "cpu")
    assert (done.returncode, message in done.stderr, done.stdout) == (2, True, ""), done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_holds_something_else_is_left_alone(data: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    done = run("experiment", "table1", "--data", data[1], "--out", tmp_path, "--device", "cpu")
    assert (done.returncode, "holds thesis.tex and is no folder of experiments" in done.stderr) == (2, True)
    assert run("report", tmp_path).returncode == 2


@pytest.mark.parametrize("text", ['{"quick": false}', "[1]", '{"asked": [1]}', '{"asked": {"E": 1}}', "{"])
def test_what_does_not_describe_an_experiment_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "table1").mkdir()
    (tmp_path / "table1" / "experiment.json").write_text(text)
    with pytest.raises(DataError, match="not an experiment"):
        document(tmp_path)


def test_what_an_earlier_version_described_is_still_read(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    folder.mkdir()
    (folder / "experiment.json").write_text('{"experiment": "table1", "asked": {"E": {"command": "make E"}}}')
    request = {"commands": ["again"], "beside": "", "runs": {}}
    merge_requests(folder, "table1", {"quick": False, "asked": {"E": request}})
    assert read_experiment(folder)["asked"]["E"]["commands"] == ["make E", "again"]


def test_the_list_names_every_experiment() -> None:
    shown = run("experiment", "list").stdout
    assert all(name in shown for name in EXPERIMENTS)
    assert '"place": "RQ2, Table 1"' in run("experiment", "list", "--json").stdout


def test_results_never_replace_the_pack_or_another_archive(data: tuple[Path, Path], tmp_path: Path) -> None:
    pack, backup = tmp_path / "pack.tgz", tmp_path / "backup.tar.gz"
    assert run("experiment", "statistics", "--data", data[1], "--pack", pack).returncode == 0
    (tmp_path / "diary.txt").write_text("mine")
    with tarfile.open(backup, "w:gz") as tar:
        tar.add(tmp_path / "diary.txt", "diary.txt")
    for out, message in ((pack, "is the pack itself"), (backup, "holds no results of experiments")):
        before = out.read_bytes()
        done = run("experiment", "--run", pack, "--out", out)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert out.read_bytes() == before
    assert not list(tmp_path.glob("*.work"))
