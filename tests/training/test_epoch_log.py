"""What epochs say is kept once each, in metrics.jsonl and for TensorBoard."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, TracebackType

import pytest

from lightgc2n.errors import DataError
from lightgc2n.training.checkpoints import BOARD, METRICS, epoch_log, read_rows
from lightgc2n.training.runs import RUN_FOLDER

ROWS = [{"epoch": epoch, "next_item": 5.0 - epoch, "validation": 0.1 * epoch} for epoch in range(4)]


class FakeWriter:
    """Keeps in a file what it is told, as TensorBoard's own writer does."""

    def __init__(self, log_dir: str, purge_step: int, filename_suffix: str = "") -> None:
        assert purge_step == 0
        Path(log_dir).mkdir(exist_ok=True)
        self.events = Path(log_dir, f"events.out.tfevents.1{filename_suffix}")

    def __enter__(self) -> "FakeWriter":
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        assert self.events.exists()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        with self.events.open("a") as file:
            file.write(json.dumps([step, name, value]) + "\n")

    def flush(self) -> None:
        assert self.events.exists()


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


@pytest.mark.usefixtures("board")
def test_no_epoch_is_shown_twice(tmp_path: Path) -> None:
    with epoch_log(tmp_path, 0) as record:
        for row in ROWS[:3]:
            record(row)
    with epoch_log(tmp_path, 2) as record:  # the checkpoint of the third epoch was never written
        for row in ROWS[2:]:
            record(row)
    shown = [
        json.loads(line) for line in (tmp_path / BOARD / "events.out.tfevents.1.lightgc2n").read_text().splitlines()
    ]
    assert shown == [[row["epoch"], name, row[name]] for row in ROWS for name in ("next_item", "validation")]
    assert read_rows(tmp_path) == ROWS


@pytest.mark.usefixtures("board")
def test_event_files_of_other_programs_stay(tmp_path: Path) -> None:
    others = tmp_path / BOARD / "events.out.tfevents.1700000000.host.17.0"
    others.parent.mkdir()
    others.write_text("of another program")
    for kept in (0, 1):
        with epoch_log(tmp_path, kept) as record:
            record(ROWS[kept])
    assert others.read_text() == "of another program"
    assert RUN_FOLDER.foreign(tmp_path) == f"{BOARD}/{others.name}"  # so forget and --force refuse the folder


def test_without_tensorboard_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not installed
    with epoch_log(tmp_path, 0) as record:
        record(ROWS[0])
    assert [path.name for path in tmp_path.iterdir()] == [METRICS]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard itself
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for kept, rows in ((0, ROWS[:3]), (2, ROWS[2:])):
        with epoch_log(tmp_path, kept) as record:
            for row in rows:
                record(row)
    read = EventAccumulator(str(tmp_path / BOARD))
    read.Reload()
    actual = [(event.step, event.value) for event in read.Scalars("next_item")]
    assert actual == [(row["epoch"], row["next_item"]) for row in ROWS]


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text(f'{json.dumps(ROWS[0])}\n{{"epoch": 1, "next')
    assert read_rows(tmp_path) == ROWS[:1]
    with epoch_log(tmp_path, 1) as record:
        record(ROWS[1])
    assert read_rows(tmp_path) == ROWS[:2]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with epoch_log(None, 0) as record:
        record(ROWS[0])
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text(f'{json.dumps(ROWS[0])}\n{{"epocX": 1}}\n')
    with pytest.raises(DataError, match=rf"{METRICS}:2: expected the JSON of an epoch, found '{{\"epocX\": 1}}'"):
        read_rows(tmp_path)
