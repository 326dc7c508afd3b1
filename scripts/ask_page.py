"""Serves a bundle, looks at its page and at one account, and takes it down again: python scripts/ask_page.py BUNDLE."""

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any
from urllib.request import urlopen


def ask(address: str) -> str:
    """What the page says of itself, and of the people of the first account."""
    with urlopen(address, timeout=60) as page:
        if b"Who shares this account?" not in page.read():
            raise SystemExit(f"{address} does not show the page")
    first = read(f"{address}/v1/accounts?limit=1")["accounts"][0]["account"]
    found = read(f"{address}/v1/accounts/{first}/people")
    return f"The page answers at {address}; it finds {found['count']} people behind {first}."


def read(address: str) -> dict[str, Any]:
    with urlopen(address, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def main(bundle: str) -> None:
    command = [sys.executable, "-m", "lightgc2n", "serve", bundle, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            print(ask(json.loads(first_object(service.stdout))["address"]))
        finally:
            service.terminate()
    if service.returncode:
        raise SystemExit(f"the service ended with {service.returncode}")


def first_object(lines: Iterable[str]) -> str:
    """All up to the line that closes the object; nothing if the service ended before."""
    text = ""
    for line in lines:
        text += line
        if line.startswith("}"):
            return text
    raise SystemExit("the service did not start")


if __name__ == "__main__":
    main(*sys.argv[1:])
