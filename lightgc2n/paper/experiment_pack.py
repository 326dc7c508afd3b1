"""Pack an experiment into one archive for a machine that has torch and little else, and pack its results.

A pack holds data/DATASET, NAME/plan.toml and NAME/experiment.json of each experiment, and the source of this package.
Results hold the run folders: the files that a report reads of a finished run, all files of an unfinished one.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lightgc2n.data.dataset import MANIFEST, load_dataset, verify_dataset
from lightgc2n.errors import DataError, OutputError
from lightgc2n.experiments.plan_runner import LOGS
from lightgc2n.experiments.save_results import RANKS, RESULTS
from lightgc2n.files.atomic_writes import claim_folder, new_file, sha256
from lightgc2n.paper.catalogue import EXPERIMENTS
from lightgc2n.paper.experiment_plan import Setup
from lightgc2n.paper.experiment_results import EXPERIMENT, read_experiment
from lightgc2n.paper.experiment_runner import (
    DATA,
    PLAN,
    Pace,
    State,
    claim_experiments,
    merge_requests,
    prepare,
    run_plans,
)
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import BOARD, METRICS, epochs_of
from lightgc2n.training.runs import RUN, RUN_FOLDER, read_run, refuse_foreign_run

SOURCE = Path(__file__).parents[1]
OF_A_FINISHED_RUN = (RUN, RESULTS, RANKS, METRICS)
MOST_MEMBERS = 200_000  # of an archive; a pack of all experiments has a few thousand
PACKED = "pack.sha256"  # the checksum of the pack that a work folder was made from


def pack(names: list[str], setup: Setup, command: str, archive: Path, force: bool = False) -> State:
    """Write plans, datasets and this package to one archive."""
    data = {source.name: f"../{DATA}/{source.name}" for source in setup.sources}
    with new_file(archive, force) as temporary, tempfile.TemporaryDirectory() as folder:
        state = prepare(names, setup, Path(folder), command, data)
        with tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
            for name in (name for name in names if name not in state.skipped):
                tar.add(Path(folder) / name, name)
            for source in setup.sources:
                for path in _verified_files(source.folder, Path(folder) / DATA / source.name):
                    tar.add(path, path.relative_to(folder))
            for path in sorted(SOURCE.rglob("*.py")):
                tar.add(path, Path(SOURCE.name) / path.relative_to(SOURCE))
    return state


def _verified_files(source: Path, copy: Path) -> list[Path]:
    """Copy a dataset's manifest and the files that it lists, and no other file; return the verified copies."""
    copy.mkdir(parents=True)
    for name in (MANIFEST, *load_dataset(source).manifest["files"]):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, copy / name)
    verify_dataset(copy)  # forget may have replaced the dataset meanwhile
    return [path for path in sorted(copy.rglob("*")) if path.is_file()]


def run_pack(archive: Path, results: Path, pace: Pace) -> State:
    """Run the plans of a pack in a folder beside `results`, then write `results`; existing results resume."""
    work = results.with_name(f"{results.name}.work")
    _refuse_other_archive(archive, results)
    _open(archive, results, work)
    state = State()
    names = [name for name in EXPERIMENTS if (work / name / PLAN).is_file()]
    try:
        run_plans(names, work, state, pace)
    finally:
        _collect(work, names, results)
    return state


def _refuse_other_archive(archive: Path, results: Path) -> None:
    """Raise an error when the results would replace the pack, or a file that holds no results of experiments."""
    if not results.exists():
        return
    if archive.exists() and results.samefile(archive):
        raise OutputError(f"{results} is the pack itself. Choose another --out.")
    try:
        with tarfile.open(results, "r:gz") as tar:
            ours = any(name.endswith(f"/{EXPERIMENT}") and name.split("/")[0] in EXPERIMENTS for name in tar.getnames())
    except (tarfile.TarError, EOFError, OSError):
        ours = False
    if not ours:
        raise OutputError(f"{results} exists already and holds no results of experiments. Choose another --out.")


def unpack(results: Path, out: Path) -> list[str]:
    """Copy the run folders of results to OUT/NAME and return the experiments; finished runs there are kept."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _extract(results, folder)
        names = [name for name in EXPERIMENTS if (folder / name / EXPERIMENT).is_file()]
        if not names:
            raise DataError(f"{results}: holds no results of an experiment. Make them with: experiment --run PACK.")
        claim_experiments(out, names)
        for name in names:
            merge_requests(out / name, name, read_experiment(folder / name))
            _merge_runs(folder / name, out / name)
    return names


def _merge_runs(experiment: Path, to: Path) -> None:
    """Copy the runs and logs of an experiment that go beyond those at `to`."""
    for path in sorted(experiment.iterdir()):
        if path.is_dir() and _is_newer(path, to / path.name):
            _copy_run(path, to / path.name)


def _is_newer(run: Path, to: Path) -> bool:
    """Return whether a run of the archive goes beyond the one at `to`; one on other data never replaces it."""
    if not (to / RUN).is_file() or not (run / RUN).is_file():
        return not (to / RESULTS).is_file()
    if (to / RESULTS).is_file() or _data_of(run) != _data_of(to):
        return False
    return (run / RESULTS).is_file() or epochs_of(run) > epochs_of(to)


def _data_of(run: Path) -> str:
    """Return the checksum of the data that a run was trained on."""
    return str(read_run(run)["data"]["checksum"])


def _copy_run(run: Path, to: Path) -> None:
    """Copy a run or the logs of runs, its results last, because a run with results is finished.

    Only a file of a run, or a log, replaces one of the same name.
    """
    is_run = (run / RUN).is_file()
    if is_run:
        refuse_foreign_run(to)
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        own = RUN_FOLDER.owns(name) if is_run else run.name == LOGS
        if path.is_file() and name != RESULTS and (own or not (to / name).exists()):
            with new_file(to / name, force=own) as temporary:
                shutil.copyfile(path, temporary)
    if (run / RESULTS).is_file():
        with new_file(to / RESULTS) as temporary:
            shutil.copy2(run / RESULTS, temporary)


def _open(archive: Path, results: Path, work: Path) -> None:
    """Extract the pack into the work folder, then add the runs of `results` that go further than those there."""
    if not archive.is_file():
        raise DataError(
            f"{archive}: no such file. Make one with: lightgc2n experiment NAME --data DIR --pack {archive}"
        )
    checksum = sha256(archive)
    if (work / PACKED).is_file():
        if (work / PACKED).read_text(encoding="ascii") != checksum:
            raise OutputError(f"{work} was made from another pack. Choose another --out, or remove it.")
    else:
        claim_folder(work, "a pack")
        _extract(archive, work)
        (work / PACKED).write_text(checksum, encoding="ascii")
    if results.is_file():
        say(f"resuming from {results}")
        _resume_from(results, work)


def _resume_from(results: Path, work: Path) -> None:
    """Add the runs of `results`, which will be replaced; raise an error if one of them would be lost."""
    with tempfile.TemporaryDirectory() as temporary:
        _extract(results, Path(temporary))
        for run in sorted(path.parent for path in Path(temporary).glob(f"*/*/{RUN}")):
            place = work / run.relative_to(temporary)
            other_data = (place / RUN).is_file() and _data_of(place) != _data_of(run)
            if other_data or not (place.parent / PLAN).is_file():
                raise OutputError(
                    f"{results} holds {run.relative_to(temporary)}, a run of another pack or on other data, "
                    f"so it is not replaced. Choose another --out."
                )
        for name in EXPERIMENTS:
            if (Path(temporary) / name).is_dir():
                _merge_runs(Path(temporary) / name, work / name)


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = list(_plain_members(archive, tar, shutil.disk_usage(folder).free))
            tar.extractall(folder, members, filter="data")
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file.") from None
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise DataError(f"{archive}: not an archive of this program, or damaged: {problem}.") from None


def _plain_members(archive: Path, tar: tarfile.TarFile, free: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members, after checking that each is a file or a folder below the place of extraction.

    `filter="data"` alone does not suffice: older Pythons let links with long names point outside.
    """
    size = 0
    for number, member in enumerate(tar):
        parts = member.name.split("/")
        size += member.size
        if not (member.isreg() or member.isdir()) or ".." in parts or member.name.startswith("/"):
            raise DataError(
                f"{archive}: holds {member.name[:100]!r}, which is a link, a special file or a path outside, "
                f"so nothing is extracted. Expected a pack or results of `experiment`."
            )
        if size > free or number >= MOST_MEMBERS:
            raise DataError(
                f"{archive}: holds more than {MOST_MEMBERS:,} files, or more bytes than the {free:,} that are free, "
                f"so nothing is extracted."
            )
        yield member


def _collect(work: Path, names: list[str], results: Path) -> None:
    with new_file(results, force=True) as temporary, tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
        for name in names:
            for path in _worth_keeping(work / name):
                tar.add(path, path.relative_to(work))


def _worth_keeping(folder: Path) -> Iterator[Path]:
    """Yield the files that a report or the next call reads."""
    for path in sorted(folder.rglob("*")):
        run = folder / path.relative_to(folder).parts[0]
        finished = run.is_dir() and (run / RESULTS).is_file()
        hidden = BOARD in path.parts or path.name.startswith(".")
        if path.is_file() and not hidden and (not finished or path.name in OF_A_FINISHED_RUN):
            yield path
