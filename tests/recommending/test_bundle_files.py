"""Whatever happens to the files of a bundle, it is refused with a sentence, and before anything of it is used."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lightgc2n.errors import DataError
from lightgc2n.files.atomic_writes import sha256
from lightgc2n.recommending import load_bundle as bundle_module
from lightgc2n.recommending.bundle_files import SCHEMA, device_checksum, is_bundle, open_bundle, write_manifest
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from tests.cli.test_commands import run
from tests.export.town import bundle_of

MODEL = "lightgc2n"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_of(MODEL), tmp_path / "bundle"))


def files_of(bundle: Path) -> list[Path]:
    return sorted(path for path in bundle.rglob("*") if path.is_file())


def refuse(bundle: Path, message: str | None = None) -> str:
    with pytest.raises(DataError, match=message) as problem:
        load_bundle(bundle)
    assert "\n" not in str(problem.value)
    return str(problem.value)


Mutation = Callable[[bytearray, random.Random], None]


def flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def cut_lines(data: bytearray, dice: random.Random) -> None:
    """A cut at the end of a line may leave a sound file behind."""
    lines = bytes(data).splitlines(keepends=True)
    data[:] = b"".join(lines[: dice.randrange(len(lines))])


def swap(data: bytearray, dice: random.Random) -> None:
    first, second = dice.sample(range(len(data)), 2)
    if data[first] == data[second]:
        data[first] ^= 1
    data[first], data[second] = data[second], data[first]


def lengthen(data: bytearray, dice: random.Random) -> None:
    data.extend(dice.randbytes(dice.choice((1, 2, 50))))


MUTATIONS: tuple[Mutation, ...] = (flip, flip, flip, cut, cut, cut_lines, swap, lengthen)


def check_mutations(bundle: Path, numbers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: object) -> None:
        raise AssertionError("something of the bundle was used")

    for used in ("read_device", "read_server", "open_session"):
        monkeypatch.setattr(bundle_module, used, unwanted)
    files = files_of(bundle)
    for number in numbers:
        dice = random.Random(number)
        path = files[number % len(files)]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        dice.choice(MUTATIONS)(damaged, dice)
        path.write_bytes(damaged)
        try:
            refuse(bundle)
        except BaseException as problem:
            problem.add_note(f"This is number {number}, in {path.name}.")
            raise
        path.write_bytes(whole)
    open_bundle(bundle)


def test_damaged_bundles(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutations(bundle, range(60), monkeypatch)


@pytest.mark.slow
def test_many_damaged_bundles(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutations(bundle, range(60, 1060), monkeypatch)


def test_every_file_is_missed(bundle: Path) -> None:
    for path in files_of(bundle):
        whole = path.read_bytes()
        path.unlink()
        refuse(bundle)
        assert is_bundle(bundle)
        path.write_bytes(whole)
    load_bundle(bundle)


def test_the_damaged_file_is_named(bundle: Path) -> None:
    (bundle / "items.txt").write_text("a\nb\n")
    assert "checksum differs from SHA256SUMS (items.txt)" in refuse(bundle)


def test_another_schema(bundle: Path) -> None:
    config = json.loads((bundle / "config.json").read_text())
    for schema, message in (
        (
            SCHEMA + 1,
            r"bundle of schema 4, made by lightgc2n .*; this version reads 2 and 3\. Install a newer",
        ),
        (1, r"bundle of schema 1, this version reads 2 and 3\. Make it again with: lightgc2n\.load\(RUN\)\.export"),
        ("x", "bundle of schema 'x'"),
        (True, "bundle of schema True"),
    ):
        (bundle / "config.json").write_text(json.dumps(config | {"schema": schema}))
        refuse(bundle, message)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    refuse(tmp_path, r"not a bundle \(no config.json\)")
    (tmp_path / "config.json").write_text('{"architectures": ["Bert"]}')
    refuse(tmp_path, "not that of a bundle")
    for text in ("[1]", "nothing", "[" * 100_000, "{" + " " * 2**21 + "}"):
        (tmp_path / "config.json").write_text(text)
        refuse(tmp_path, "damaged, or not of a bundle")


def test_a_server_part_of_another_bundle(bundle: Path) -> None:
    shutil.rmtree(bundle / "server")
    load_bundle(bundle)
    shutil.copytree(bundle_of("sasrec") / "server", bundle / "server")
    refuse(bundle, "belongs to another device part")


def sign(bundle: Path) -> None:
    """Writes right checksums, as somebody would who means harm."""
    write_manifest(bundle, "config.json", json.loads((bundle / "config.json").read_text()))
    facts = json.loads((bundle / "server" / "server.json").read_text())
    facts["device"] = hashlib.sha256((bundle / "SHA256SUMS").read_bytes()).hexdigest()
    write_manifest(bundle / "server", "server.json", facts)


def test_files_that_do_not_fit_each_other(bundle: Path) -> None:
    sign(bundle)
    load_bundle(bundle)
    whole = {path: path.read_bytes() for path in files_of(bundle)}
    histories, vectors = bundle / "server" / "histories.safetensors", bundle / "server" / "vectors.safetensors"
    arrays = load_file(histories)
    config = json.loads(whole[bundle / "config.json"])

    def events(**changed: np.ndarray) -> Callable[[], None]:
        return lambda: save_file(arrays | changed, histories)

    for change, message in (
        (lambda: (bundle / "items.txt").write_text("a\nb\n"), "items.txt: lines: expected 4,000, found 2"),
        (lambda: (bundle / "items.txt").write_bytes(b"\xff\n"), "items.txt: expected text in UTF-8"),
        (lambda: (bundle / "weights.safetensors").write_bytes(b"\xff" * 90), "weights.safetensors"),
        (lambda: (bundle / "model.onnx").write_bytes(b"nothing"), "onnxruntime cannot read it"),
        (lambda: (bundle / "config.json").write_text(json.dumps(config | {"data": 3})), "config.json: data: expected"),
        (
            lambda: (bundle / "config.json").write_text(json.dumps(config | {"account_width": 7})),
            "vectors.safetensors: account",
        ),
        (lambda: (bundle / "server" / "accounts.txt").write_text("a\nb\n"), "server.json: accounts: expected 2"),
        (events(offsets=arrays["offsets"][::-1].copy()), "histories.safetensors: offsets: expected growing"),
        (events(events=arrays["events"] + 10**6), "histories.safetensors: events: expected items below 4,000"),
        (events(events=arrays["events"] - 10**6), "histories.safetensors: events: expected numbers from 0"),
        (lambda: save_file({"other": np.zeros(3)}, vectors), "vectors.safetensors"),
    ):
        change()  # type: ignore[no-untyped-call]
        sign(bundle)
        assert message in refuse(bundle)
        for path, data in whole.items():
            path.write_bytes(data)


@pytest.mark.parametrize("files", [["../outside"], ["a/b"], [".."], [3], "items.txt", None])
def test_nothing_outside_of_the_folder_is_read(files: object, bundle: Path) -> None:
    config = json.loads((bundle / "config.json").read_text())
    (bundle / "config.json").write_text(json.dumps(config | {"files": files}))
    refuse(bundle, "it does not list its files")


LINKED = ("README.md", "items.txt", "config.json", "SHA256SUMS", "people", "server", "server/accounts.txt")


@pytest.mark.parametrize("name", LINKED)
def test_a_link_inside_a_bundle_is_refused(name: str, bundle: Path, tmp_path: Path) -> None:
    """Even where the link leads to the very file: what it leads to can change, and be outside."""
    outside = tmp_path / "outside"
    (bundle / name).rename(outside)
    (bundle / name).symlink_to(outside)
    assert str(bundle / name) in refuse(bundle, "a link, or no regular file")


def test_a_link_that_nothing_reads_is_refused_too(bundle: Path) -> None:
    (bundle / "notes").symlink_to("/etc/hostname")
    refuse(bundle, "notes: a link, or no regular file")
    (bundle / "notes").unlink()
    (bundle / "notes").mkdir()
    (bundle / "notes" / "gone").symlink_to("nowhere")
    refuse(bundle, "notes/gone: a link, or no regular file")


@pytest.mark.parametrize("name", ["README.md", "model.onnx", "server/people.safetensors", "extra"])
def test_a_fifo_is_an_error_and_does_not_block(name: str, bundle: Path) -> None:
    (bundle / name).unlink(missing_ok=True)
    os.mkfifo(bundle / name)
    refuse(bundle, f"{name}: a link, or no regular file")


def test_a_link_to_a_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    (tmp_path / "second").symlink_to("current")
    for link in ("current", "second"):
        assert load_bundle(tmp_path / link).dataset.checksum == load_bundle(bundle).dataset.checksum
    (tmp_path / "loop").symlink_to("loop")
    refuse(tmp_path / "loop", "not a bundle")


@pytest.mark.parametrize("name", ["model.onnx", "weights.safetensors", "server/histories.safetensors", "items.txt"])
def test_a_file_that_changes_while_it_is_read(
    name: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link takes the place of a file after its checksum was found right, and before the file is opened by name."""

    def swapped(folder: Path) -> object:
        files = open_bundle(folder)
        (bundle / name).rename(tmp_path / "outside")
        (bundle / name).symlink_to(tmp_path / "outside")
        return files

    monkeypatch.setattr(bundle_module, "open_bundle", swapped)
    refuse(bundle, "a link, or no regular file|External data path escapes model directory")
    (bundle / name).unlink()
    (tmp_path / "outside").rename(bundle / name)

    def rewritten(folder: Path) -> object:
        files = open_bundle(folder)
        (bundle / name).write_bytes((bundle / name).read_bytes())
        return files

    monkeypatch.setattr(bundle_module, "open_bundle", rewritten)
    refuse(bundle, "changed while the bundle was being read")


def test_weights_outside_of_the_folder(bundle: Path, tmp_path: Path) -> None:
    """The graph names the file of its weights: it cannot name one elsewhere."""
    onnx = pytest.importorskip("onnx")
    (tmp_path / "weights.safetensors").write_bytes((bundle / "weights.safetensors").read_bytes())
    for place in ("../weights.safetensors", str(tmp_path / "weights.safetensors")):
        graph = onnx.load(bundle / "model.onnx", load_external_data=False)
        for tensor in graph.graph.initializer:
            for entry in tensor.external_data:
                entry.value = place if entry.key == "location" else entry.value
        onnx.save(graph, bundle / "model.onnx")
        sign(bundle)
        refuse(bundle, "model.onnx: onnxruntime cannot read it")


def test_the_checksum_covers_both_parts(bundle: Path) -> None:
    whole = open_bundle(bundle)
    sums = "".join(f"{sha256(bundle / name)}  {name}\n" for name in ("SHA256SUMS", "server/SHA256SUMS"))
    assert whole.checksum == hashlib.sha256(sums.encode()).hexdigest()
    forget_in_bundle(bundle, ["h000005"])
    less = open_bundle(bundle)
    assert less.checksum != whole.checksum
    assert device_checksum(bundle) == json.loads((bundle / "server" / "server.json").read_text())["device"]
    shutil.rmtree(bundle / "server")
    assert open_bundle(bundle).checksum == device_checksum(bundle) != less.checksum


def test_the_command_refuses_without_a_traceback(bundle: Path) -> None:
    (bundle / "model.onnx").write_bytes(b"nothing")
    done = run("recommend", bundle, "--history", "x")
    assert done.returncode == 2
    assert "model.onnx" in done.stderr
    assert "Traceback" not in done.stderr
