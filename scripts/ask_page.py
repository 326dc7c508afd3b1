"""Serves a bundle, opens its page and an account, and stops it again: python scripts/ask_page.py BUNDLE [ACCOUNT]."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

SECONDS = 30  # to begin answering, and again to end


def main(bundle: str, account: str = "") -> None:
    command = [sys.executable, "-m", "lightgc2n", "serve", bundle, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = json.loads(first_object(service.stdout))["address"]
            wait_for(address)
            print(ask(address, account), flush=True)
        finally:
            end(service)


def first_object(lines: Iterable[str]) -> str:
    """All up to the line that closes the object."""
    text = ""
    for line in lines:
        text += line
        if line.startswith("}"):
            return text
    raise SystemExit("the service did not start")


def wait_for(address: str) -> None:
    """Returns when the service answers."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            read(f"{address}/readyz")
            return
        except URLError as problem:
            if time.monotonic() > deadline:
                raise SystemExit(f"{address} does not answer: {problem}") from None
            time.sleep(0.1)


def ask(address: str, account: str) -> str:
    """What the page shows of the account, or of the first one."""
    with urlopen(address, timeout=SECONDS) as page:
        if b"Who shares this account?" not in page.read():
            raise SystemExit(f"{address} does not show the page")
    account = account or read(f"{address}/v1/accounts?limit=1")["accounts"][0]["account"]
    found = read(f"{address}/v1/accounts/{account}/people")
    return f"The page answers at {address}/#account/{account}; people behind {account}: {found['count']}."


def read(address: str) -> dict[str, Any]:
    with urlopen(address, timeout=SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def end(service: "subprocess.Popen[str]") -> None:
    service.terminate()
    try:
        code = service.wait(SECONDS)
    except subprocess.TimeoutExpired:
        service.kill()
        raise SystemExit("the service did not end when it was told to") from None
    if code:
        raise SystemExit(f"the service ended with {code}")


if __name__ == "__main__":
    main(*sys.argv[1:])
