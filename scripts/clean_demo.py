"""Remove what `make demo` made in demo/, by exact name. A file of yours there stays, and so does demo/experiments."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from lightgc2n.files.folder_kinds import CLAIM, FolderKind  # noqa: E402

MARKER = "made-by-make-demo"
ARRAYS = ("offsets", "sequence_accounts", "events", "times", "targets", "parts")
TABLES = ("histories", "vectors", "people")
RUN = ("run.json", "accounts.txt", "items.txt", "metrics.jsonl", "last.safetensors", "best.safetensors")
DEMO = FolderKind(
    "demo",
    MARKER,
    (
        "households.csv",
        "titles.tsv",
        "service.log",
        *(f"households/{name}" for name in ("manifest.json", "accounts.txt", "items.txt", "forgotten.json")),
        *(f"households/{name}.npy" for name in ARRAYS),
        "households/catalogue.jsonl",
        *(f"households/labels/{name}" for name in ("members.npy", "members.txt")),
        *(f"compare{end}/results.{kind}" for end in ("", ".partial") for kind in ("json", "csv", "md")),
        *(f"compare{end}/{name}" for end in ("", ".partial") for name in (CLAIM, "ranks/*.npy", "finished/*.json")),
        *(f"compare{end}/runs/*/{name}" for end in ("", ".partial") for name in RUN),
        *(f"compare{end}/runs/*/tensorboard/events.out.tfevents.*.lightgc2n" for end in ("", ".partial")),
        *(f"compare{end}/runs/*/people/finder.{kind}" for end in ("", ".partial") for kind in ("json", "safetensors")),
        *(f"bundle/{name}" for name in ("config.json", "README.md", "model.onnx", "weights.safetensors", "SHA256SUMS")),
        *(f"bundle/{name}" for name in ("items.txt", "titles.tsv", "catalogue.jsonl")),
        *(f"bundle/people/finder.{kind}" for kind in ("json", "safetensors")),
        *(f"bundle/server/{name}" for name in ("server.json", "accounts.txt", "SHA256SUMS")),
        *(f"bundle/server/{name}.safetensors" for name in TABLES),
    ),
)

if __name__ == "__main__":
    folder = ROOT / "demo"
    if (folder / MARKER).is_file():
        DEMO.remove(folder)
        if (folder / "experiments").is_dir():
            (folder / MARKER).touch()  # make experiments resumes there
        if folder.exists():
            print("demo/ holds files that make demo did not make; they stay.")
