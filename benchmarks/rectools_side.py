"""RecTools' side of `peers.py`, run by the Python of RecTools' environment, where this project is not installed.

    python rectools_side.py WAY TASK.npz LISTS.npy SETTINGS

It reads what `peers.py` has written, fits one model, writes a list of items for each asked account, the best item
first, and prints what that cost as one line of JSON.
"""

import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

NEIGHBOURS = 100
PACKAGES = ("rectools", "pytorch-lightning", "torch", "numpy")


def main() -> None:
    way, task, lists, settings = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    with np.load(task, allow_pickle=False) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    training, histories = datasets(given)
    model = WAYS[way](settings)
    started, worked = time.perf_counter(), time.process_time()
    model.fit(training)
    cost = {"fit": time.perf_counter() - started, "work": time.process_time() - worked}
    found = model.recommend(
        users=given["asked"],
        dataset=histories,
        k=settings["list_length"],
        filter_viewed=False,
        on_unsupported_targets="ignore",
    )
    columns = (found[name].to_numpy() for name in ("user_id", "rank", "item_id"))
    np.save(lists, as_lists(given["asked"], *columns, settings["list_length"]), allow_pickle=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    versions = {name: version(name) for name in PACKAGES}
    print(json.dumps(cost | {"epochs": epoch_seconds(model), "peak": peak, "versions": versions}))


def datasets(given: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """What is learned from, and what is known when a list is asked for, with the same numbers for items."""
    from rectools.dataset import Dataset, IdMap, Interactions

    known = np.unique(given["train_item"])
    shown = np.isin(given["history_item"], known)  # models of RecTools have no place for other items
    in_histories = np.isin(known, given["history_item"])
    # The highest number stands in both: RecTools makes its tables as wide as the highest number that occurs.
    items = IdMap.from_values(np.concatenate([known[~in_histories], known[in_histories]]))

    def dataset(account: np.ndarray, item: np.ndarray) -> Any:
        accounts = IdMap.from_values(account)
        return Dataset(accounts, items, Interactions.from_raw(in_order(account, item), accounts, items))

    return (
        dataset(given["train_account"], given["train_item"]),
        dataset(given["history_account"][shown], given["history_item"][shown]),
    )


def in_order(account: np.ndarray, item: np.ndarray) -> Any:
    """A table of events whose times say in which order they stand."""
    import pandas as pd

    times = pd.to_datetime(np.arange(len(item)), unit="s")
    return pd.DataFrame({"user_id": account, "item_id": item, "weight": 1.0, "datetime": times})


def sasrec(settings: dict[str, Any]) -> Any:
    import pytorch_lightning
    from rectools.models import SASRecModel

    pytorch_lightning.seed_everything(settings["seed"])
    return SASRecModel(
        n_factors=settings["width"],
        n_blocks=settings["blocks"],
        n_heads=settings["heads"],
        session_max_len=settings["max_length"],
        dropout_rate=settings["dropout"],
        batch_size=settings["batch_size"],
        lr=settings["learning_rate"],
        loss="softmax",
        get_trainer_func=timed_trainer,
        get_trainer_func_kwargs={"epochs": settings["epochs"]},
    )


def timed_trainer(epochs: int) -> Any:
    """RecTools' own trainer, on the CPU, with a clock."""
    from pytorch_lightning import Callback, Trainer

    class Clock(Callback):
        def __init__(self) -> None:
            self.started, self.seconds = 0.0, list[float]()

        def on_train_epoch_start(self, *_: Any) -> None:
            self.started = time.perf_counter()

        def on_train_epoch_end(self, *_: Any) -> None:
            self.seconds.append(time.perf_counter() - self.started)

    return Trainer(
        max_epochs=epochs,
        min_epochs=epochs,
        accelerator="cpu",
        devices=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        callbacks=[Clock()],
    )


def epoch_seconds(model: Any) -> list[float]:
    """What the clock of a trained model found; nothing for a model without epochs."""
    trainer = getattr(model, "fit_trainer", None)
    clocks = [callback for callback in trainer.callbacks if hasattr(callback, "seconds")] if trainer else []
    return clocks[0].seconds if clocks else []


def item_knn(settings: dict[str, Any]) -> Any:
    from implicit.nearest_neighbours import TFIDFRecommender
    from rectools.models import ImplicitItemKNNWrapperModel

    return ImplicitItemKNNWrapperModel(TFIDFRecommender(K=NEIGHBOURS, num_threads=settings["threads"]))


def ease(settings: dict[str, Any]) -> Any:
    from rectools.models import EASEModel

    return EASEModel(recommend_n_threads=settings["threads"])


WAYS = {"sasrec": sasrec, "item-knn": item_knn, "ease": ease}


def as_lists(asked: np.ndarray, account: np.ndarray, rank: np.ndarray, item: np.ndarray, length: int) -> np.ndarray:
    """One row for each asked account: its items by their ranks 1, 2, ..., and -1 where a list is too short."""
    order = np.argsort(asked)
    row = order[np.searchsorted(asked, account, sorter=order)]
    lists = np.full((len(asked), length), -1, dtype=np.int64)
    lists[row, rank.astype(np.int64) - 1] = item
    return lists


if __name__ == "__main__":
    main()
