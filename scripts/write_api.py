"""The reference page of the Python API, from docstrings and signatures."""

import inspect
import re
import textwrap
from functools import cached_property
from typing import Any

import lightgc2n

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Yields):$", re.MULTILINE)
MODULE = re.compile(r"(?:[a-z_0-9]+\.)+(?=[A-Z])")
FIELD = re.compile(r"^(\*{0,2}\w+): ?(.*(?:\n {4,}.*)*)", re.MULTILINE)


def api_page() -> str:
    """The page: functions, classes with their methods, errors."""
    names = [name for name in lightgc2n.__all__ if not name.startswith("_")]
    found = {name: getattr(lightgc2n, name) for name in names}
    errors = [name for name, one in found.items() if isinstance(one, type) and issubclass(one, Exception)]
    functions = [name for name, one in found.items() if inspect.isfunction(one)]
    classes = [name for name in names if name not in errors and name not in functions]
    lines = ["# Python API", "", "Made from the docstrings of the package. [A tour](../python.md) shows it in use.", ""]
    for name in functions:
        lines += [f"## lg.{name}", "", *_function(f"lg.{name}", found[name])]
    for name in classes:
        lines += [f"## {name}", "", *_class(name, found[name])]
    lines += ["## Errors", "", "| class | raised when |", "|---|---|"]
    lines += [f"| `lg.{name}` | {_first(found[name])} |" for name in errors]
    return "\n".join([*lines, ""])


def _first(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _function(name: str, function: Any) -> list[str]:
    return ["```python", _signature(name, function), "```", "", *_doc(function), ""]


def _signature(name: str, function: Any) -> str:
    """The call in one line, or one line for each parameter where that is too long."""
    signature = inspect.signature(function)
    given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    words = [_parameter(one) for one in given]
    named = next((at for at, one in enumerate(given) if one.kind is one.KEYWORD_ONLY), None)
    if named is not None:
        words.insert(named, "*")
    back = signature.return_annotation
    end = ")" if back is signature.empty else f") -> {_type(back)}"
    short = f"{name}({', '.join(words)}{end}"
    return short if len(short) <= 100 else f"{name}(\n" + "".join(f"    {one},\n" for one in words) + end


def _parameter(one: inspect.Parameter) -> str:
    typed = one.name if one.annotation is one.empty else f"{one.name}: {_type(one.annotation)}"
    return typed if one.default is one.empty else f"{typed} = {one.default!r}"


def _type(annotation: Any) -> str:
    return MODULE.sub("", inspect.formatannotation(annotation)).replace("'", "").replace('"', "")


def _class(name: str, one: type) -> list[str]:
    lines = [*_doc(one), ""]
    properties, methods = [], []
    for member in dir(one):
        thing = inspect.getattr_static(one, member)
        if member.startswith("_") or not str(getattr(one, "__module__", "")).startswith("lightgc2n"):
            continue
        if isinstance(thing, (property, cached_property)):
            properties.append((member, thing))
        elif isinstance(thing, (classmethod, staticmethod)) or inspect.isfunction(thing):
            function = getattr(one, member)
            if str(getattr(function, "__module__", "")).startswith("lightgc2n") and inspect.getdoc(function):
                methods.append((member, function))
    if properties:
        lines += ["| property | |", "|---|---|"]
        lines += [f"| `{member}` | {_first(thing)} |" for member, thing in properties]
        lines.append("")
    for member, function in methods:
        lines += [f"### {name}.{member}", "", *_function(f"{name}.{member}", function)]
    return lines


def _doc(thing: Any) -> list[str]:
    """A docstring as Markdown: sections of fields become lists, examples code."""
    text = inspect.getdoc(thing) or ""
    lines: list[str] = []
    parts = SECTION.split(text)
    lines += [parts[0].strip(), ""]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        indented, _, rest = _split(body)
        if title == "Example":
            lines += ["```python", indented, "```", ""]
        elif title in ("Returns", "Yields"):
            lines += [f"**{title}** {' '.join(indented.split())}", ""]
        else:
            lines += [f"**{title}**", ""]
            lines += [f"- `{name}`: {' '.join(told.split())}" for name, told in FIELD.findall(indented)]
            lines.append("")
        lines += [rest, ""] if rest else []
    return lines


def _split(body: str) -> tuple[str, str, str]:
    """The indented block of a section, and the text after it."""
    kept, rest = [], []
    for line in body.strip("\n").splitlines():
        (rest if rest or (line and not line.startswith(" ")) else kept).append(line)
    return textwrap.dedent("\n".join(kept)).strip("\n"), "", "\n".join(rest).strip()
