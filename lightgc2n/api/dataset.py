"""Datasets for training: from a data frame, a log file or a prepared dataset, or generated."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.api.calls import api_call, given_arguments
from lightgc2n.api.frames import Columns, Tabular, library_of
from lightgc2n.api.storage import OwnedFolder, copy_folder
from lightgc2n.data.dataset import DATASET, FORGOTTEN, MANIFEST, load_dataset, verify_dataset
from lightgc2n.errors import FORCE, DataError, OutputError

if TYPE_CHECKING:
    from lightgc2n.data import dataset as stored


class Dataset(Tabular):
    """The events of accounts, prepared for training.

    Example:
        >>> data = lg.Dataset.from_frame(df, account="user_id", item="item_id", time="timestamp")
        >>> data = lg.Dataset.from_path("log.csv")
        >>> data.save("shop")
        >>> data = lg.Dataset.load("shop")

    Attributes:
        folder: the folder of the prepared dataset; a temporary one until `save` is called.
        titles: titles of items by item id: those in the dataset, and those given; results then include them.
        library: the library of the frame that the data came from.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owned: OwnedFolder | None = None,
        library: str | None = None,
        titles: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.library, self._owned = folder, library, owned
        self.titles = self.arrays.titles | read_title_map(titles)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        account: str | None = None,
        item: str | None = None,
        time: str | None = None,
        domain: str | None = None,
        member: str | None = None,
        title: str | None = None,
        context: str | None = None,
        time_unit: str = "auto",
        time_format: str = "",
        where: str = "",
        ties: str = "file",
        seed: int = 0,
        drop_duplicates: bool = False,
        skip_bad: bool = False,
        name: str = "",
        items: Any = None,
        titles: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> "Dataset":
        """Prepare the events of a data frame: pandas, polars, an Arrow table, or any frame that narwhals supports.

        Columns that are not given are found by their usual names (`user_id`, `itemId`, `timestamp` ...). Ids of any
        type become text. Without a time column the order of the rows is the order of the events.

        Args:
            frame: one event per row.
            account: the column of account ids.
            item: the column of item ids.
            time: the column with times: datetimes (with or without a time zone), ISO texts, or numbers since 1970.
            domain: the column of the item's domain.
            member: the column of the member who acted: for evaluation only, never a model input.
            title: the column of item titles.
            context: a column to keep for each event, such as the device; no model reads it.
            time_unit: unit of numeric times: s, ms, us or ns; `auto` infers it from their size.
            time_format: how dates are written if not as ISO dates, such as `%d.%m.%Y %H:%M`.
            where: keep only rows that pass one comparison, such as `rating >= 4` or `event = watch`.
            ties: order of an account's events with equal times: as in the rows (`file`), or `random`.
            seed: seed of the random order of ties.
            drop_duplicates: drop rows that repeat the account, item and time of another.
            skip_bad: skip rows with missing or invalid values, which are an error otherwise.
            name: name of the dataset.
            items: a table with one item per row (id, title, categories, year, image): a path or a data frame. It is
                kept in the dataset.
            titles: titles of items by item id, in place of those in the dataset.
            progress: show progress.

        Raises:
            DataError: a column or a value is missing; the message names column and row.
        """
        with api_call(progress):
            from lightgc2n.data.importing import ImportOptions, import_frame

            columns = given_arguments(account=account, item=item, time=time, domain=domain, member=member, title=title,
                             context=context)  # fmt: skip
            options = ImportOptions(name=name, columns=columns, time_unit=time_unit, time_format=time_format,
                                    where=where, ties=ties, seed=seed, drop_duplicates=drop_duplicates,
                                    skip_bad=skip_bad)  # fmt: skip
            owned = OwnedFolder(DATASET, "data")
            import_frame(frame, owned.path, options, items=_table(items))
            return cls(owned.path, owned=owned, library=library_of(frame), titles=titles)

    @classmethod
    def from_path(
        cls,
        path: str | Path,
        *,
        format: str = "auto",
        account: str | None = None,
        item: str | None = None,
        time: str | None = None,
        domain: str | None = None,
        member: str | None = None,
        title: str | None = None,
        context: str | None = None,
        header: Sequence[str] = (),
        delimiter: str = "",
        encoding: str = "",
        time_unit: str = "auto",
        time_format: str = "",
        where: str = "",
        ties: str = "file",
        seed: int = 0,
        drop_duplicates: bool = False,
        skip_bad: bool = False,
        name: str = "",
        items: Any = None,
        titles: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> "Dataset":
        """Prepare a log file, or a folder that holds one: CSV, TSV, JSON lines, Parquet and more (docs/formats.md).

        Args:
            path: the log, or a prepared dataset, which is loaded.
            format: format of the file; `auto` infers it from name and content.
            header: column names of a table without a header.
            delimiter: field separator of a CSV file; by default detected from its first lines.
            encoding: encoding of a text table, such as `latin-1`; by default UTF-8.

        The other arguments are those of `from_frame`.
        """
        path = Path(path)
        with api_call(progress):
            if (path / MANIFEST).is_file():
                return cls(path, titles=titles)
            from lightgc2n.data.importing import ImportOptions, import_log

            columns = given_arguments(account=account, item=item, time=time, domain=domain, member=member, title=title,
                             context=context)  # fmt: skip
            options = ImportOptions(format=format, name=name, columns=columns, header=tuple(header),
                                    delimiter=delimiter, encoding=encoding, time_unit=time_unit,
                                    time_format=time_format, where=where, ties=ties, seed=seed,
                                    drop_duplicates=drop_duplicates, skip_bad=skip_bad)  # fmt: skip
            owned = OwnedFolder(DATASET, "data")
            import_log(path, owned.path, options, items=_table(items))
            return cls(owned.path, owned=owned, titles=titles)

    @classmethod
    def load(cls, folder: str | Path, *, titles: Mapping[str, str] | None = None) -> "Dataset":
        """Load a prepared dataset: one that `save` wrote, or `lightgc2n import`."""
        with api_call():
            return cls(Path(folder), titles=titles)

    def save(self, out: str | Path, *, force: bool = False) -> "Dataset":
        """Write the prepared dataset to the folder `out`, and use it from there.

        Args:
            force: replace an existing dataset.
        """
        out = Path(out)

        def check(copied: Path) -> None:
            if (out / FORGOTTEN).exists():
                raise OutputError(
                    f"{out} has a list of forgotten accounts, so {FORCE} does not replace it. Choose another name."
                )
            try:
                verify_dataset(copied)
            except DataError:
                raise OutputError(f"{self.folder} was changed while it was saved. Try again.") from None

        with api_call():
            copy_folder(self.folder, out, DATASET, force, check)
        self.folder = out
        return self

    @cached_property
    def arrays(self) -> "stored.Dataset":
        """The events as arrays: `lightgc2n.data.dataset.Dataset`."""
        return load_dataset(self.folder)

    @property
    def is_temporary(self) -> bool:
        """Whether the folder is temporary and removed with this object."""
        return self._owned is not None and self.folder == self._owned.path

    @property
    def name(self) -> str:
        return self.arrays.name

    @property
    def checksum(self) -> str:
        """The checksum of the data; it does not depend on the format that the data was read from."""
        return self.arrays.checksum

    @property
    def accounts(self) -> Sequence[str]:
        """The ids of the accounts."""
        return self.arrays.accounts

    @property
    def items(self) -> Sequence[str]:
        """The ids of the items."""
        return self.arrays.items

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the import: which columns were used, how times were parsed, which rows were skipped."""
        return tuple(self.arrays.manifest["notes"])

    def __len__(self) -> int:
        """The number of events."""
        return len(self.arrays.events)

    def _columns(self) -> Columns:
        import numpy as np

        from lightgc2n.data.members import load_members

        arrays = self.arrays
        owners = np.repeat(arrays.sequence_accounts, arrays.lengths)
        columns: dict[str, Any] = {"account": np.asarray(arrays.accounts, dtype=object)[owners].tolist()}
        columns["item"] = np.asarray(arrays.items, dtype=object)[arrays.events].tolist()
        if arrays.times is not None:
            columns["time"] = np.asarray(arrays.times).astype("datetime64[us]")
        if len(arrays.domains) > 1:
            names = np.array([domain.name for domain in arrays.domains], dtype=object)
            columns["domain"] = names[arrays.event_domains].tolist()
        if (members := load_members(self.folder)) is not None:
            columns["member"] = [members.names[one] if one >= 0 else None for one in members.of_event.tolist()]
        if (contexts := arrays.contexts) is not None:
            columns["context"] = [contexts.names[one] if one >= 0 else None for one in contexts.of_event.tolist()]
        return columns

    def _headline(self) -> str:
        arrays = self.arrays
        times = arrays.times
        when = (
            f", {_day(times.min())} to {_day(times.max())}" if times is not None and len(times) else ", without times"
        )
        domains = f", {len(arrays.domains)} domains" if len(arrays.domains) > 1 else ""
        return (
            f"Dataset {self.name!r}: {len(arrays.accounts):,} accounts, {len(arrays.items):,} items, "
            f"{len(arrays.events):,} events{domains}{when}"
        )

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _repr_html_(self) -> str:
        from html import escape

        return "".join(f"<p>{escape(line)}</p>" for line in (self._headline(), *self.notes))


def generate(
    accounts: int = 1000,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Dataset:
    """Generate a log of households with known members, and titles of items.

    Args:
        accounts: number of households, at least 50.
        seed: seed of all random numbers.
        settings: settings of the generator, such as `{"weeks": 8}`; docs/households.md lists them.
        progress: show progress.

    Example:
        >>> data = lg.generate(accounts=300, seed=1)
        >>> data.to_frame().head()
    """
    with api_call(progress):
        from lightgc2n.config import read_settings
        from lightgc2n.synthetic.households import HouseholdConfig
        from lightgc2n.synthetic.households import generate as write_households

        config = read_settings(HouseholdConfig, {"accounts": accounts, **(settings or {})}, where="settings")
        owned = OwnedFolder(DATASET, "households")
        write_households(config, seed, owned.path, titles=True)
        return Dataset(owned.path, owned=owned)


def as_dataset(data: Dataset | str | Path) -> Dataset:
    """Return the dataset, or load that of a path."""
    return data if isinstance(data, Dataset) else Dataset.from_path(data)


def read_title_map(titles: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return titles by item id, each as one line of text."""
    return {str(item): " ".join(str(title).split()) for item, title in (titles or {}).items()}


def _table(items: Any) -> Any:
    return Path(items) if isinstance(items, str) else items


def _day(microseconds: Any) -> str:
    import numpy as np

    return str(np.datetime64(int(microseconds), "us"))[:10]
