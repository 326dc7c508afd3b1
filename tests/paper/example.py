"""A small world in which every claim can be judged, and a report of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lightgc2n.experiments.results import ResultGroup, RunResult
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper import published
from lightgc2n.paper.claims import judge
from lightgc2n.paper.document import Document, Figure, Opening, Section, Series
from lightgc2n.paper.first_screen import opening_of
from lightgc2n.paper.published import checked, published_section

ACCOUNTS = 400
VARIANTS = tuple(f"lightgc2n-wo-{name.lower()}" for name in published.VARIANTS)
PUBLISHED = [name for names in published.IN_THE_ZOO.values() for name in names]
SETTINGS = {"latent_users": 3, "temperature": 0.8, "contrast_weight": 0.8, "layers": 2}


class Key(NamedTuple):
    """What the seeds of one run share."""

    dataset: str
    protocol: str
    run: str


def grouped(runs: Mapping[Key, Sequence[RunResult]]) -> list[ResultGroup]:
    """The runs as a report reads them, each with the identity of its key."""
    return [
        ResultGroup(
            tuple(replace(one, dataset_folder=key.dataset, protocol=key.protocol, label=key.run) for one in seeds)
        )
        for key, seeds in runs.items()
        if seeds
    ]


def run(
    model: str = "lightgc2n",
    skill: float = 0.5,
    *,
    seed: int = 0,
    parameters: int = 100_000,
    seconds: float = 10.0,
    share: float = 1.0,
    domains: int = 1,
    **settings: float,
) -> RunResult:
    """A run whose targets rank first, for a share `skill` of the accounts, and 40th for the others."""
    first = np.arange(ACCOUNTS) < skill * ACCOUNTS
    rank = np.where(np.random.default_rng(seed).permutation(first) if seed else first, 1.0, 40.0)
    return RunResult(
        model=model,
        seed=seed,
        rank=rank,
        owner=np.arange(ACCOUNTS),
        parameters=parameters,
        epochs=10,
        training_seconds=10 * seconds,
        device="cpu",
        settings=SETTINGS | settings,
        training_share=share,
        domains=domains,
    )


def results() -> dict[str, dict[Key, list[RunResult]]]:
    """Runs of every experiment, made so that the model is good and two of the claims fail."""
    order = {name: 0.2 + 0.03 * place for place, name in enumerate(PUBLISHED)}
    return {
        "table1": {
            Key(data, protocol, name): [run(name, skill + (0.2 if protocol == "windows" else 0))]
            for data, protocol in (("E", "last"), ("V", "last"), ("E", "windows"))
            for name, skill in order.items()
        },
        "ablation": {
            Key("E", "last", name): [run(name, 0.52 if name.endswith("cl") else 0.3 if name in VARIANTS else 0.52)]
            for name in ("lightgc2n", *VARIANTS)
        },
        "efficiency": {
            Key("E", "last", f"{name} {share}"): [
                run(name, parameters=size, seconds=seconds * share, share=share, domains=domains)
            ]
            for share in (0.2, 0.4, 0.6, 0.8, 1.0)
            for name, size, seconds, domains in (
                ("lightgc2n", 100_000, 4, 1),
                ("pi-net", 300_000, 9, 2),
                ("psjnet-2", 320_000, 12, 2),
                ("da-gcn", 250_000, 8, 2),
                ("tida-gcn", 150_000, 3, 2),
            )
        },
    }


def standings() -> Opening:
    """Two honest tests and one as the paper tests: the simple baseline is ahead in two of three."""
    skills = {"lightgc2n": (0.3, 0.5, 0.4), "lightgc2n-plus": (0.6, 0.55, 0.3), "account-markov": (0.5, 0.2, 0.8)}
    tests = (("E", "last"), ("V", "last"), ("Hvideo_E", "windows"))
    found = {
        Key(*test, name): [run(name, skill)]
        for name, row in skills.items()
        for test, skill in zip(tests, row, strict=True)
    }
    opening = opening_of(
        grouped(found), {"account-markov"}, published.table1(), {tests[2]: "HV-E"}, {"Hvideo_E": "A fifth."}
    )
    assert opening is not None
    return opening


def document() -> Document:
    """A report with every kind of plot and mark, and names that would be markup if they were not escaped."""
    return Document(
        title="LightGC²N, measured again",
        summary=(
            "LightGC²N (AAAI 2025) recommends the next item to accounts that several people share. "
            "We built it and its nine rivals from the paper's text and ran its experiments again. "
            "Below, each claim of the paper is held against the numbers that the paper prints, and against our runs.",
        ),
        verdicts=judge({name: grouped(runs) for name, runs in results().items()}),
        sections=(
            published_section(),
            Section("table1", "All models side by side (RQ2)", ("What follows is made up.",), (table(),), figures()),
        ),
        made=(("seeds", "0"), ("command", "lightgc2n experiment all --quick <b>")),
        opening=standings(),
    )


def table() -> Table:
    rows = (
        (Cell("lightgc2n"), Cell("16.28", 16.28, 15.9, 16.7, mark="best"), Cell("8.10", 8.1, 7.9, 8.3)),
        (Cell("<script>alert(1)</script>"), Cell("12.00", 12.0, note="one seed <i>only</i>"), Cell("", mark="missing")),
        (Cell("a|b"), Cell("14.00", 14.0, mark="impossible", note="MRR above RC"), Cell("7.00", 7.0)),
    )
    notes = ("Protocol last; seed 0; 12 GPU seconds.", checked({}))
    return Table(
        "table1-E", "All models on E, in %", ("model", "RC@5", "MRR@5"), rows, "lightgc2n experiment table1", notes
    )


def figures() -> tuple[Figure, ...]:
    names = ("lightgc2n", "sasrec", "hrnn", "markov")
    steps = tuple(
        Series(name, (1.0, 2.0, 3.0), (3.0 + place, 2.0, 1.0), (2.5 + place, 1.5, 0.5), (3.5 + place, 2.5, 1.5))
        for place, name in enumerate(names)
    )
    many = (*names, "recency", "popularity", "lightgc2n-plus")  # names stand at the ends of so many lines
    words = tuple(
        Series(name, ("target in input", "honest logs"), (90.0 - place, 15.0)) for place, name in enumerate(many)
    )
    bars = (Series("a domain", names, (1e5, 2e5, 3e5, 0.0)), Series("in all", names, (2e5, 4e5, 6e5, 0.0)))
    dots = (Series("MRR@20", names, (4.0, 3.0, 2.0, 1.0), (3.5, 2.5, 1.5, 0.5), (4.5, 3.5, 2.5, 1.5)),)
    command = "lightgc2n experiment leak"
    panels = (
        Figure("leak-E", "E", "lines", "protocol", "MRR@20, %", words, command),
        Figure("leak-V", "V", "lines", "latent users α", "MRR@20, %", steps, command),
    )
    return (
        Figure(
            "leak",
            "The score falls as the leak is closed",
            "lines",
            "protocol",
            "MRR@20, %",
            (),
            command,
            panels=panels,
        ),
        Figure("size", "Fewer <parameters>", "bars", "model", "parameters", bars, command),
        Figure("score", "The best model is first", "bars", "model", "MRR@20, %", dots, command),
    )
