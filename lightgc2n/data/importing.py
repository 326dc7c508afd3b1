"""Import a log file into a prepared dataset."""

import signal
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from lightgc2n.config import unknown_name
from lightgc2n.data.catalogue import Catalogue, join_catalogues
from lightgc2n.data.contexts import Contexts
from lightgc2n.data.dataset import DATASET, FORGOTTEN, REJECTED, Domain, write_dataset
from lightgc2n.data.forget_dataset import drop_accounts
from lightgc2n.data.formats.blocks import ENCODING, check_encoding
from lightgc2n.data.formats.columns import Coder, Codes, check_unit, listed
from lightgc2n.data.formats.event_tables import TableReader
from lightgc2n.data.formats.file_formats import FORMAT, LINES, TABLE_FORMATS, Separated, Source, detect
from lightgc2n.data.formats.item_tables import clean_text, read_items
from lightgc2n.data.formats.rows import FILTER, LONGEST_ID, WHERE, Tally, read_filter, shown
from lightgc2n.data.formats.sequences import read_sequences, read_two_domains
from lightgc2n.data.formats.typed_tables import FRAME, FrameReader, ParquetReader, TypedReader
from lightgc2n.data.tombstones import forgotten_among, keep_tombstones, read_tombstones
from lightgc2n.errors import DataError, SettingError, option
from lightgc2n.files.atomic_writes import new_folder, refuse_existing, refuse_own_input, sha256
from lightgc2n.progress import Step, say, step

# Once polars is loaded, a blocking read ignores Ctrl-C; a read that waits for a pipe would never end.
if hasattr(signal, "siginterrupt"):
    signal.siginterrupt(signal.SIGINT, True)

TIES = ("file", "random")
MOST_DOMAINS = 255  # the number of a domain fits into one byte


@dataclass(frozen=True)
class ImportOptions:
    """How to read a source; options left out are detected."""

    format: str = "auto"
    name: str = ""
    columns: dict[str, str] = field(default_factory=dict)  # role -> column name
    header: Sequence[str] = ()  # column names of a table without a header
    delimiter: str = ""  # of a CSV file; empty: detected from the header
    time_unit: str = "auto"
    time_format: str = ""  # such as %d.%m.%Y %H:%M; empty: numbers or ISO dates
    encoding: str = ""  # empty: UTF-8
    where: str = ""  # one comparison that keeps rows, such as rating >= 4
    ties: str = "file"  # order of an account's events with equal times: as in the file, or random
    seed: int = 0  # for random ties
    drop_duplicates: bool = False
    skip_bad: bool = False


def import_log(
    path: Path,
    out: Path,
    options: ImportOptions,
    force: bool = False,
    tombstones: Sequence[Path] = (),
    items: Any = None,
) -> dict[str, Any]:
    """Read the log at `path` into a prepared dataset at `out` and return its manifest.

    Args:
        items: a table with titles, categories, years and images of items: a path or a data frame.
        tombstones: files written by `forget`; their accounts are left out, and those forgotten in the dataset at `out`.
    """
    refuse_existing(out, force)
    for file in tombstones:
        read_tombstones(file)  # report a wrong file before the log is read
    name = path.resolve().name.lstrip(".").split(".")[0]
    return _import(detect_source(path, options), name, out, options, force, tombstones, items)


def detect_source(path: Path, options: ImportOptions) -> Source:
    """Return the source at `path` as the options describe it."""
    check_encoding(options.encoding)
    read_filter(options.where)
    return detect(path, options.format, options.encoding, table=bool(options.columns or options.header))


def import_frame(
    frame: Any, out: Path, options: ImportOptions, force: bool = False, items: Any = None
) -> dict[str, Any]:
    """Read a data frame with one event a row into a prepared dataset at `out` and return its manifest.

    The dataset has the checksum of the same rows imported from a file.

    Args:
        frame: of pandas, of polars, or an Arrow table.
        items: a table with titles, categories, years and images of items: a path or a data frame.
    """
    refuse_existing(out, force)
    return _import(Source("frame", {"all": FRAME}, frame=frame), FRAME.name, out, options, force, items=items)


def _import(
    source: Source,
    default_name: str,
    out: Path,
    options: ImportOptions,
    force: bool,
    tombstones: Sequence[Path] = (),
    items: Any = None,
) -> dict[str, Any]:
    check_options(options, source.format)
    described = read_items(items) if items is not None else {}  # report a wrong file before the log is read
    with new_folder(out, force, kind=DATASET) as folder:
        refuse_own_input(out, *source.all_files(), *([items] if isinstance(items, Path) else []))
        tally = Tally(folder if options.skip_bad else None)
        content = read_source(source, options, tally)
        tally.check(", ".join(str(file) for file in source.files.values()))
        files = [*tombstones, *([out / FORGOTTEN] if (out / FORGOTTEN).exists() else [])]
        forgotten = [read_tombstones(file) for file in files]  # read again: `forget` may have run in the meantime
        content["catalogue"] = join_catalogues(described, content.pop("titles", {}))
        notes = content.pop("notes") + source.notes + tally.notes()
        forgotten_accounts = forgotten_among(content["accounts"], forgotten)
        notes += _leave_out_forgotten(content, forgotten_accounts, folder)
        notes += _note_on_items(described, content["items"], items)
        if not (folder / REJECTED).exists():
            notes = [note.replace(f" ({REJECTED} lists them)", "") for note in notes]
        for note in notes:
            say(note)
        name = _text(options.name or default_name)
        # A pipe cannot be read again.
        sources = [(file.name, sha256(file) if file.is_file() else None) for file in source.all_files()]
        manifest = write_dataset(
            folder,
            name=name,
            source=[{"file": _text(file), "sha256": checksum} for file, checksum in sources],
            options=asdict(options) | {"format": source.format, "name": name},
            counts=tally.counts(),
            notes=notes,
            **content,
        )
        keep_tombstones(out, folder, forgotten_accounts)
    return manifest


def _leave_out_forgotten(content: dict[str, Any], forgotten: Collection[str], folder: Path) -> list[str]:
    """Remove forgotten accounts from `content` and return a note about it."""
    if not forgotten:
        return []
    if len(forgotten) == len(content["accounts"]):
        raise DataError("all accounts of the log were forgotten, so there is nothing to import.")
    drop_accounts(content, forgotten)
    (folder / REJECTED).unlink(missing_ok=True)  # it may name a forgotten account
    return [f"{len(forgotten):,} accounts that were forgotten are left out"]


def _note_on_items(described: Catalogue, items: Sequence[str], source: Any) -> list[str]:
    """Return a note on how many items the item table describes. Raise an error if it has none of the log's items."""
    if source is None:
        return []
    name = _text(source.name) if isinstance(source, Path) else "the table of items"
    held = sum(item in described for item in set(items))
    if not held:
        raise DataError(
            f"{name}: none of its {len(described):,} items is in the log. Found for example {next(iter(described))!r} "
            f"here and {items[0]!r} in the log. Are these the same ids?"
        )
    return [
        f"{name} describes {held:,} of {len(set(items)):,} items of the log, "
        f"and {len(described) - held:,} items without events"
    ]


def check_options(options: ImportOptions, form: str) -> None:
    """Raise an error if an option has an unknown value or does not fit the format."""
    check_unit(options.time_unit, options.time_format)
    if options.ties not in TIES:
        raise SettingError(f"{option('--ties', 'ties')}: {unknown_name('order', options.ties, TIES)}")
    if options.delimiter and (form != "csv" or len(options.delimiter) != 1 or options.delimiter in '"\r\n\0'):
        raise SettingError(
            f"{option('--delimiter', 'delimiter')}: expected one character for a CSV file, no quote and no line break, "
            f"found {options.delimiter!r} for {form}."
        )
    timed = options.time_unit != "auto" or options.time_format
    if form in LINES and (options.columns or options.header or timed or options.where):
        raise SettingError(f"{form} have neither columns nor times. Leave out these options, or give another {FORMAT}.")
    if form not in TABLE_FORMATS and options.encoding:
        raise SettingError(f"{ENCODING}: only for text tables ({', '.join(TABLE_FORMATS)}), found {form}.")


def _text(name: str) -> str:
    """Return a file name as text; bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode("utf-8")


def read_source(source: Source, options: ImportOptions, tally: Tally) -> dict[str, Any]:
    """Return the content of the dataset, and the notes about it."""
    try:
        if "mixed" in source.files:
            return read_two_domains(source, tally)
        if source.format in LINES:
            return read_sequences(source, tally)
        with step(f"reading {source.format}, events") as progress:
            return _read_events(source, options, tally, progress)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        files = ", ".join(str(file) for file in source.files.values())
        raise DataError(
            f"{files}: cannot be read as {source.format}: {shown(str(problem).partition(chr(10))[0], 200)}."
        ) from None


def _read_events(source: Source, options: ImportOptions, tally: Tally, progress: Step) -> dict[str, Any]:
    """Group the events into one log per account, ordered by time if there is one, else as in the file."""
    path = source.files["all"]
    reader = table_reader(source, options, tally)
    coders = {role: Coder() for role in ("account", "item", "domain", "member", "context")}
    chunks: dict[str, list[npt.NDArray[Any]]] = {}
    titles: dict[str, str] = {}
    for frame in reader.frames():
        if "title" in frame.columns:
            _collect_titles(frame.select("item", "title"), titles)
            frame = frame.drop("title")
        for role in frame.columns:
            codes = coders[role].codes(frame[role]) if role in coders else frame[role].to_numpy()
            chunks.setdefault(role, []).append(codes)
        progress.advance(len(frame))
    columns = {role: np.concatenate(chunks.pop(role)) for role in list(chunks)}
    tally.read += len(columns.get("account", ()))
    if not columns or not len(columns["account"]):
        content = f"{tally.rejected:,} bad rows only" if tally.rejected else "none"
        passing = f" that pass {WHERE} {options.where!r}" if tally.filtered else ""
        raise DataError(f"{path}: expected events{passing}, found {content}{tally.found_instead()}.")
    if len(names := coders["domain"].ids()) > MOST_DOMAINS:
        raise DataError(
            f"{path}: column {reader.columns['domain']}: expected at most {MOST_DOMAINS} domains, "
            f"found {len(names):,}. If the column is not a domain, rename it in the log."
        )
    notes = column_notes(reader, source)
    if tally.filtered:
        notes.append(f"{tally.filtered:,} of {tally.rows:,} rows left out: they do not pass {options.where!r}")
    if reader.times:
        first, last = (
            str(np.datetime64(int(time), "us"))[:16] for time in (columns["time"].min(), columns["time"].max())
        )
        notes.append(f"{reader.times.describe()}: {first} to {last}")
    logs = _logs_from_events(columns, coders, options, notes)
    if "context" in columns:
        logs["contexts"] = Contexts(coders["context"].ids(), columns["context"], reader.columns["context"])
    return logs | {"notes": notes, "titles": titles}


def _collect_titles(rows: pl.DataFrame, titles: dict[str, str]) -> None:
    """Add the first title of each item that has none yet."""
    named = rows.filter(pl.col("title").str.strip_chars() != "").unique("item", keep="first", maintain_order=True)
    for item, title in named.iter_rows():
        if item not in titles:
            titles[item] = clean_text(title)[:LONGEST_ID]


def column_notes(reader: TypedReader | TableReader, source: Source) -> list[str]:
    """Return which column was taken for what, and which columns are not used."""
    taken = {role: name for role, name in reader.columns.items() if role != FILTER}
    notes = ["columns: " + ", ".join(f"{role} from {name!r}" for role, name in taken.items())]
    if left := [name for name in reader.names if name not in reader.columns.values()]:
        notes.append(f"columns not used: {listed(left)}")
    if not reader.times:
        rows = "rows" if source.frame is not None else "file"
        advice = "; name the time column if there is one" if left else ""
        notes.append(f"no time column: events keep the order of the {rows}{advice}")
    return notes + reader.hints


def table_reader(source: Source, options: ImportOptions, tally: Tally) -> TypedReader | TableReader:
    """Return the reader of an event table."""
    path, row_filter, times = source.files["all"], read_filter(options.where), options.time_format or options.time_unit
    if source.frame is not None:
        return FrameReader(path, tally, options.columns, times, row_filter, frame=source.frame)
    if source.format == "parquet":
        return ParquetReader(path, tally, options.columns, times, row_filter)
    form = TABLE_FORMATS[source.format]
    if source.format == "csv":
        form = Separated(options.delimiter or source.delimiter, quoted=True)
    return TableReader(path, form, tally, options.columns, times, options.header, source.encoding, row_filter)


def _logs_from_events(
    columns: dict[str, npt.NDArray[Any]], coders: dict[str, Coder], options: ImportOptions, notes: list[str]
) -> dict[str, Any]:
    order = _order(columns["account"], columns.get("time"), options)
    if order is not None:
        _take(columns, order)
    if "time" in columns:
        repeated = _duplicates(columns)
        if repeated.any() and options.drop_duplicates:
            _take(columns, ~repeated)
            notes.append(f"{int(repeated.sum()):,} rows dropped that repeat the account, item and time of another")
        elif repeated.any():
            count = int(repeated.sum())
            notes.append(f"{count:,} rows repeat the account, item and time of another and are kept")
        notes += _note_on_ties(columns, options)
    items, domains, events = _number_by_domain(columns.pop("item"), columns.pop("domain", None), coders)
    accounts = coders["account"].ids()
    counts = np.bincount(columns["account"], minlength=len(accounts))
    return {
        "kind": "logs",
        "accounts": accounts,
        "items": items,
        "domains": domains,
        "offsets": np.concatenate([[0], np.cumsum(counts)]),
        "sequence_accounts": np.arange(len(accounts)),
        "events": events,
        "times": columns.get("time"),
        "members": columns.get("member"),
        "member_names": coders["member"].ids(),
    }


def _take(columns: dict[str, npt.NDArray[Any]], rows: npt.NDArray[Any]) -> None:
    for role in columns:
        columns[role] = columns[role][rows]


def _duplicates(columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Return which rows repeat an earlier account, item and time; rows are sorted by account and time."""
    account, time = columns["account"], columns["time"]
    same = (account[1:] == account[:-1]) & (time[1:] == time[:-1])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    repeated = np.zeros(len(account), dtype=bool)
    if len(tied):
        moment = np.cumsum(np.append(True, ~same))[tied]  # one number for each pair of account and time
        what = [moment, columns["item"][tied], *([columns["domain"][tied]] if "domain" in columns else [])]
        order = np.lexsort(what[::-1])
        again = np.all([np.diff(part[order]) == 0 for part in what], axis=0)
        repeated[tied[order[1:][again]]] = True
    return repeated


def _note_on_ties(columns: dict[str, npt.NDArray[Any]], options: ImportOptions) -> list[str]:
    """Return a note on how many accounts end in events of equal time, whose order is the file's or random."""
    account, time = columns["account"], columns["time"]
    last = np.flatnonzero(np.append(np.diff(account) != 0, True))
    before = last[last > 0]
    tied = int(((account[before] == account[before - 1]) & (time[before] == time[before - 1])).sum())
    if not tied:
        return []
    order = "the order of the file" if options.ties == "file" else f"a random order (seed {options.seed})"
    return [f"in {tied:,} of {len(last):,} accounts the last two events have equal times; they are in {order}"]


def _order(account: Codes, time: npt.NDArray[np.int64] | None, options: ImportOptions) -> npt.NDArray[Any] | None:
    """Return the order by account, then time, then file position or chance; None if the rows are sorted already."""
    if time is not None and options.ties == "random":
        return np.lexsort((np.random.default_rng(options.seed).permutation(len(time)), time, account))
    step_account = np.diff(account)
    in_order = step_account >= 0
    if time is not None:
        in_order &= (step_account > 0) | (np.diff(time) >= 0)
    if in_order.all():
        return None
    return np.lexsort((account,) if time is None else (time, account))


def _number_by_domain(
    items: Codes, domains: Codes | None, coders: dict[str, Coder]
) -> tuple[list[str], list[Domain], Codes]:
    """Renumber items so that each domain is one range. The same id in two domains is two items."""
    ids = coders["item"].ids()
    if domains is None:
        return ids, [Domain("all", 0, len(ids))], items
    names = coders["domain"].ids()
    rank = np.argsort(np.argsort(names))  # domains are sorted by name
    keys = rank[domains].astype(np.int64) * len(ids) + items
    present = np.zeros(len(names) * len(ids), dtype=bool)
    present[keys] = True
    number = np.cumsum(present, dtype=np.int64) - 1
    ends = np.append(0, number[len(ids) - 1 :: len(ids)] + 1).tolist()
    ranges = [Domain(name, ends[place], ends[place + 1]) for place, name in enumerate(sorted(names))]
    return [ids[key % len(ids)] for key in np.flatnonzero(present)], ranges, number[keys].astype(np.int32)
