"""Find the ends of the records in a file.

Except in CSV, every line is a record. A well-formed CSV record may span lines: a field that starts with a quote ends
with one, quotes inside it are doubled, and a separator or the line end follows. In other fields a quote is an ordinary
character. Of a malformed record, only the first line becomes a (bad) record, and parsing restarts at the next line. An
unbalanced quote therefore costs one line.
"""

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LONGEST_RECORD = 2**20
NEWLINE, RETURN, QUOTE = b"\n"[0], b"\r"[0], b'"'[0]

Places = npt.NDArray[np.int64]


def record_ends(data: bytes, separator: str = "", whole: bool = True) -> tuple[Places, bool]:
    """Return the end of each record, newline included, and whether every quote is known to be correct.

    A record that is not complete yet has no end.

    Args:
        data: starts with a record; if it is the whole rest of the file, it ends with a newline.
        separator: the field separator of a CSV file; empty if every line is a record.
        whole: true if no data follows, so that an open quote will never be closed.
    """
    octets = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(octets == NEWLINE)
    if not separator or b'"' not in data:
        return newlines + 1, True
    quotes = np.flatnonzero(octets == QUOTE)
    if (whole and len(quotes) % 2) or not quotes_enclose_fields(data, quotes, separator):
        return _careful_ends(data, newlines, quotes, separator, whole), False
    ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0] + 1
    open_bytes = len(data) - (int(ends[-1]) if len(ends) else 0)
    if max(np.diff(ends, prepend=0).max(initial=0), open_bytes) > LONGEST_RECORD:
        return _careful_ends(data, newlines, quotes, separator, whole), False
    return ends, True


def quotes_enclose_fields(data: bytes, quotes: Places, separator: str) -> bool:
    """Return whether every quote opens or closes a field, or is part of a doubled quote in a quoted field.

    A closing quote at the very end of the data, or before a carriage return there, counts as correct.
    """
    octets = np.frombuffer(b"\n" + data + b"\n\n", dtype=np.uint8)
    opening, closing, sign = quotes[::2] + 1, quotes[1::2] + 1, separator.encode()
    if len(sign) > 1 or not _ends_field(octets[opening - 1], sign[0]).all():
        return False  # the careful search handles separators of several bytes
    others = closing[~_ends_field(octets[closing + 1], sign[0])]
    return bool(((octets[others + 1] == RETURN) & (octets[others + 2] == NEWLINE)).all())


def _ends_field(octets: npt.NDArray[np.uint8], separator: int) -> npt.NDArray[np.bool_]:
    return (octets == separator) | (octets == NEWLINE) | (octets == QUOTE)


def _careful_ends(data: bytes, newlines: Places, quotes: Places, separator: str, whole: bool) -> Places:
    """Search the lines that contain quotes one by one.

    From an open quote the search continues at the next quote that is not doubled. No line in between can open another,
    so this takes at most two passes over the data, however many quotes are unbalanced.
    """
    record, beginning = _patterns(separator)
    starts = np.concatenate([[0], newlines + 1])
    ends_record = np.ones(len(newlines), dtype=bool)
    done = 0
    for line in np.unique(np.searchsorted(newlines, quotes)).tolist():
        start = int(starts[line])
        if start < done:
            continue
        if match := record.match(data, start, start + LONGEST_RECORD + 1):
            done = match.end()
            ends_record[line : np.searchsorted(newlines, done - 1)] = False
        elif not whole and len(data) - start <= LONGEST_RECORD and beginning.match(data, start):
            return newlines[:line][ends_record[:line]] + 1
    return newlines[ends_record] + 1


@lru_cache
def _patterns(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a complete record and of a record cut off by the end of the data; neither backtracks."""
    sign = separator.encode()
    cut = re.escape(sign)
    broken_cut = b"|".join(re.escape(sign[:size]) for size in range(len(sign)))
    open_quoted = b'"[^"]*+(?:""[^"]*+)*+'
    plain = b'(?!"|%b)[^\\n](?:(?!%b)[^\\n])*+' % (cut, cut)
    if len(sign) == 1:  # an equivalent, faster pattern
        plain = b'[^"\\n%b][^\\n%b]*+' % (cut, cut)
    one_field = b'(?>%b"|%b|)' % (open_quoted, plain)
    record = b"%b(?:%b%b)*+\\r?+\\n" % (one_field, cut, one_field)
    beginning = b'(?:%b%b)*+(?:%b"?+|%b|)(?:%b|\\r)\\Z' % (one_field, cut, open_quoted, plain, broken_cut)
    return re.compile(record), re.compile(beginning)
