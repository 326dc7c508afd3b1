"""The records and the rows of a CSV file, byte by byte: the definition that the fast readers are measured against."""

from dataclasses import dataclass

LONGEST = 2**20
EARLIEST, LATEST = -2_208_988_800, 9_214_646_400  # the years 1900 to 2262, in seconds


@dataclass(frozen=True)
class SlowRecord:
    line: int
    data: bytes  # without its line end
    legal: bool
    fields: tuple[bytes, ...] = ()
    stray_return: bool = False  # a carriage return outside of quotes, and not in a line end


def slow_records(data: bytes, separator: bytes = b",") -> list[SlowRecord]:
    """All records, empty lines among them; `separator` is one byte, or empty where every line is a record."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data and not data.endswith(b"\n"):
        data += b"\n"
    actual, start, line = [], 0, 1
    while start < len(data):
        fields, end, stray_return = _fields(data, start, separator)
        legal = fields is not None and (b"\n" not in data[start : end - 1] or end - start <= LONGEST + 1)
        if not legal:
            fields, end = None, data.index(b"\n", start) + 1
        text = data[start : end - 1].removesuffix(b"\r")
        actual.append(SlowRecord(line, text, legal, tuple(fields or ()), stray_return))
        line += data.count(b"\n", start, end)
        start = end
    return actual


def slow_rows(data: bytes, separator: bytes, account: int, item: int, time: int | None) -> tuple[int, list[SlowRecord]]:
    """How many rows a table has, and the good ones; `account`, `item` and `time` are places in its header."""
    header, *records = [record for record in slow_records(data, separator) if record.data]
    width = len(header.fields)

    def is_good(fields: tuple[bytes, ...]) -> bool:
        fields += (b"",) * (width - len(fields))
        ids = all(fields[place] and all(octet >= 32 for octet in fields[place]) for place in (account, item))
        times = time is None or (fields[time].strip().isdigit() and EARLIEST <= int(fields[time]) <= LATEST)
        return len(fields) == width and ids and times

    rows = 0
    good: list[SlowRecord] = []
    for record in records:
        parts = [record]
        lines = record.data.split(b"\n")
        cut = [tuple(line.removesuffix(b"\r").split(separator)) for line in lines]
        lines_are_rows = len(lines) > 1 and all(len(fields) == width and is_good(fields) for fields in cut)
        if lines_are_rows and (time is not None or record.stray_return or not is_good(record.fields)):
            parts = [one for line in lines for one in slow_records(line + b"\n", separator)]
        rows += len(parts)
        good += [one for one in parts if one.legal and not one.stray_return and is_good(one.fields)]
    return rows, good


def _fields(data: bytes, start: int, separator: bytes) -> tuple[list[bytes] | None, int, bool]:
    """The fields of the record at `start` (None: malformed), where it ends, and whether it has a stray return."""
    fields, field, state, place, stray_return = [], bytearray(), "start", start, False
    while place < len(data):
        one = data[place : place + 1]
        if state == "quoted":
            if data[place : place + 2] == b'""':
                field += b'"'
                place += 1
            elif one == b'"':
                state = "closed"
            else:
                field += one
        elif one in (separator, b"\n"):
            plain = bytes(field).removesuffix(b"\r" if one == b"\n" else b"")
            stray_return |= state == "plain" and b"\r" in plain
            fields.append(bytes(field) if state == "closed" else plain)
            field, state = bytearray(), "start"
            if one == b"\n":
                return fields, place + 1, stray_return
        elif state == "closed" and data[place : place + 2] != b"\r\n":
            return None, 0, False
        elif state == "start" and separator and one == b'"':
            state = "quoted"
        elif state != "closed":
            field += one
            state = "plain"
        place += 1
    return None, 0, False
