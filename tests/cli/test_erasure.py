"""After `forget` with all places given, and `store compact`, no file that the product wrote holds the account."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from lightgc2n.cli.main import app
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.store.dataset_exchange import fill_store
from lightgc2n.store.event_store import create_store
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.serving.events import send
from tests.serving.running import command

SECRET_ITEM = "a-film-that-only-this-account-saw"
SECRET_EVENT = "an-event-id-of-this-account"
SECRET_SESSION = "a-session-of-this-account"


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def holders(folder: Path, secrets: dict[str, bytes]) -> list[tuple[str, str]]:
    """Which files hold which of the secrets, in their bytes or their names."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        (str(path.relative_to(folder)), name)
        for path in files
        for name, secret in secrets.items()
        if secret in path.read_bytes() or secret in str(path).encode()
    ]


def vectors_of(bundle: Path, account: str) -> dict[str, bytes]:
    """The bytes of the account's vectors in the bundle, as they stand in its file."""
    place = (bundle / "server" / "accounts.txt").read_text().splitlines().index(account)
    tables: dict[str, Any] = load_file(bundle / "server" / "vectors.safetensors")
    rows = {name: np.ascontiguousarray(table[place]).tobytes() for name, table in tables.items()}
    return {f"vector {name}": row for name, row in rows.items() if len(row) >= 16}


def times_of(data: Path, account: str) -> dict[str, bytes]:
    """The bytes of the times of the account's events: a run of 8 of them stands nowhere else."""
    dataset = load_dataset(data)
    assert dataset.times is not None
    row = dataset.sequence_accounts.tolist().index(dataset.accounts.index(account))
    times = dataset.times[dataset.offsets[row] : dataset.offsets[row + 1]]
    return {"times": np.ascontiguousarray(times[:8]).tobytes()}


@pytest.mark.services
def test_no_file_holds_an_account_after_it_was_forgotten(tmp_path: Path) -> None:
    data, model, bundle, url = (tmp_path / name for name in ("data", "run", "bundle", "events.db"))
    generate(HouseholdConfig(accounts=60), seed=3, out=data)
    training = TrainingConfig(epochs=2, batch_size=16, learning_rate=0.01)
    settings = {"layers": 1}
    train_run(RunPlan(data, "lightgc2n", split=SplitConfig(), settings=settings, training=training), model)
    export_run(model, bundle, ExportOptions())
    store = create_store(str(url))
    fill_store(store, data)
    store.close()
    account = load_dataset(data).accounts[7]
    secrets = {"id": account.encode(), "item": SECRET_ITEM.encode(), "event": SECRET_EVENT.encode()}
    secrets |= {"session": SECRET_SESSION.encode()} | vectors_of(bundle, account) | times_of(data, account)
    assert any(name.startswith("vector") for name in secrets)
    logs = tmp_path / "logs"
    logs.mkdir()
    with command(bundle, "--store", url, "--audit-log", logs / "audit.log") as service:
        event = {"account": account, "item": SECRET_ITEM, "id": SECRET_EVENT, "session": SECRET_SESSION}
        assert send(service.client, event).status == 201
        assert service.client.recommend(account=account, k=5).status == 200
        (logs / "service.log").write_bytes(service.logs.read_bytes())
    found = {name for _, name in holders(tmp_path, secrets)}
    assert found == set(secrets), "or this test sees nothing"
    report = json.loads(
        run("forget", account, "--data", data, "--run", model, "--bundle", bundle, "--store", url, "--json")
    )
    assert all(place["forgotten"] == 1 and place["stays"] for place in report.values())
    run("store", "compact", url)
    assert holders(tmp_path, secrets) == []
    run("store", "export", url, "--out", tmp_path / "next")  # nor the next training
    assert holders(tmp_path, secrets) == []
    audit = [json.loads(line) for line in (logs / "audit.log").read_text().splitlines()]
    assert [len(line["accounts"][0]) for line in audit] == [64]
