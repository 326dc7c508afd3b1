"""Write requirements.lock: what `lightgc2n[serve]` needs, pinned with the hashes of the files that pip chose.

python3.11 -m pip install --dry-run --ignore-installed -c constraints.txt --report 3.11.json '.[serve]'
(the same with the other supported versions of Python)
python scripts/write_lock.py 3.11.json 3.12.json 3.13.json
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
HEADER = """\
# What lightgc2n[serve] needs, with hashes, for Linux on x86-64 and every supported Python; written by
# scripts/write_lock.py. Install it before the wheel: pip install --require-hashes -r requirements.lock
"""


def main(reports: list[str]) -> None:
    hashes: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        for entry in json.loads(Path(report).read_text(encoding="utf-8"))["install"]:
            name = entry["metadata"]["name"].lower().replace("_", "-")
            if name != "lightgc2n":
                pin = f"{name}=={entry['metadata']['version']}"
                hashes[pin].add(entry["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = [
        " \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in sorted(found))])
        for pin, found in sorted(hashes.items())
    ]
    LOCK.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
