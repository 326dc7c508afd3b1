"""Write tests/golden/runs with the code of commit d618e6e, before modules were moved and checkpoints had a schema.

Run it in a checkout of that commit: python write_old_runs.py OUT. It trains each model for two epochs with seed 0 on a
small world of two domains and keeps the run folder, and the scores that the trained model gave to a few histories.
Newer code must load every folder and return the same scores; tolerance: rtol 1e-5, atol 1e-6 (another CPU may add in
another order).
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from lightgc2n.data.batches import make_batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.metrics.ranks import batches_in_domains
from lightgc2n.training.checkpoints import Progress, save_checkpoint
from lightgc2n.training.loop import train
from lightgc2n.training.run import new_model, validation
from lightgc2n.training.runs import RunPlan, load_run, start_run
from lightgc2n.training.steps import TrainingConfig
from tests.worlds import two_domains_world

SMALL = {"width": 8}
MODELS = {
    "lightgc2n": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-wo-la": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-wo-dr": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-wo-c": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-wo-s": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-wo-a": {"embedding_width": 8, "capsule_width": 8},
    "lightgc2n-plus": {"width": 8, "followers": 8, "trending": 8, "max_length": 20, "reach": 2},
    "lightgc2n-plus-wo-people": {"width": 8, "followers": 8, "trending": 8, "max_length": 20},
    "lightgc2n-plus-wo-state": {"width": 8, "followers": 8, "trending": 8, "max_length": 20},
    "lightgcn": SMALL,
    "gmf": SMALL,
    "neumf": {"width": 8, "feed": "lastk"},
    "nais": {"width": 8, "feed": "set"},
    "gru4rec": {"width": 8, "account": True},
    "hrnn": {"width": 8, "feed": "state"},
    "sasrec": SMALL,
    "comirec": {"width": 8, "max_length": 10},
    "pi-net": SMALL,
    "psjnet-1": SMALL,
    "psjnet-2": SMALL,
    "da-gcn": {"width": 4},
    "tida-gcn": {"width": 4, "max_length": 16, "waits": 8},
    "disenreason-style": SMALL,
    "tgsrec": {"width": 8, "time_width": 4},
    "trending": {},
    "markov-recency": {},
    "session-knn": {},
}


def main(out: Path) -> None:
    data = two_domains_world(accounts=16, clusters=2, ring=5, length=12)
    days = np.arange(len(data.events), dtype=np.int64) * 7_200_000_000 + 1_600_000_000_000_000
    data = replace(data, times=days)
    split = split_dataset(data, SplitConfig())
    batch = make_batch(split.test.select(np.array([0, 3, 7])))
    batch = replace(batch, account=torch.tensor([int(batch.account[0]), int(batch.account[1]), -1]))
    everything = Domain("all", 0, split.train.items)
    for name, settings in MODELS.items():
        folder = out / name
        plan = RunPlan(Path("data"), name, "", settings, SplitConfig(), TrainingConfig(epochs=2, batch_size=8))
        start_run(folder, plan, data)
        model = new_model(name, split, settings, seed=0)
        if list(model.parameters()):
            train(model, split, plan.training, validation(split, "cpu"), folder)
        else:
            model.calibrate(lambda: batches_in_domains(split.validation, split.catalogues, "cpu"))
            save_checkpoint(folder / "best.safetensors", model, None, Progress())
        _, model, _ = load_run(folder)
        scores = {"scores": model.scores(model.encode(), batch, everything)}
        scores["folded_in"] = model.fold_in_scores(model.encode(), batch, everything)
        inputs = {part: getattr(batch, part) for part in ("account", "history", "length", "ages", "moment")}
        tensors = {key: tensor.contiguous() for key, tensor in (inputs | scores).items() if tensor is not None}
        save_file(tensors, folder / "expected.safetensors")
        run = json.loads((folder / "run.json").read_text())
        run["data"]["folder"], run["commit"] = "data", "d618e6e"
        (folder / "run.json").write_text(json.dumps(run, indent=1) + "\n")
        if name != "lightgc2n":  # one whole folder is enough
            for file in ("last.safetensors", "metrics.jsonl", "accounts.txt", "items.txt"):
                (folder / file).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
