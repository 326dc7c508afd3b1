"""List the project files that execute while one log is imported, trained on, exported and served.

    python scripts/trace_files.py [--checkout DIR] [--model NAME] [--list]

A file counts in a stage if the body of at least one of its functions or methods runs after the imports. Importing a
module, creating its classes and calling functions at import time do not count. The stages are the commands `import`,
`train`, `export` and `serve`, each in its own process with tracing in all its subprocesses. The service is asked for
the page, one account's list and one account's people. --checkout measures another working tree with this interpreter.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

from ask_page import SECONDS, end, first_object, wait_for

STAGES = ("import", "train", "export", "serve")
TRACE_FILE, PACKAGE_FOLDER = "LIGHTGC2N_TRACE_FILE", "LIGHTGC2N_TRACE_PACKAGE"

# Python imports a module called sitecustomize at the start of every process, so subprocesses are traced as well.
TRACER = f"""
import os, sys, threading
log = open(os.environ["{TRACE_FILE}"], "a", buffering=1)
package, seen = os.environ["{PACKAGE_FOLDER}"] + os.sep, set()

def is_import(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(package):
            if not code.co_filename.endswith("__main__.py"):
                return True
        frame = frame.f_back
    return False

def trace(frame, event, argument):
    code = frame.f_code
    is_function = code.co_flags & 1  # CO_OPTIMIZED: neither a module nor a class body
    if is_function and code.co_filename.startswith(package) and code.co_filename not in seen and not is_import(frame):
        seen.add(code.co_filename)
        log.write(code.co_filename[len(package):] + "\\n")

sys.settrace(trace)
threading.settrace(trace)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--model", default="lightgc2n-plus")
    parser.add_argument("--list", action="store_true", help="print the files of each stage")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = trace_stages(options.checkout.resolve(), options.model, Path(folder))
    for stage, names in files.items():
        print(f"{stage:8} {len(names):4} files")
        if options.list:
            print("".join(f"    {name}\n" for name in sorted(names)), end="")
    print(f"{'all':8} {len(set().union(*files.values())):4} files")


def trace_stages(checkout: Path, model: str, folder: Path) -> dict[str, set[str]]:
    """Run every stage of `checkout` in `folder`; return the executed files of each, relative to the package."""
    write_log(folder / "log.csv")
    (folder / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
    data, run, bundle = folder / "data", folder / "run", folder / "bundle"
    arguments = {
        "import": [folder / "log.csv", "--out", data],
        "train": [data, "--out", run, "--model", model, "--epochs", "2", "--device", "cpu"],
        "export": [run, "--out", bundle],
        "serve": [bundle, "--port", "0", "--json"],
    }
    files = {}
    for stage in STAGES:
        command = [sys.executable, "-m", "lightgc2n", stage, *map(str, arguments[stage])]
        trace = folder / f"{stage}.txt"
        (ask_service if stage == "serve" else run_command)(command, environment_of(checkout, folder, trace))
        files[stage] = set(trace.read_text(encoding="utf-8").splitlines())
    return files


def write_log(path: Path) -> None:
    """Write a small event table: 60 accounts, each with 24 events over four weeks."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write("account,item,timestamp\n")
        for account in range(60):
            times = sorted(draw.randrange(1_700_000_000, 1_702_400_000) for _ in range(24))
            file.writelines(f"a{account},i{draw.randrange(80)},{time}\n" for time in times)


def environment_of(checkout: Path, folder: Path, trace: Path) -> dict[str, str]:
    """Return an environment in which Python uses `checkout` and writes executed files to `trace`."""
    traced = {TRACE_FILE: str(trace), PACKAGE_FOLDER: str(checkout / "lightgc2n")}
    return {**os.environ, **traced, "PYTHONPATH": f"{checkout}{os.pathsep}{folder}", "PYTHONSAFEPATH": "1"}


def run_command(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")


def ask_service(command: list[str], environment: dict[str, str]) -> None:
    """Start the service, request the page, a list and the people of one account, and stop it."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = json.loads(first_object(service.stdout))["address"]
            wait_for(address)
            body = json.dumps({"account": "a0", "k": 5}).encode()
            recommend = Request(f"{address}/v1/recommend", body, {"Content-Type": "application/json"})
            for request in (address, recommend, f"{address}/v1/accounts/a0/people"):
                urlopen(request, timeout=SECONDS).close()
        finally:
            end(service)


if __name__ == "__main__":
    main()
