"""Lists and people of all accounts on a real cluster, held against the same on this machine."""

import hashlib
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from lightgc2n.cluster.connect import HUNG
from tests.cluster.conftest import Raylets, end, run, start, until

PART = "ray::compute_part"  # what a node's process is called while it computes one
services = pytest.mark.services


def test_shards_are_whole_tiles() -> None:
    pytest.importorskip("ray")
    from lightgc2n.cluster.bulk import shards

    assert shards([], 2) == []
    assert shards([60], 2) == [(0, 60)]
    assert shards([10] * 6, 1) == [(0, 20), (20, 40), (40, 60)]
    assert shards([10, 10, 3], 8) == [(0, 10), (10, 20), (20, 23)]
    assert shards([7, 10, 10, 3], 1) == [(0, 7), (7, 17), (17, 27), (27, 30)]


def test_a_part_without_its_counts_is_computed_again(tmp_path: Path) -> None:
    """A command that is killed while it removes the counts must be able to resume."""
    pytest.importorskip("ray")
    from lightgc2n.cluster.bulk import _is_there, _present

    (tmp_path / "part-00000.parquet").touch()
    (tmp_path / "counted-00000.json").write_text('{"counted": []}')
    (tmp_path / "part-00001.parquet").touch()
    assert [_is_there(tmp_path, number) for number in range(3)] == [True, False, False]
    assert [number for number, _ in _present(tmp_path, 3)] == [0]


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of many accounts, more than a tile holds, and its bundle."""
    folder = tmp_path_factory.mktemp("town")
    run("generate", "--accounts", 6000, "--out", folder / "data")
    run("train", folder / "data", "--model", "trending", "--out", folder / "run")
    return folder


def table(folder: Path) -> pl.DataFrame:
    """All parts, whose manifest must describe them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["finished"]
    assert {path.name for path in folder.glob("*.parquet")} == {part["file"] for part in manifest["parts"]}
    for part in manifest["parts"]:
        assert hashlib.sha256((folder / part["file"]).read_bytes()).hexdigest() == part["sha256"]
    return pl.concat([pl.read_parquet(folder / part["file"]) for part in manifest["parts"]])


@services
def test_lists_equal_the_local_ones_though_a_node_is_killed(raylets: Raylets, town: Path, tmp_path: Path) -> None:
    run("recommend", town / "run", "--all", "-k", 5, "--out", tmp_path / "here.parquet")
    words = ("recommend", town / "run", "--all", "-k", 5, "--out", tmp_path / "there", "--cluster", raylets.address)
    process = start(*words)
    until(lambda: raylets.node_with(PART) or process.poll() is not None, "a part that is computed")
    raylets.kill(raylets.node_with(PART))
    messages = end(process)
    assert "was lost with its node and runs again" in messages
    assert table(tmp_path / "there").equals(pl.read_parquet(tmp_path / "here.parquet"))
    assert len(list((tmp_path / "there").glob("*.parquet"))) > 1
    assert "exists already" in run(*words, code=2)


@services
@pytest.mark.slow  # with so short a limit a busy machine may give up a node that is still starting
def test_lists_are_completed_though_a_worker_is_stopped_whose_node_answers(
    raylets: Raylets, town: Path, tmp_path: Path
) -> None:
    """Before, the command waited for ever."""
    words = ("recommend", town / "run", "--all", "-k", 5, "--out", tmp_path / "there", "--cluster", raylets.address)
    process = start(*words, **{HUNG: "15"})
    worker = 0
    while not worker:
        assert process.poll() is None, process.communicate()
        worker = raylets.worker_with(PART)
    os.kill(worker, signal.SIGSTOP)
    try:
        messages = end(process)
    finally:
        with suppress(ProcessLookupError):  # Ray may have killed it
            os.kill(worker, signal.SIGCONT)
    assert re.search(r"part \d+ has no answer after \d+ s and runs again", messages)
    assert table(tmp_path / "there").height > 0


@services
def test_lists_of_a_bundle_equal_the_local_ones(raylets: Raylets, town: Path, tmp_path: Path) -> None:
    run("export", town / "run", "--no-people", "--out", tmp_path / "bundle")
    run("recommend", tmp_path / "bundle", "--all", "-k", 5, "--out", tmp_path / "here.parquet")
    run("recommend", tmp_path / "bundle", "--all", "-k", 5, "--out", tmp_path / "there", "--cluster", raylets.address)
    assert table(tmp_path / "there").equals(pl.read_parquet(tmp_path / "here.parquet"))


@services
def test_people_equal_the_local_ones(raylets: Raylets, homes: Path, tmp_path: Path) -> None:
    run("train", homes, "--model", "popularity", "--out", tmp_path / "run")
    run("people", tmp_path / "run", "--all", "--out", tmp_path / "here.parquet")
    run("people", tmp_path / "run", "--all", "--out", tmp_path / "there", "--cluster", raylets.address)
    assert table(tmp_path / "there").equals(pl.read_parquet(tmp_path / "here.parquet"))
