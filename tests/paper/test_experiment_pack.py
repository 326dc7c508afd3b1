"""Results that come home in an archive: they replace files of runs, and no other file."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from lightgc2n.errors import DataError, OutputError
from lightgc2n.paper import experiment_pack
from lightgc2n.paper.experiment_pack import _copy_run, _extract, _resume_from, _verified_files
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.runs import RUN

OURS = json.dumps({"made_by": "lightgc2n 0.1.0"})


def folder_with(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_run_replaces_its_own_files_alone(tmp_path: Path) -> None:
    packed = folder_with(tmp_path / "packed", run_json=OURS, metrics_jsonl="new", notes_txt="theirs", results_json="{}")
    home = folder_with(tmp_path / "home", run_json=OURS, metrics_jsonl="old", notes_txt="mine")
    _copy_run(packed, home)
    found = {path.name: path.read_text() for path in home.iterdir()}
    assert found == {RUN: OURS, "metrics.jsonl": "new", "notes.txt": "mine", "results.json": "{}"}


def test_a_run_with_a_linked_file_is_left_alone(tmp_path: Path) -> None:
    packed = folder_with(tmp_path / "packed", run_json=OURS, metrics_jsonl="new")
    home = folder_with(tmp_path / "home", run_json=OURS)
    (tmp_path / "thesis").write_text("years of work")
    (home / "metrics.jsonl").symlink_to(tmp_path / "thesis")
    with pytest.raises(OutputError, match="found a link"):
        _copy_run(packed, home)
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_logs_come_home_and_other_folders_only_add_files(tmp_path: Path) -> None:
    _copy_run(folder_with(tmp_path / "logs", a_txt="new"), folder_with(tmp_path / "home" / "logs", a_txt="old"))
    assert (tmp_path / "home" / "logs" / "a.txt").read_text() == "new"
    _copy_run(folder_with(tmp_path / "x", a_txt="new", b_txt="new"), folder_with(tmp_path / "home" / "x", a_txt="mine"))
    assert [(tmp_path / "home" / "x" / name).read_text() for name in ("a.txt", "b.txt")] == ["mine", "new"]


def archive_of(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """An archive of members, each a name, a type of tarfile, and its content or the target of its link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content.encode()))
            else:
                member.linkname = content
                tar.addfile(member)
    return path


@pytest.mark.parametrize(
    "member",
    [
        ("ablation/run", tarfile.SYMTYPE, "b"),
        ("ablation/run", tarfile.LNKTYPE, "a.txt"),
        ("ablation/run", tarfile.FIFOTYPE, ""),
        ("../outside", tarfile.REGTYPE, "theirs"),
        ("ablation/../../outside", tarfile.REGTYPE, "theirs"),
        ("/outside", tarfile.REGTYPE, "theirs"),
    ],
)
def test_links_and_names_outside_are_refused_before_anything_is_extracted(
    member: tuple[str, bytes, str], tmp_path: Path
) -> None:
    """tarfile's own filter has let links with long names write anywhere (CVE-2025-4517)."""
    archive = archive_of(tmp_path / "a.tgz", ("a.txt", tarfile.REGTYPE, "one"), member)
    (tmp_path / "to").mkdir()
    with pytest.raises(DataError, match=r"a\.tgz: holds .* so nothing is extracted"):
        _extract(archive, tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


def test_an_archive_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of(tmp_path / "a.tgz", *((f"{number}", tarfile.REGTYPE, "") for number in range(4)))
    monkeypatch.setattr(experiment_pack, "MOST_MEMBERS", 3)
    with pytest.raises(DataError, match="more than 3 files"):
        _extract(archive, tmp_path)
    bomb = archive_of(tmp_path / "b.tgz", ("zeros", tarfile.REGTYPE, "0" * 100_000))
    monkeypatch.setattr(experiment_pack.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 99_999}))
    with pytest.raises(DataError, match=r"than the 99,999 that are free"):
        _extract(bomb, tmp_path)


def test_a_pack_holds_the_files_of_the_dataset_alone(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=20), seed=3, out=tmp_path / "homes")
    names = {path.relative_to(tmp_path / "homes") for path in (tmp_path / "homes").rglob("*") if path.is_file()}
    (tmp_path / "homes" / "secret.txt").write_text("my password")
    (tmp_path / "homes" / "link").symlink_to("/etc/hostname")
    packed = _verified_files(tmp_path / "homes", tmp_path / "copy" / "homes")
    assert {path.relative_to(tmp_path / "copy" / "homes") for path in packed} == names
    (tmp_path / "homes" / "events.npy").write_bytes(b"of another state")
    with pytest.raises(DataError):
        _verified_files(tmp_path / "homes", tmp_path / "again" / "homes")


def test_results_of_another_pack_are_not_replaced(tmp_path: Path) -> None:
    run = json.dumps({"made_by": "lightgc2n 0.1.0", "data": {"checksum": "a"}})
    archive = archive_of(tmp_path / "results.tgz", ("ablation/one/run.json", tarfile.REGTYPE, run))
    work = folder_with(tmp_path / "work", table1__plan_toml="")
    with pytest.raises(OutputError, match="holds ablation/one, a run of another pack"):
        _resume_from(archive, work)
    folder_with(work, ablation__plan_toml="", ablation__one__run_json=run.replace('"a"', '"b"'))
    with pytest.raises(OutputError, match="on other data"):
        _resume_from(archive, work)
