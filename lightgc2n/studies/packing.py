"""An experiment as one archive for a machine that has torch and little else, and its results as another.

A pack holds data/DATASET, NAME/plan.toml and NAME/experiment.json of each experiment, and the source of this package.
Results hold the run folders: of a finished run what a report reads, of one that was stopped all that it goes on from.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lightgc2n.data.files import new_file, sha256
from lightgc2n.errors import DataError, OutputError
from lightgc2n.experiments.results import RANKS, RESULTS
from lightgc2n.progress import say
from lightgc2n.studies.catalogue import STUDIES
from lightgc2n.studies.found import EXPERIMENT, read_experiment
from lightgc2n.studies.running import DATA, PLAN, Pace, State, merge_asked, prepare, run_plans
from lightgc2n.studies.setup import Setup
from lightgc2n.training.record import BOARD, METRICS
from lightgc2n.training.runs import RUN

SOURCE = Path(__file__).parents[1]
OF_A_FINISHED_RUN = (RUN, RESULTS, RANKS, METRICS)
PACKED = "pack.sha256"  # which pack a folder of work was made from


def pack(names: list[str], setup: Setup, command: str, archive: Path, force: bool = False) -> State:
    """Writes plans, datasets and this package to one archive."""
    data = {source.name: f"../{DATA}/{source.name}" for source in setup.sources}
    with new_file(archive, force) as temporary, tempfile.TemporaryDirectory() as folder:
        state = prepare(names, setup, Path(folder), command, data)
        with tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
            for name in (name for name in names if name not in state.skipped):
                tar.add(Path(folder) / name, name)
            for source in setup.sources:
                tar.add(source.folder.resolve(), f"{DATA}/{source.name}")
            for path in sorted(SOURCE.rglob("*.py")):
                tar.add(path, Path(SOURCE.name) / path.relative_to(SOURCE))
    return state


def run_pack(archive: Path, results: Path, pace: Pace) -> State:
    """Carries the plans of a pack out beside `results`, then writes those; results that are there go on."""
    work = results.with_name(f"{results.name}.work")
    _open(archive, results, work)
    state = State()
    names = [name for name in STUDIES if (work / name / PLAN).is_file()]
    try:
        run_plans(names, work, state, pace)
    finally:
        _collect(work, names, results)
    return state


def unpack(results: Path, out: Path) -> list[str]:
    """Puts the run folders of results into OUT/NAME, and tells what they are of; a finished run there stays."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _extract(results, folder)
        names = [name for name in STUDIES if (folder / name / EXPERIMENT).is_file()]
        if not names:
            raise DataError(f"{results}: holds no results of an experiment. Make them with: experiment --run PACK.")
        for name in names:
            merge_asked(out / name, name, read_experiment(folder / name))
            for path in sorted((folder / name).iterdir()):
                if path.is_dir() and not (out / name / path.name / RESULTS).is_file():
                    _copy_run(path, out / name / path.name)
    return names


def _copy_run(run: Path, to: Path) -> None:
    """The results come last: a run that has them is finished."""
    shutil.copytree(run, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns(RESULTS))
    if (run / RESULTS).is_file():
        with new_file(to / RESULTS) as temporary:
            shutil.copy2(run / RESULTS, temporary)


def _open(archive: Path, results: Path, work: Path) -> None:
    """Lays out the folder of work: the pack, then the results of an earlier slice."""
    if not archive.is_file():
        raise DataError(
            f"{archive}: no such file. Make one with: lightgc2n experiment NAME --data DIR --pack {archive}"
        )
    checksum = sha256(archive)
    if (work / PACKED).is_file():
        if (work / PACKED).read_text(encoding="ascii") != checksum:
            raise OutputError(f"{work} was made from another pack. Choose another --out, or remove it.")
        return
    _extract(archive, work)
    if results.is_file():
        say(f"going on from {results}")
        _extract(results, work)
    (work / PACKED).write_text(checksum, encoding="ascii")


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file.") from None
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise DataError(f"{archive}: not an archive of ours, or damaged: {problem}.") from None


def _collect(work: Path, names: list[str], results: Path) -> None:
    with new_file(results, force=True) as temporary, tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
        for name in names:
            for path in _worth_keeping(work / name):
                tar.add(path, path.relative_to(work))


def _worth_keeping(folder: Path) -> Iterator[Path]:
    """All that a report or the next slice reads."""
    for path in sorted(folder.rglob("*")):
        run = folder / path.relative_to(folder).parts[0]
        finished = run.is_dir() and (run / RESULTS).is_file()
        hidden = BOARD in path.parts or path.name.startswith(".")
        if path.is_file() and not hidden and (not finished or path.name in OF_A_FINISHED_RUN):
            yield path
