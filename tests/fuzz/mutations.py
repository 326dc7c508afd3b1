"""Damaged log files, each the same for the same number.

python tests/fuzz/mutations.py NUMBER FOLDER    writes the files of a number, to look at them
"""

import gzip
import io
import random
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import zstandard

from lightgc2n.data.importing import ImportOptions

Files = dict[str, bytes]

TABLE = b"user,item,timestamp,domain,member\n" + b"".join(
    b"u%d,%03d,%d,%s,m%d\n" % (n % 4, n * n % 11, 1704110400 + n * 37 % 50, (b"v", b"l")[n % 2], n % 3)
    for n in range(30)
)
QUOTED = b'user,"it""le",item\r\n' + b"".join(b'"a,%d","x\r\n""y""\n","i, %d"\r\n' % (n % 3, n % 5) for n in range(20))
JSON = b"".join(
    b'{"user": "u%d", "item": %d, "ts": "2024-01-%02dT10:00:00Z"}\n' % (n % 3, n % 7, n + 1) for n in range(25)
)
LOGS = b"".join(b"u%d\t%s\n" % (n, b" ".join(b"i%d" % (n * k % 9) for k in range(n + 1))) for n in range(12))
WINDOWS = b"".join(b"u%d\t%s\t\n" % (n % 5, b"\t".join(b"i%d" % (n * k % 9) for k in range(n + 2))) for n in range(12))
SESSIONS = b"".join(b"u%d\tE%d\tV%d\tE%d\tV%d\n" % (n % 5, n % 3, n % 4, n % 2, n % 5) for n in range(12))


def parquet() -> bytes:
    file = io.BytesIO()
    table = pl.read_csv(TABLE, infer_schema=False).with_columns(pl.col("timestamp").cast(pl.Int64))
    table.write_parquet(file, row_group_size=12)
    return file.getvalue()


def seeds() -> dict[str, Files]:
    """One undamaged source of each kind."""
    tsv = TABLE.replace(b",", b"\t")
    inter = tsv.replace(b"user\titem\ttimestamp\t", b"user_id:token\titem_id:token\ttimestamp:float\t")
    dat = b"".join(b"%d::%07d::%d::%d\n" % (n % 4, n * n % 7, n % 10, 1362062307 + n) for n in range(25))
    dictionary = b"".join(b"%d\ti%d\t5\n" % (n, n) for n in range(9))
    return {
        "csv": {"log.csv": TABLE},
        "quoted csv": {"log.csv": QUOTED},
        "tsv": {"log.tsv": tsv},
        "recbole": {"log.inter": inter},
        "movietweetings": {"ratings.dat": dat},
        "jsonl": {"log.jsonl": JSON},
        "parquet": {"log.parquet": parquet()},
        "gz": {"log.csv.gz": gzip.compress(TABLE, mtime=0)},
        "zst": {"log.jsonl.zst": zstandard.compress(JSON)},
        "logs": {"log.tsv": LOGS},
        "two domains": {
            "E.tsv": b"a\tE1 E2 E3\nb\tE2 E1\n",
            "V.tsv": b"b\tV2 V1\na\tV1 V1\n",
            "mixed.tsv": b"a\tE1 V1 E2\nb\tV2 E2\n",
        },
        "windows": {"train_data.txt": WINDOWS, "test_data.txt": WINDOWS, "item_dict.txt": dictionary},
        "sessions": {"validdata_sess.txt": SESSIONS, "testdata_sess.txt": SESSIONS},
    }


SEEDS = seeds()
BITS = [
    b"\0",
    b'"',
    b'""',
    b",",
    b"\t",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"::",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b"[",
    b"\\",
]
BITS += [
    b"\\ud800",
    b"null",
    b"NaN",
    b"-1",
    b"1e400",
    b"99999999999999999999",
    b"2024-13-01",
    b"\x1f",
    b"\x7f",
    "\u2028".encode(),
]
BITS += [b"x" * 2000, b"\n" * 50, b'"' * 51, "日".encode(), b"V", b"E"]


def flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def overwrite(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] = dice.randrange(256)


def insert(data: bytearray, dice: random.Random) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = dice.choice(BITS)


def remove(data: bytearray, dice: random.Random) -> None:
    place = dice.randrange(len(data))
    del data[place : place + dice.choice((1, 1, 2, 10, 200))]


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def repeat(data: bytearray, dice: random.Random) -> None:
    lines = data.split(b"\n")
    line = dice.choice(lines)
    lines[dice.randrange(len(lines)) : 0] = [line] * dice.choice((1, 2, 30))
    data[:] = b"\n".join(lines)


def shuffle(data: bytearray, dice: random.Random) -> None:
    lines = data.split(b"\n")
    dice.shuffle(lines)
    data[:] = b"\n".join(lines)


def enlarge(data: bytearray, dice: random.Random) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = b"y" * dice.choice((1024, 1025, 70_000, 2**20 + 5))


def reencode(data: bytearray, dice: random.Random) -> None:
    encoding = dice.choice(("utf-16", "utf-16-le", "cp037", "utf-8-sig", "utf-7"))
    data[:] = data.decode("utf-8", "replace").encode(encoding, "replace")


def splice(data: bytearray, dice: random.Random) -> None:
    other = dice.choice(list(dice.choice(list(SEEDS.values())).values()))
    start = dice.randrange(len(other))
    place = dice.randrange(len(data) + 1)
    data[place:place] = other[start : start + 100]


def stray_quote(data: bytearray, dice: random.Random) -> None:
    """A quote beside a separator, where it opens or closes a field that no other quote closes or opens."""
    separators = [place for place, octet in enumerate(data) if octet in b",\t;\n"]
    for _ in range(dice.choice((1, 1, 2, 3))):
        place = dice.choice(separators or [0]) + dice.choice((0, 1))
        data[place:place] = dice.choice((b'"', b'"', b'""', b'"""', b'5"', b'"5" disk"'))


Mutation = Callable[[bytearray, random.Random], None]
MUTATIONS: list[Mutation] = [
    flip,
    flip,
    overwrite,
    overwrite,
    insert,
    insert,
    insert,
    remove,
    remove,
    cut,
    repeat,
    shuffle,
]
MUTATIONS += [enlarge, reencode, splice, stray_quote, stray_quote]
PACKING: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, lambda data: gzip.compress(data, mtime=0)),
    ".zst": (zstandard.decompress, zstandard.compress),
}


@dataclass(frozen=True)
class Case:
    """One damaged source and how to import it."""

    kind: str
    files: Files
    options: ImportOptions

    def write(self, folder: Path) -> Path:
        """Writes the files and returns what to import: the only file, or the folder."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return folder if len(self.files) > 1 else folder / next(iter(self.files))


def case(number: int) -> Case:
    """The case of this number."""
    dice = random.Random(number)
    kind = list(SEEDS)[number % len(SEEDS)]
    files = dict(SEEDS[kind])
    for _ in range(dice.choice((1, 1, 2, 3, 6))):
        name = dice.choice(list(files))
        unpack, pack = PACKING.get(Path(name).suffix, (bytes, bytes))
        if dice.random() < 0.5:  # damage the packed bytes themselves
            unpack = pack = bytes
        try:
            data = bytearray(unpack(files[name]))
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            data, pack = bytearray(files[name]), bytes
        if data:
            dice.choice(MUTATIONS)(data, dice)
        files[name] = pack(bytes(data))
    units = ("auto", "auto", "auto", "s", "ns", "iso") if kind in ("csv", "jsonl", "parquet") else ("auto",)
    return Case(kind, files, ImportOptions(skip_bad=dice.random() < 0.6, time_unit=dice.choice(units)))


if __name__ == "__main__":
    chosen = case(int(sys.argv[1]))
    print(chosen.kind, chosen.options, chosen.write(Path(sys.argv[2])))
