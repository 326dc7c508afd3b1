"""Removing accounts from a run: its weights are remapped to its dataset, which no longer has these accounts."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from lightgc2n.data.dataset import read_ids
from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.files.folder_kinds import refuse_foreign
from lightgc2n.files.writer_lock import recover
from lightgc2n.training.checkpoints import BEST, save_checkpoint, warm_start, write_vocabularies
from lightgc2n.training.loop import FORGET
from lightgc2n.training.run import finish, new_model, open_data, validation
from lightgc2n.training.runs import RUN_FOLDER, load_run, plan_of, read_run, sole_trainer, write_run


def accounts_in_run(run: Path, accounts: Collection[str]) -> list[str]:
    """Return which of the accounts the run holds."""
    read_run(run)
    recover(run / "people")
    refuse_foreign(run, RUN_FOLDER)
    path = run / "accounts.txt"
    return sorted(set(accounts) & set(read_ids(path))) if path.is_file() else []


def forget_in_run(run: Path, accounts: Collection[str], data: Path | None = None) -> list[str]:
    """Replace a run by one without the accounts, which its dataset no longer has; return the removed accounts.

    Rows of accounts and items are remapped by id. The graph and all counts are recomputed from the dataset, and weights
    that are fitted to validation queries are fitted again. The optimizer's state, the people model and the test results
    are removed, because they contain the accounts too. Without the optimizer's state, training counts as ended.
    """
    recover(run / "people")
    # The lock is held until the new run is in place; the dataset is read under the lock.
    with sole_trainer(run, wait=True), new_folder(run, force=True, kind=RUN_FOLDER, wait=True) as new:
        removed = accounts_in_run(run, accounts)
        if not removed:
            return []
        plan = plan_of(run) if data is None else replace(plan_of(run), data=data)
        dataset, split = open_data(plan)
        remaining = sorted(set(accounts) & set(dataset.accounts))
        if remaining:
            raise DataError(
                f"{plan.data}: still holds {remaining[0]!r}. Forget it there first, with --data {plan.data}."
            )
        evaluate = validation(split, "cpu")
        model = new_model(plan.model, split, plan.settings, plan.training.seed)
        warm_start(model, dataset, run)
        _, trained, progress = load_run(run)
        progress.ended_by = progress.ended_by or FORGET
        if evaluate is not None:
            progress.best_value = evaluate(model.eval())
        if trained.is_finished:  # one that training did not finish, or an earlier version made, stays so
            finish(model, split, "cpu")
        save_checkpoint(new / BEST, model, None, progress)
        description = read_run(run)
        data_facts = description["data"] | {"folder": str(plan.data.resolve()), "checksum": dataset.checksum}
        write_run(new, description | {"data": data_facts})
        write_vocabularies(new, dataset)
    return removed
