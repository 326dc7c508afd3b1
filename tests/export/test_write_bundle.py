"""What is in a bundle and what is not, that it is the same each time, and what cannot be exported."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.export import write_bundle
from lightgc2n.export.onnx_builder import IR_VERSION, OPSET
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.recommending.bundle_files import part_sizes, read_json, write_manifest
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import load_with_split
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.checkpoints import BEST, load_checkpoint
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import RunPlan
from tests.cli.test_commands import run
from tests.export.town import EXPORTED, bundle_of, data, run_of

DEVICE_PART = "device part without vocabularies"


@pytest.mark.parametrize("model", EXPORTED)
@pytest.mark.parametrize("int8", [False, True])
def test_weights_are_stored_once(model: str, int8: bool) -> None:
    bundle = bundle_of(model, int8)
    graph = onnx.load(bundle / "model.onnx", load_external_data=False)
    stored = load_file(bundle / "weights.safetensors")
    inside = {one.name: one for one in graph.graph.initializer}
    outside = {name for name, one in inside.items() if one.data_location == onnx.TensorProto.EXTERNAL}
    assert outside == set(stored) - {"popularity"}
    assert sum(len(one.raw_data) for one in inside.values()) < 2_000, "only small constants are inside"
    whole = onnx.load(bundle / "model.onnx")  # with what it finds in the file of weights
    for one in whole.graph.initializer:
        if one.name in outside:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(one), stored[one.name])
    assert (graph.ir_version, [one.version for one in graph.opset_import]) == (IR_VERSION, [OPSET])
    onnx.checker.check_model(str(bundle / "model.onnx"), full_check=True)


@pytest.mark.parametrize("model", EXPORTED)
def test_the_device_part_knows_nobody(model: str) -> None:
    """No id of an account, and no array with a row for each of the 60."""
    bundle = bundle_of(model)
    accounts = load(run_of(model)).dataset.accounts
    for path in (*bundle.iterdir(), *(bundle / "people").iterdir()):
        if path.is_file():
            assert not [one for one in accounts if one.encode() in path.read_bytes()]
    for name in ("weights.safetensors", "people/finder.safetensors"):
        shapes = {key: array.shape for key, array in load_file(bundle / name).items()}
        assert not [key for key, shape in shapes.items() if len(accounts) in shape]
    assert (load_file(bundle / "server" / "vectors.safetensors")["account"].shape[0] == len(accounts)
            if model == "lightgc2n" else not (bundle / "server" / "vectors.safetensors").exists())  # fmt: skip


def test_the_same_run_gives_the_same_bundle(tmp_path: Path) -> None:
    export_run(run_of("lightgc2n"), tmp_path / "again", ExportOptions())
    first, second = (folder / "SHA256SUMS" for folder in (bundle_of("lightgc2n"), tmp_path / "again"))
    assert first.read_text() == second.read_text()
    for path in (tmp_path / "again").rglob("*"):
        assert (
            path.is_dir() or path.stat().st_mode & 0o444 == (tmp_path / "again" / "config.json").stat().st_mode & 0o444
        )


@pytest.mark.parametrize("place", [0, 4])
def test_earlier_items_fall_as_far_as_they_do_in_the_run(place: int, tmp_path: Path) -> None:
    shutil.copytree(run_of("lightgc2n-plus"), tmp_path / "run")
    tensors, _, progress = load_checkpoint(tmp_path / "run" / BEST)
    tensors["memory.balance"] = torch.tensor([-1.0, 1.5, place])
    save_file(tensors, tmp_path / "run" / BEST, metadata={"progress": json.dumps(asdict(progress))})
    export_run(tmp_path / "run", tmp_path / "bundle", ExportOptions(people=False))
    run, bundle = load(tmp_path / "run"), load_bundle(tmp_path / "bundle")
    for account in run.dataset.accounts[:10]:
        first, second = (one.recommend(account, k=60) for one in (run, bundle))
        wanted = {one.item_id: one.score for one in first}
        assert {one.item_id for one in second} == wanted.keys()
        np.testing.assert_allclose([one.score for one in second], [wanted[one.item_id] for one in second], rtol=1e-4)


def test_the_card_says_what_it_is_and_how_good() -> None:
    bundle = bundle_of("lightgc2n-plus", True)
    card, config = (bundle / "README.md").read_text(), json.loads((bundle / "config.json").read_text())
    ranks = evaluate_run(run_of("lightgc2n-plus")).ranks["lightgc2n-plus"]
    wanted = float(np.where(ranks <= 20, 1 / ranks, 0).mean())
    assert config["metrics"]["values"]["MRR@20"] == pytest.approx(wanted)
    assert f"| MRR@20 | {100 * wanted:.2f} |" in card
    for text in (
        "# lightgc2n-plus on data",
        "- protocol: last",
        "not a probability",
        "quantized to int8",
        "- schema: 3",
    ):
        assert text in card


def test_titles(tmp_path: Path) -> None:
    items = load(run_of("sasrec")).dataset.items
    (tmp_path / "titles.tsv").write_text(f"{items[0]}\tA name\n{items[5]}\tNöm, two\nelsewhere\tNobody's\n")
    export_run(run_of("sasrec"), tmp_path / "bundle", ExportOptions(titles=tmp_path / "titles.tsv"))
    assert load_bundle(tmp_path / "bundle").titles == {items[0]: "A name", items[5]: "Nöm, two"}
    (tmp_path / "other.tsv").write_text("elsewhere\tNobody's\n")
    with pytest.raises(DataError, match="has a title for none of the"):
        export_run(run_of("sasrec"), tmp_path / "third", ExportOptions(titles=tmp_path / "other.tsv"))
    assert not (tmp_path / "third").exists()


def test_a_bundle_keeps_what_the_dataset_knows_of_items(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=60), 3, tmp_path / "town", titles=True)
    town = load_dataset(tmp_path / "town")
    assert town.checksum == load_dataset(data()).checksum
    run, item = load(run_of("sasrec"), tmp_path / "town"), town.items[0]
    assert run.titles == town.titles
    export_run(run_of("sasrec"), tmp_path / "bundle", ExportOptions(), tmp_path / "town")
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.catalogue == {item: town.catalogue[item] for item in town.items}
    titles = ExportOptions(titles={item: "Mine"})  # in place of the dataset's own
    export_run(run_of("sasrec"), tmp_path / "other", titles, tmp_path / "town")
    assert load_bundle(tmp_path / "other").catalogue[item] == replace(town.catalogue[item], title="Mine")


@pytest.mark.parametrize(
    "line", ['{"item": "v1", "image": "javascript:alert(1)"}', '{"item": "v1", "year": true}', "{"]
)
def test_a_catalogue_that_export_would_not_write_is_refused(line: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    export_run(run_of("sasrec"), bundle, ExportOptions(histories=False, people=False))
    (bundle / "catalogue.jsonl").write_text(f"{line}\n")
    write_manifest(bundle, "config.json", read_json(bundle / "config.json"))
    with pytest.raises(DataError, match=r"catalogue\.jsonl.*again"):
        load_bundle(bundle)


def test_the_command(tmp_path: Path) -> None:
    done = run("export", run_of("sasrec"), "--out", tmp_path / "bundle", "--int8", "--no-histories", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["int8"], found["bytes"]["server part"]) == ("sasrec", True, 0)
    sizes = [path.stat().st_size for path in (tmp_path / "bundle").rglob("*") if path.is_file()]
    assert sum(sizes) == sum(found["bytes"][part] for part in (DEVICE_PART, "vocabularies"))
    people = [path.stat().st_size for path in (tmp_path / "bundle" / "people").iterdir()]
    assert found["bytes"]["people in it"] == sum(people) > 0
    again = run("export", run_of("sasrec"), "--out", tmp_path / "bundle")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    shown = run("export", run_of("sasrec"), "--out", tmp_path / "bundle", "--force")
    size = part_sizes(tmp_path / "bundle")[DEVICE_PART]
    assert f"model: {size / 1e6:.2f} MB, of which" in shown.stdout
    assert load_bundle(tmp_path / "bundle").recommend("h000001", k=3)


def test_what_cannot_be_exported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = TrainingConfig(epochs=1, batch_size=64)
    train_run(RunPlan(data(), "gmf", settings={"width": 4}, training=few), tmp_path / "gmf")
    with pytest.raises(
        SettingError,
        match=r"gmf cannot be exported: it has no graph for bundles\. These can: .*markov-recency, .*lightgc2n-plus",
    ):
        export_run(tmp_path / "gmf", tmp_path / "bundle", ExportOptions())
    broken = load(run_of("sasrec"))
    with torch.no_grad():
        broken.scorer.model.items[3, 1] = torch.nan  # type: ignore[union-attr, operator, index]
    split = load_with_split(run_of("sasrec"))[1]
    monkeypatch.setattr(write_bundle, "load_with_split", lambda *_: (broken, split))
    with pytest.raises(DataError, match="sasrec: items is not finite"):
        export_run(run_of("sasrec"), tmp_path / "bundle", ExportOptions())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    monkeypatch.undo()
    with pytest.raises(OutputError, match="was not made by this command"):
        export_run(run_of("sasrec"), tmp_path / "mine", ExportOptions(), force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gmf", "mine"]
