"""`lightgc2n recommend`: the same lists on the screen, as JSON and in files, and nothing half-written."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from lightgc2n.errors import OutputError
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.recommender import Recommendations, Recommender
from lightgc2n.recommending.write_recommendations import write_recommendations
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.cli.test_commands import Done, run

Row = tuple[str, str, float, int]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    generate(HouseholdConfig(accounts=60), seed=3, out=folder / "data")
    plan = RunPlan(folder / "data", "lightgc2n-wo-dr", training=TrainingConfig(epochs=2, batch_size=32))
    train_run(plan, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def recommender(trained: Path) -> Recommender:
    return load(trained)


def recommend(trained: Path, *words: object) -> Done:
    return run("recommend", trained, "--device", "cpu", *words)


def rows_of(lists: Iterator[Recommendations]) -> list[Row]:
    return [(one.account_id or "", *found) for one in lists for found in one]


def read_csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["account_id", "item_id", "score", "rank"]
    return [(account, item, float(score), int(rank)) for account, item, score, rank in lines[1:]]


def test_api_json_and_file_agree(trained: Path, recommender: Recommender, tmp_path: Path) -> None:
    first, second = recommender.dataset.accounts[:2]
    wanted = rows_of(recommender.recommend_many([second, first], k=4, exclude_seen=True))
    words = ["--account", second, "--account", first, "-k", 4, "--exclude-seen"]
    shown = recommend(trained, *words, "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert [(one["account_id"], *item.values()) for one in found for item in one["items"]] == wanted
    assert [list(item) for item in found[0]["items"]] == [["item_id", "score", "rank"]] * 4
    assert not any(one["fallback"] or one["notes"] for one in found)
    assert recommend(trained, *words, "--out", tmp_path / "recs.csv").returncode == 0
    assert read_csv(tmp_path / "recs.csv") == wanted
    table = recommend(trained, *words).stdout
    assert all(item in table and f"{score:.4f}" in table for _, item, score, _ in wanted)


def test_all_accounts_in_every_format(trained: Path, recommender: Recommender, tmp_path: Path) -> None:
    wanted = rows_of(recommender.recommend_many(k=7))
    for name in ("recs.csv", "recs.parquet", "recs.jsonl"):
        done = recommend(trained, "--all", "-k", 7, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert f"written to {tmp_path / name}" in done.stdout
    assert read_csv(tmp_path / "recs.csv") == wanted
    assert pl.read_parquet(tmp_path / "recs.parquet").rows() == wanted
    lines = (tmp_path / "recs.jsonl").read_text(encoding="utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recs.csv", "recs.jsonl", "recs.parquet"]


def test_a_history(trained: Path, recommender: Recommender) -> None:
    account, items = recommender.dataset.accounts[3], recommender.dataset.items[5:9]
    alone = recommend(trained, "--history", ",".join([*items, "x"]), "-k", 3, "--json")
    assert json.loads(alone.stdout)[0]["items"] == [one._asdict() for one in recommender.recommend(history=items, k=3)]
    assert "new account: left out of the history, because not in data: 'x'" in alone.stderr
    both = recommend(trained, "--account", account, "--history", ",".join(items), "-k", 3, "--json")
    assert json.loads(both.stdout)[0]["items"] == [one._asdict() for one in recommender.recommend(account, items, k=3)]
    quoted = recommend(trained, "--history", f'"x, y",{items[0]}', "-k", 3)
    assert "left out of the history, because not in data: 'x, y'" in quoted.stderr
    broken = recommend(trained, "--history", "a\nb", "-k", 3)
    assert (broken.returncode, "expected ids separated by commas" in broken.stderr) == (2, True)
    unknown = recommend(trained, "--history", "Alien, part 84", "-k", 3)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "--history: no item 'Alien', ' part 84' is in the catalogue." in unknown.stderr
    nothing = recommend(trained, "--history", "", "-k", 3)
    assert "no history: the most popular items" in nothing.stderr


def test_latent_users_beside_the_list(trained: Path, recommender: Recommender) -> None:
    account = recommender.dataset.accounts[3]
    whose = recommender.ownership(account)
    shown = recommend(trained, "--account", account, "-k", 2, "--people", "--json")
    assert shown.returncode == 0, shown.stderr
    (found,) = json.loads(shown.stdout)
    assert len(found["items"]) == 2
    assert found["latent_users"]["weights"] == list(whose.weights)
    events = found["latent_users"]["events"]
    assert [(event["item_id"], tuple(event["shares"])) for event in events] == list(whose)
    assert "not yet identified people" in found["latent_users"]["note"]
    assert "latent_users" not in json.loads(recommend(trained, "--account", account, "--json").stdout)[0]


def test_the_screen_shows_the_newest_events_of_each_account(trained: Path, recommender: Recommender) -> None:
    lengths = {account: len(recommender.ownership(account)) for account in recommender.dataset.accounts}
    longest, shortest = max(lengths, key=lengths.__getitem__), min(lengths, key=lengths.__getitem__)
    table = recommend(trained, "--account", longest, "--account", shortest, "-k", 1, "--people").stdout
    assert f"{longest}: latent users of the newest 20 of {lengths[longest]} events" in table
    assert f"{shortest}: latent users of {lengths[shortest]} events" in table
    rows = [line.split("│") for line in table.splitlines() if "%" in line]
    wanted = [
        (item, *(f"{100 * share:.0f} %" for share in shares))
        for account in (longest, shortest)
        for item, shares in [
            *recommender.ownership(account)[-20:],
            ("weight in the account", recommender.ownership(account).weights),
        ]
    ]
    assert [tuple(cell.strip() for cell in row[1:-1]) for row in rows] == wanted
    assert "They are not yet identified people." in table


def test_the_people_of_a_history(trained: Path, recommender: Recommender) -> None:
    items = recommender.dataset.items[5:8]
    done = recommend(trained, "--history", ",".join(items), "--people", "--json")
    events = json.loads(done.stdout)[0]["latent_users"]["events"]
    assert [tuple(event["shares"]) for event in events] == [one.shares for one in recommender.ownership(history=items)]
    assert (
        "new account: latent users of 3 events" in recommend(trained, "--history", ",".join(items), "--people").stdout
    )


def test_lists_of_items_in_files(trained: Path, recommender: Recommender, tmp_path: Path) -> None:
    account, items = recommender.dataset.accounts[3], recommender.dataset.items
    (tmp_path / "allow.txt").write_text("\ufeff" + "\r\n".join(items[:6]) + "\r\n\r\n", encoding="utf-8")
    (tmp_path / "deny.txt").write_text(items[2], encoding="utf-8")
    done = recommend(
        *(trained, "--account", account, "--allow", tmp_path / "allow.txt", "--deny", tmp_path / "deny.txt", "--json")
    )
    found = {one["item_id"] for one in json.loads(done.stdout)[0]["items"]}
    assert found == set(items[:6]) - {items[2]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no account and no history. Give --account ID, --all or --history"),
        (["--account", "x"], "unknown account 'x'"),
        (["--account", "A", "--account", "x", "--out", "recs.csv"], "unknown account 'x'"),
        (["--account", "A", "-k", "0", "--out", "recs.csv"], "k (-k) must be at least 1, found 0"),
        (["--account", "A", "--all"], "omit --account and --history"),
        (["--all"], "--all makes long lists: give --out FILE"),
        (["--account", "A", "--account", "A", "--history", "x"], "--history replaces the history of one account"),
        (["--all", "--out", "recs.txt"], "recs.txt: expected a name that ends in .csv, .jsonl, .parquet"),
        (["--all", "--out", "."], "expected a name that ends in"),
        (["--all", "--people", "--out", "recs.csv"], "--people is printed on the screen or with --json"),
        (["--account", "A", "--allow", "LIST", "--out", "recs.csv"], "list.txt:2: item 'nothing' is not in data"),
        (["--account", "A", "--deny", "EMPTY"], "holds no item id"),
        (["--account", "A", "--deny", "BYTES"], "not a text file in UTF-8"),
        (["--account", "A", "--deny", "nowhere.txt"], "nowhere.txt: No such file"),
    ],
)
def test_errors_leave_no_output(
    words: list[str],
    message: str,
    trained: Path,
    recommender: Recommender,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists, work = tmp_path / "lists", tmp_path / "work"
    lists.mkdir()
    work.mkdir()
    (lists / "list.txt").write_text(f"{recommender.dataset.items[0]}\nnothing\n")
    (lists / "empty.txt").write_text("\n\n")
    (lists / "bytes.txt").write_bytes(b"\xff\xfe\xfa")
    places = {"LIST": lists / "list.txt", "EMPTY": lists / "empty.txt", "BYTES": lists / "bytes.txt"}
    monkeypatch.chdir(work)
    done = recommend(trained, *({"A": recommender.dataset.accounts[0], **places}.get(word, word) for word in words))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert list(work.iterdir()) == []


def test_nothing_is_replaced_unasked(trained: Path, recommender: Recommender, tmp_path: Path) -> None:
    out = tmp_path / "recs.csv"
    out.write_text("mine")
    words = ["--account", recommender.dataset.accounts[0], "--out", out]
    assert "exists already" in recommend(trained, *words).stderr
    assert out.read_text() == "mine"
    assert recommend(trained, *words, "--force").returncode == 0
    assert len(read_csv(out)) == 20
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        write_recommendations(tmp_path / "folder.csv", [], force=True)


@pytest.mark.parametrize("name", ["recs.csv", "recs.jsonl", "recs.parquet"])
def test_an_error_midway_leaves_no_file(name: str, recommender: Recommender, tmp_path: Path) -> None:
    def broken() -> Iterator[Recommendations]:
        yield from recommender.recommend_many(recommender.dataset.accounts[:3])
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        write_recommendations(tmp_path / name, broken())
    assert list(tmp_path.iterdir()) == []
    write_recommendations(tmp_path / name, [])  # no list at all is a file with the columns alone
    assert (tmp_path / name).is_file()


def test_importing_the_package_needs_nothing_heavy() -> None:
    code = (
        "import sys, lightgc2n; assert not {'torch', 'numpy', 'polars'} & set(sys.modules);"
        "lightgc2n.load; assert not {'torch', 'polars', 'onnxruntime'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
