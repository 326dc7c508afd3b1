"""How many values a body of JSON has, counted before it is read.

Reading two megabytes of brackets takes a tenth of a second in which nobody else is answered. Counting signs takes a
hundredth of that.
"""

import re

from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.settings import MOST_QUESTIONS

SMALL = 2**15  # bytes of a body that is not looked at
MOST_NESTED = 8 * MOST_QUESTIONS  # lists and objects; a question has at most five
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def refuse_shape(body: bytes, most_values: int) -> None:
    """Raise an error when a body has more values, lists or objects than any request needs."""
    if len(body) <= SMALL or _fits(body, most_values):
        return
    quotes, escapes = body.count(b'"'), body.count(b"\\")
    if quotes <= 2 * most_values + escapes and escapes <= most_values and _fits(STRING.sub(b"", body), most_values):
        return  # the signs are inside of names
    raise RefusedError(
        422, "too_many_values", f"a body has at most {most_values:,} values, and {MOST_NESTED:,} lists and objects."
    )


def _fits(body: bytes, most_values: int) -> bool:
    return body.count(b",") + body.count(b":") <= most_values and body.count(b"[") + body.count(b"{") <= MOST_NESTED
