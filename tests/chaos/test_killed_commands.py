"""Commands killed at random moments while others run, on a disk that fills up, beside a service that lacks everything:
no foreign file changes, no account comes back, every folder is whole.

LIGHTGC2N_CHAOS_KILLS sets how many commands are killed (50), LIGHTGC2N_CHAOS_SEED the seed (0).
"""

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightgc2n.data.dataset import verify_dataset
from tests.chaos.hardship import Filler, PoorService
from tests.chaos.world import ACCOUNTS, BESIDE, MINE, SMALL, Started, World, content, write_mine
from tests.cli.test_commands import run

KILLS = int(os.environ.get("LIGHTGC2N_CHAOS_KILLS", "50"))
SEED = int(os.environ.get("LIGHTGC2N_CHAOS_SEED", "0"))
COMMANDS = ("import", "train", "export", "compare", "forget")
VICTIMS = (*COMMANDS, "serve")
WORKSHOPS = {f".{name}.lightgc2n" for name in ("shop", "table", "bundle")}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that can be filled; a plain folder, never filled, where this user may not mount one."""
    folder = tmp_path / "work"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", folder]
    mounted = shutil.which("mount") and not subprocess.run(words, capture_output=True, check=False).returncode
    yield folder
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def world(disk: Path) -> World:
    made = World(disk, random.Random(SEED))
    generated = run("generate", "--accounts", ACCOUNTS, "--seed", 1, "--out", disk / "log.csv")
    assert generated.returncode == 0, generated.stderr
    first = ["train", f"{made.data}", "--model", "lightgc2n-plus", *SMALL, "--out", f"{made.newest}"]
    for words in (made.command("import"), first, made.command("export")):
        done = run(*words)
        assert done.returncode == 0, done.stderr
        made.note(words, 0)
    return made


@pytest.fixture
def mine(world: World) -> dict[str, bytes | str]:
    """What a user has where commands work: a folder of their own, and files beside ours."""
    write_mine(world.folder / "thesis", MINE)
    write_mine(world.folder, BESIDE)
    (world.folder / "thesis" / "link").symlink_to("chapter.tex")
    return {**content(world.folder / "thesis"), **{name: (world.folder / name).read_bytes() for name in BESIDE}}


def finish(started: Started) -> str:
    """Wait until a command has ended and return what it printed to stderr; a service ends when it is told to."""
    process = started.process
    if started.kind == "serve" and process.poll() is None:
        assert process.stdout is not None
        process.stdout.readline()  # it listens, or it has ended
        process.terminate()
    if started.stalled is not None:
        process.kill()  # it may wait for a reader of its log for ever
        for handle in started.stalled:
            os.close(handle)
    return process.communicate(timeout=300)[1] or ""


class Chaos:
    """Rounds of commands, of which one is killed, with one hardship or another."""

    def __init__(self, world: World, service: PoorService, filler: Filler | None) -> None:
        self.world, self.service, self.filler, self.random = world, service, filler, world.random
        self.killed, self.hardships = Counter[str](), Counter[str]()
        self.ended = Counter[tuple[str, int]]()  # commands by exit code

    def round(self) -> None:
        """Start up to three commands, kill one, wait for the others, then check everything."""
        room = self._fill_the_disk() if self.random.random() < 0.25 else False
        before = self._take_descriptors() if self.random.random() < 0.25 else None
        victim = VICTIMS[sum(self.killed.values()) % len(VICTIMS)]
        kinds = [*([victim] if victim != "serve" else []), *self._others()]
        started = [self._start(kind, first=not place) for place, kind in enumerate(kinds)]
        if victim == "serve":
            self._kill_the_service()
            before = None
        else:
            self._kill(started[0])
        for one in sorted(started, key=lambda one: one.stalled is None):  # others may wait for one that is stalled
            self._end(one)
        if room and self.filler is not None:
            self.filler.remove()
        if before is not None:
            self.service.give_descriptors(before)
        self.service.check(self.world.check()[1])

    def _others(self) -> list[str]:
        return [self.random.choice([*COMMANDS, "forget", "serve"]) for _ in range(self.random.randint(0, 2))]

    def _start(self, kind: str, first: bool) -> Started:
        hardship = "" if first else self.random.choice(["", "", "", "stalled log", "few descriptors"])
        self.hardships[hardship] += 1
        descriptors = self.random.randint(6, 40) if hardship == "few descriptors" else 0
        return self.world.start(kind, descriptors, hardship == "stalled log")

    def _kill(self, victim: Started) -> None:
        if self.random.random() < 0.5:
            self.world.wait_for_the_swap(victim)
        try:
            victim.process.wait(timeout=self.random.uniform(0.0, 5.0))
        except subprocess.TimeoutExpired:
            victim.process.send_signal(signal.SIGKILL)
            self.killed[victim.kind] += 1

    def _kill_the_service(self) -> None:
        self.service.kill()
        self.killed["serve"] += 1
        self.service.start()

    def _end(self, one: Started) -> None:
        error = finish(one)
        code = one.process.returncode
        self.ended[one.kind, code] += 1
        if one.checked and one.stalled is None:
            assert code in (0, 2, -signal.SIGKILL), (one.words, code, error)
            assert "Traceback" not in error, (one.words, error)
        self.world.note(one.words, code)

    def _fill_the_disk(self) -> bool:
        if self.filler is not None:
            self.filler.fill(self.random.choice([0, 4096, 16_384, 65_536, 1_000_000]))
            self.hardships["full disk"] += 1
        return self.filler is not None

    def _take_descriptors(self) -> tuple[int, int]:
        self.hardships["service without descriptors"] += 1
        return self.service.take_descriptors()


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_comes_back(world: World, mine: dict[str, bytes | str]) -> None:
    service = PoorService(world.bundle)
    chaos = Chaos(world, service, Filler(world.folder) if os.path.ismount(world.folder) else None)
    rounds = 0
    try:
        while chaos.killed.total() < KILLS:
            chaos.round()
            rounds += 1
            thesis = content(world.folder / "thesis")
            assert {**thesis, **{name: (world.folder / name).read_bytes() for name in BESIDE}} == mine
        for kind in COMMANDS:  # every folder can still be written, and no hidden leftover stays
            done = run(*world.command(kind))
            assert done.returncode in (0, 2), done.stderr
        service.check(world.check()[1])
    finally:
        ended = service.end()
    print(f"{rounds} rounds; killed {dict(chaos.killed)}; hardships {dict(chaos.hardships)}")
    print(f"commands by exit code: {dict(sorted(chaos.ended.items()))}")
    print(f"{len(world.forgotten)} accounts forgotten; answers to the honest client {dict(service.answers)}")
    assert ended == 0
    assert set(service.answers) <= {0, 200, 404, 503}
    assert set(chaos.killed) == set(VICTIMS[:KILLS])
    if KILLS >= 50:  # each has also done its work
        assert {kind for kind, code in chaos.ended if code == 0} == set(VICTIMS)
    assert not WORKSHOPS & {path.name for path in world.folder.iterdir()}


@pytest.mark.slow
def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """Every command that writes is tried with less and less room."""
    assert run("generate", "--accounts", 50, "--seed", 1, "--out", small_disk / "log.csv").returncode == 0
    assert run("import", small_disk / "log.csv", "--out", small_disk / "shop").returncode == 0
    (small_disk / "thesis.txt").write_text("years of work")
    mine = content(small_disk)
    for room in (0, 4096, 16_384, 65_536):
        filler = small_disk / "filler"
        filler.write_bytes(bytes(max(0, shutil.disk_usage(small_disk).free - room)))
        for words in (
            ["import", small_disk / "log.csv", "--out", small_disk / "again"],
            ["import", small_disk / "log.csv", "--out", small_disk / "shop", "--force"],
            ["forget", "h000003", "--data", small_disk / "shop"],
            ["compare", small_disk / "shop", "--models", "popularity", "--out", small_disk / "table"],
            ["train", small_disk / "shop", "--model", "lightgc2n-plus", *SMALL, "--out", small_disk / "run"],
            ["simulate", small_disk / "shop", "--out", small_disk / "merged"],
            ["describe", small_disk / "shop", "--plots", small_disk / "plots"],
        ):
            done = run(*words)
            assert done.returncode in (0, 2), (words, done.stderr)
            assert "Traceback" not in done.stderr, (words, done.stderr)
            verify_dataset(small_disk / "shop")
        filler.unlink()
        assert (small_disk / "thesis.txt").read_bytes() == mine["thesis.txt"]
        assert (small_disk / "log.csv").read_bytes() == mine["log.csv"]
        for made in ("again", "table", "table.partial", "run", "merged", "plots"):
            shutil.rmtree(small_disk / made, ignore_errors=True)
