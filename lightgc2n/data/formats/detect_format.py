"""Detect the format of a source and the files that belong to it."""

import csv
from dataclasses import dataclass, field
from itertools import islice
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
SNIFFED_BYTES, SNIFFED_LINES = 65_536, 20
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
    encoding: str = ""  # UTF-8 if empty
    notes: list[str] = field(default_factory=list)
    frame: Any = None  # a data frame in place of files

    def all_files(self) -> list[Path]:
        if self.frame is not None:
            return []
        dictionaries = (self.item_dictionary, self.account_dictionary)
        return [*self.files.values(), *(path for path in dictionaries if path is not None)]


def detect(path: Path, wanted: str = "auto", encoding: str = "", table: bool = False) -> Source:
    """Return the source at `path`, a file or a folder, in the `wanted` format or the detected one.

    Args:
        encoding: the encoding of the file; UTF-8 if empty.
        table: columns were named, so the file is a table and not one sequence per line.
    """
    if wanted not in FORMATS:
        raise DataError(f"{FORMAT}: {unknown_name('format', wanted, FORMATS)}")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Give a log file, or a folder that contains one.")
    if path.is_dir():
        source = _detect_folder(path, wanted, encoding, table)
        if wanted not in ("auto", source.format):
            raise DataError(
                f"{path}: {FORMAT} is {wanted}, but the folder holds {source.format}. Give the path of the file."
            )
        return source
    if not path.is_file() and wanted in ("auto", "parquet"):
        raise DataError(f"{path}: a pipe can be read only once. Give its {FORMAT}; parquet cannot be read from a pipe.")
    kind = wanted if wanted != "auto" else _detect_file(path, encoding, table)
    known = kind == "csv" and path.is_file()
    return Source(kind, {"all": path}, delimiter=_delimiter(path, encoding) if known else ",", encoding=encoding)


def _delimiter(path: Path, encoding: str) -> str:
    """Return the column separator of a CSV file; a comma where none fits better."""
    return _likely_delimiter(_first_lines(path, encoding)) or ","


def _likely_delimiter(lines: list[str]) -> str:
    """Return the sign that yields usual column names, else the one that splits most lines like the header."""
    try:
        tables = {sign: list(csv.reader(lines, delimiter=sign)) for sign in DELIMITERS}
    except csv.Error:
        return ""
    for sign, rows in tables.items():
        if _is_header(rows[0]):
            return sign
    split = {sign: len(rows[0]) for sign, rows in tables.items() if len(rows[0]) > 1}
    alike = {sign: sum(len(row) == width for row in tables[sign]) for sign, width in split.items()}
    return max(split, key=lambda sign: (alike[sign], split[sign]), default="")


def _detect_folder(folder: Path, wanted: str, encoding: str, table: bool) -> Source:
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
    return detect(logs[0], wanted, encoding, table)


def _detect_file(path: Path, encoding: str, table: bool) -> str:
    suffix = plain_suffix(path)
    if SUFFIXES.get(suffix):
        return SUFFIXES[suffix]
    return _detect_text(path, _first_lines(path, encoding), table)


def _first_lines(path: Path, encoding: str) -> list[str]:
    """Return the first lines that are not empty."""
    for block in read_blocks(path, block_bytes=SNIFFED_BYTES, encoding=encoding):
        if block.rows:
            records = islice(block.records(), SNIFFED_LINES)
            return [record.data[:SNIFFED_BYTES].decode("utf-8", "replace") for record in records]
    raise DataError(f"{path}: the file is empty. Expected a log.")


def _detect_text(path: Path, lines: list[str], table: bool) -> str:
    line = lines[0]
    if "::" in line and "\t" not in line:
        return "movietweetings"
    fields = line.split("\t")
    many = len(fields) > 2 and bool(fields[-1])
    if _is_header(fields) or (len(fields) > 1 and table) or (many and plain_suffix(path) == ".tsv"):
        return "tsv"
    if len(fields) == 1 and _likely_delimiter(lines):
        return "csv"
    if len(fields) == 2 and fields[1]:
        return "logs"
    if line.endswith("\t"):
        return "windows"
    if len(fields) > 3 and fields[-2][:1].isalpha() and fields[-1][:1].isalpha() and fields[-2][0] != fields[-1][0]:
        return "sessions"
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
