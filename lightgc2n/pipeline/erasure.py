"""Keeps erased accounts out of everything that a pipeline has on disk: datasets, runs and bundles of its rounds."""

from collections.abc import Sequence
from pathlib import Path

from lightgc2n.data.dataset import load_dataset, read_ids
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.data.tombstones import forgotten_among, read_tombstones
from lightgc2n.pipeline.rounds import BUNDLE_FOLDER, DATA, KINDS, RUN, TRAIN, TRAINED, Round
from lightgc2n.recommending.bundle_files import ACCOUNTS, SERVER
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.store.event_store import EventStore
from lightgc2n.training.checkpoints import BEST
from lightgc2n.training.forget_run import forget_in_run
from lightgc2n.training.runs import load_run


class Erased:
    """Who must not be in any file: accounts erased from the store, and those of a tombstone file."""

    def __init__(self, store: EventStore, tombstones: Path | None) -> None:
        self._store, self._tombstones = store, tombstones

    def among(self, accounts: Sequence[str]) -> set[str]:
        """Return the accounts that were erased."""
        with self._store.database.transaction(write=False) as session:
            gone = self._store.erased_among(session, accounts)
        if self._tombstones is not None:
            gone |= forgotten_among(accounts, [read_tombstones(self._tombstones)])
        return gone

    def forget_in_data(self, folder: Path) -> int:
        """Remove erased accounts from a dataset and return how many there were."""
        gone = self.among(list(load_dataset(folder).accounts))
        return len(forget_in_dataset(folder, gone).accounts) if gone else 0

    def forget_in_round(self, one: Round) -> int:
        """Remove erased accounts from all that a round has on disk, and return how many there were.

        A dataset comes before its run, because the run is fitted again to the dataset.
        """
        erased: set[str] = set()
        for data, run in ((TRAIN, TRAINED), (DATA, RUN)):
            if one.has(data):
                erased |= self._in_data(one[data])
            if one.has(run):
                erased |= self._in_run(one[run], one[data])
        if one.has(BUNDLE_FOLDER):
            erased |= self._in_bundle(one[BUNDLE_FOLDER])
        return len(erased)

    def _in_data(self, folder: Path) -> set[str]:
        gone = self.among(list(load_dataset(folder).accounts))
        return set(forget_in_dataset(folder, gone).accounts) if gone else set()

    def _in_run(self, folder: Path, data: Path) -> set[str]:
        gone = self._of_file(folder / "accounts.txt")
        if gone and not _has_ended(folder):
            KINDS[TRAINED].remove(folder)  # training starts again, without them
            return gone
        return set(forget_in_run(folder, gone, data)) if gone else set()

    def _in_bundle(self, folder: Path) -> set[str]:
        gone = self._of_file(folder / SERVER / ACCOUNTS)
        return set(forget_in_bundle(folder, gone)[0]) if gone else set()

    def _of_file(self, path: Path) -> set[str]:
        return self.among(read_ids(path)) if path.is_file() else set()


def _has_ended(run: Path) -> bool:
    return (run / BEST).is_file() and bool(load_run(run)[2].ended_by)
