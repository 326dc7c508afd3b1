"""Detect the format of a source and the files that belong to it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n.config import unknown_name
from lightgc2n.data.formats.blocks import plain_suffix, read_blocks
from lightgc2n.data.formats.columns import find_columns
from lightgc2n.data.formats.rows import shown
from lightgc2n.errors import DataError, option

TABLES = ("csv", "tsv", "jsonl", "parquet", "movietweetings", "recbole")
LINES = ("logs", "windows", "sessions")
FORMATS = ("auto", *TABLES, *LINES)
SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
SUFFIXES |= {".pq": "parquet", ".inter": "recbole", ".tsv": "", ".txt": "", ".dat": ""}  # "": the first line tells
NOT_A_LOG = ("movies.dat", "item_dict.txt", "user_dict.txt")
SNIFFED_BYTES = 65_536
DELIMITERS = (",", ";", "|", "\t")
FORMAT = option("--format", "format=")


@dataclass(frozen=True)
class Source:
    """What to read; `files` maps the role of a file to its path."""

    format: str
    files: dict[str, Path]
    item_dictionary: Path | None = None
    account_dictionary: Path | None = None
    delimiter: str = ","  # between the fields of a CSV file
    notes: list[str] = field(default_factory=list)
    frame: Any = None  # a data frame in place of files

    def all_files(self) -> list[Path]:
        if self.frame is not None:
            return []
        dictionaries = (self.item_dictionary, self.account_dictionary)
        return [*self.files.values(), *(path for path in dictionaries if path is not None)]


def detect(path: Path, wanted: str = "auto") -> Source:
    """Return the source at `path`, a file or a folder, in the `wanted` format or the detected one."""
    if wanted not in FORMATS:
        raise DataError(f"{FORMAT}: {unknown_name('format', wanted, FORMATS)}")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Give a log file, or a folder that contains one.")
    if path.is_dir():
        source = _detect_folder(path, wanted)
        if wanted not in ("auto", source.format):
            raise DataError(
                f"{path}: {FORMAT} is {wanted}, but the folder holds {source.format}. Give the path of the file."
            )
        return source
    if not path.is_file() and wanted in ("auto", "parquet"):
        raise DataError(f"{path}: a pipe can be read only once. Give its {FORMAT}; parquet cannot be read from a pipe.")
    kind = wanted if wanted != "auto" else _detect_file(path)
    return Source(kind, {"all": path}, delimiter=_delimiter(path) if kind == "csv" and path.is_file() else ",")


def _delimiter(path: Path) -> str:
    """Return the column separator of the header: a comma, unless only another character yields known column names."""
    line = _first_line(path)
    return next((sign for sign in DELIMITERS if _is_header([part.strip('"') for part in line.split(sign)])), ",")


def _detect_folder(folder: Path, wanted: str) -> Source:
    names = {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")}
    domains = {file.stem: file for name, file in names.items() if file.suffix == ".tsv"}
    if len(domains) > 2 and "mixed" in domains:
        return Source("logs", domains)
    if "test_data.txt" in names:
        parts = {part: names[f"{part}_data.txt"] for part in ("train", "test") if f"{part}_data.txt" in names}
        files = parts if len(parts) == 2 else {"all": names["test_data.txt"]}
        return Source("windows", files, names.get("item_dict.txt"), names.get("user_dict.txt"))
    if "testdata_sess.txt" in names:
        training = names.get("traindata_sess.txt", names.get("validdata_sess.txt"))
        parts = {"train": training} if training else {}
        notes = ["the training part was read from validdata_sess.txt"] if "traindata_sess.txt" not in names else []
        return Source("sessions", parts | {"test": names["testdata_sess.txt"]}, notes=notes if training else [])
    logs = [file for name, file in names.items() if plain_suffix(file) in SUFFIXES and name not in NOT_A_LOG]
    if len(logs) != 1:
        listed = ", ".join(file.name for file in logs) or "none"
        raise DataError(f"{folder}: expected one log file, found {listed}. Give the path of the file.")
    return detect(logs[0], wanted)


def _detect_file(path: Path) -> str:
    suffix = plain_suffix(path)
    if SUFFIXES.get(suffix):
        return SUFFIXES[suffix]
    return _detect_text(path, _first_line(path))


def _first_line(path: Path) -> str:
    """Return the first line that is not empty."""
    for block in read_blocks(path, block_bytes=SNIFFED_BYTES):
        if block.rows:
            return next(block.records()).data[:SNIFFED_BYTES].decode("utf-8", "replace")
    raise DataError(f"{path}: the file is empty. Expected a log.")


def _detect_text(path: Path, line: str) -> str:
    if "::" in line and "\t" not in line:
        return "movietweetings"
    fields = line.split("\t")
    if _is_header(fields):
        return "tsv"
    if len(fields) == 2 and fields[1]:
        return "logs"
    if line.endswith("\t"):
        return "windows"
    if len(fields) > 3 and fields[-2][:1].isalpha() and fields[-1][:1].isalpha() and fields[-2][0] != fields[-1][0]:
        return "sessions"
    if plain_suffix(path) == ".tsv" and len(fields) > 1:
        return "tsv"
    raise DataError(
        f"{path}:1: cannot detect the format from the first line '{shown(line)}'. "
        f"Give it with {FORMAT}, one of: {', '.join(FORMATS[1:])}."
    )


def _is_header(fields: list[str]) -> bool:
    try:
        find_columns(fields, {}, "")
    except DataError:
        return False
    return True
