"""The script that counts executed files: a function that runs after the imports counts, an import does not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
MODULES = {
    "__init__.py": "",
    "__main__.py": "from lightgc2n import called, only_imported, called_at_import\ncalled.work()\n",
    "called.py": "def work():\n    import threading\n    from lightgc2n import in_thread\n"
    "    thread = threading.Thread(target=in_thread.work)\n    thread.start()\n    thread.join()\n",
    "in_thread.py": "def work():\n    pass\n",
    "only_imported.py": "class Setting:\n    value = [one for one in range(3)]\n\ndef work():\n    pass\n",
    "called_at_import.py": "def work():\n    return 1\n\nVALUE = work()\n",
}


def test_only_functions_that_run_after_the_imports_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("trace_files")
    checkout, trace = tmp_path / "checkout", tmp_path / "trace.txt"
    (checkout / "lightgc2n").mkdir(parents=True)
    for name, text in MODULES.items():
        (checkout / "lightgc2n" / name).write_text(text)
    (tmp_path / "sitecustomize.py").write_text(script.TRACER)
    environment = script.environment_of(checkout, tmp_path, trace)
    subprocess.run([sys.executable, "-m", "lightgc2n"], env=environment, check=True, cwd=tmp_path)
    assert trace.read_text().split() == ["called.py", "in_thread.py"]
