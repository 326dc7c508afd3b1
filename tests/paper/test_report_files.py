"""A report as files: whole, the same each time, and without a way for names in the data to become markup."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from lightgc2n.errors import OutputError
from lightgc2n.experiments.table import Cell, Table, csv_text, footnotes, interval_of, key_of
from lightgc2n.paper.document import Document, Figure, Section, Series
from lightgc2n.paper.drawing import apart, saved, short
from lightgc2n.paper.palette import light
from lightgc2n.paper.published import checked, published_section
from lightgc2n.paper.report_files import write_report
from lightgc2n.paper.report_html import inline, numbers_of, tally, unbroken
from tests.paper.example import document, figures, standings, table

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The elements of a page; fails where one is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(document(), folder)
    return folder


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page((written / "report.html").read_text(encoding="utf-8"))


def test_every_table_and_figure_has_its_files(written: Path) -> None:
    found = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    names = [figure.name for figure in figures()]
    assert found == {
        "report.html",
        "report.json",
        "report.md",
        *(f"tables/{name}.csv" for name in ("published-table1", "published-table2", "table1-E")),
        *(f"figures/{name}.{ending}" for name in names for ending in ("png", "svg")),
    }
    assert all((written / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG") for name in names)


def test_verdicts_and_commands_are_there_for_programs(written: Path) -> None:
    facts = json.loads((written / "report.json").read_text(encoding="utf-8"))
    assert [verdict["claim"] for verdict in facts["verdicts"]] == [verdict.claim for verdict in document().verdicts]
    assert {verdict["ours"] for verdict in facts["verdicts"]} <= {"holds", "does not hold", "cannot be told"}
    assert facts["commands"]["table1-E"] in (written / "report.md").read_text(encoding="utf-8")
    assert facts["made"] == dict(document().made)


def test_the_same_document_gives_the_same_files(written: Path, tmp_path: Path) -> None:
    write_report(document(), tmp_path)
    write_report(document(), tmp_path)  # over the first
    for path in written.rglob("*.*"):
        assert (tmp_path / path.relative_to(written)).read_bytes() == path.read_bytes(), path.name


def test_the_page_needs_nothing_from_outside(page: Page, written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    assert not [
        tag for tag, _ in page.elements if tag in ("script", "iframe", "object", "embed", "img", "audio", "video")
    ]
    links = [
        value for _, attrs in page.elements for name in ("src", "href", "xlink:href") if (value := attrs.get(name))
    ]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert "http" not in text
    assert "//" not in re.sub(r"<code>.*?</code>", "", text)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_the_page_is_well_formed(page: Page) -> None:
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [attrs["href"] for tag, attrs in page.elements if tag in ("a", "use") and attrs["href"]]
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings.count(1) == 1
    assert all(after - before <= 2 for before, after in pairwise(headings))


def test_names_from_the_data_stay_text(page: Page, written: Path) -> None:
    assert "<script>alert(1)</script>" in page.words
    assert "Fewer <parameters>" in page.words
    markdown = (written / "report.md").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in markdown
    assert "<script" not in markdown
    assert "| a\\|b |" in markdown
    assert "Fewer &lt;parameters&gt;" in markdown


def test_notes_on_hover_are_footnotes_too(page: Page) -> None:
    hovering = [attrs["title"] for tag, attrs in page.elements if tag in ("td", "th") and attrs.get("title")]
    assert "one seed <i>only</i>" in hovering
    assert set(hovering) <= set(page.words)


def test_boxes_that_scroll_can_be_reached_by_keyboard(page: Page) -> None:
    boxes = [attrs for _, attrs in page.elements if attrs.get("class") == "scroll"]
    assert boxes
    assert all(box["tabindex"] == "0" and box["role"] == "region" and box["aria-label"] for box in boxes)


def test_a_plot_is_named_for_those_who_do_not_see_it(page: Page) -> None:
    plots = [attrs for _, attrs in page.elements if attrs.get("class") == "plot"]
    assert len(plots) == 4  # two panels, and two figures of one
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)


def test_verdicts_are_counted(page: Page) -> None:
    verdicts = document().verdicts
    for who in ("theirs", "ours"):
        assert sum(tally(verdicts, who).values()) == len(verdicts)
    assert f"{len(verdicts)} claims of the paper, each judged twice" in page.words


def test_the_first_screen_comes_before_the_claims_and_the_contents_before_their_list(written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    order = [
        'id="sections"',
        'class="finding"',
        'class="score"',
        'class="ranks"',
        'class="tallies"',
        'class="standings"',
    ]
    order.append('id="claims"')
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)
    assert "three of four comparisons are enough" in text
    assert "the event to be predicted is in no training data" in text


def test_markdown_has_the_same_first_screen(written: Path) -> None:
    markdown = (written / "report.md").read_text(encoding="utf-8")
    assert f"**{standings().finding}**" in markdown
    assert "| E | honest | 30.00 | 3 of 3 | account-markov 50.00 | lightgc2n-plus 60.00 (ours) | – |" in markdown
    assert (
        "| Hvideo_E | as the paper tests | 40.00 | 2 of 3 | account-markov 80.00 | account-markov 80.00 | 47.35 |"
        in (markdown)
    )
    facts = json.loads((written / "report.json").read_text(encoding="utf-8"))
    assert facts["opening"]["finding"] == standings().finding
    assert facts["opening"]["standings"][2]["printed"] == 47.35


def test_names_keep_their_hyphen_and_their_text() -> None:
    found = str(unbroken("markov-recency: 14.10 %, a - b <i>"))
    assert found == '<span class="name">markov-recency</span>: 14.10\N{NO-BREAK SPACE}%, a - b &lt;i&gt;'


@pytest.mark.parametrize("names", [("lightgc2n", "lightgc2n-plus"), ("hrnn", "lightgc2n-plus", "sasrec", "lightgc2n")])
@pytest.mark.parametrize("more", [0, 6])
def test_every_kind_of_plot_has_the_same_two_colours(names: tuple[str, ...], more: int) -> None:
    shown = (*names, *(f"m{place}" for place in range(more)))
    lines = tuple(Series(name, (1.0, 2.0), (1.0, place)) for place, name in enumerate(shown, start=1))
    alone = (Series("parameters", shown, tuple(map(float, range(len(shown))))),)
    for kind, series in (("lines", lines), ("bars", alone)):
        drawn = saved([Figure("f", "t", kind, "x", "y", series, "cmd")], "salt", "svg").decode()  # type: ignore[arg-type]
        assert light("blue") in drawn, kind
        assert light("rose") in drawn, kind
        without = tuple(line for line in series if not line.name.startswith("lightgc2n") and kind != "bars")
        if without:
            drawn = saved([Figure("f", "t", kind, "x", "y", without, "cmd")], "salt", "svg").decode()  # type: ignore[arg-type]
            assert light("blue") not in drawn, kind
            assert light("rose") not in drawn, kind


def test_colours_of_a_plot_follow_the_page() -> None:
    svg = '<?xml version="1.0"?>\n<svg width="9pt" viewBox="0 0 9 9" xmlns="http://x"><style>*{a: b}</style>'
    svg += '<path id="p" style="fill: #244db9"/><use xlink:href="#p" clip-path="url(#p)"/></svg>'
    assert inline(svg, "a b") == (
        '<svg viewBox="0 0 9 9" aria-hidden="true" focusable="false">'
        '<path id="a-b-p" style="fill: var(--blue)"/><use href="#a-b-p" clip-path="url(#a-b-p)"/></svg>'
    )


def test_csv_has_values_intervals_and_marks(written: Path) -> None:
    with (written / "tables/table1-E.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] | {} == {
        "model": "lightgc2n",
        "RC@5": "16.28",
        "RC@5 low": "15.9",
        "RC@5 high": "16.7",
        "RC@5 mark": "best",
        "RC@5 note": "",
        "MRR@5": "8.1",
        "MRR@5 low": "7.9",
        "MRR@5 high": "8.3",
        "MRR@5 mark": "",
    }
    assert rows[2]["RC@5 mark"] == "impossible"
    assert csv_text(Table("t", "c", ("a", "b"), (), "cmd")) == "a,b\n"
    unsettled = Table("t", "c", ("a",), ((Cell("0.3", 0.1 + 0.2),),), "cmd")  # 0.30000000000000004
    assert csv_text(unsettled) == "a\n0.3\n"


def test_cells() -> None:
    assert interval_of(Cell("16.28", 16.28, 15.9, 16.7)) == "15.90 to 16.70"
    assert interval_of(Cell("3", 3, -1, 4)) == "−1 to 4"
    assert interval_of(Cell("3", 3)) == ""
    assert footnotes(table()) == {"one seed <i>only</i>": 1, "MRR above RC": 2}
    assert key_of(table()).count("·") == 3
    assert [short(value) for value in (-0.5, 5000, 250_000, 1.5e6, 2e9)] == ["−0.5", "5000", "250 k", "1.5 M", "2 G"]


def test_names_at_the_ends_of_lines_are_pushed_apart() -> None:
    assert apart([0.2, 0.5, 0.9], 0.1) == pytest.approx([0.2, 0.5, 0.9])
    assert apart([0.2, 0.22, 0.25], 0.1) == pytest.approx([0.2, 0.3, 0.4])
    # At the top there is no room above, so the others move down.
    assert apart([0.9, 0.95, 1.0], 0.1) == pytest.approx([0.8, 0.9, 1.0])


def test_the_numbers_of_a_plot() -> None:
    series = (Series("a", (1.0, 2.0), (0.25, 1234.5)), Series("b", (2.0,), (3.0,)))
    found = numbers_of(Figure("f", "t", "lines", "x", "y", series, "cmd"))
    assert [[cell.text for cell in row] for row in found.rows] == [["1", "0.25", ""], ["2", "1,234", "3"]]
    assert found.rows[0][2].mark == "missing"


def test_a_name_must_be_a_file_of_its_own(tmp_path: Path) -> None:
    empty = Document("t", (), (), (), ())
    for names in (("a", "a"), ("../a",), (".a",), ("a b",)):
        tables = tuple(replace(table(), name=name) for name in names)
        with pytest.raises(OutputError, match="expected a unique name that is valid for a file"):
            write_report(replace(empty, sections=(Section("s", "s", (), tables),)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_published_tables_are_marked() -> None:
    first, second = published_section().tables
    marked = [cell for row in first.rows for cell in row if cell.mark == "impossible"]
    assert len(marked) == 4 * 18
    assert len([cell for cell in marked if cell.note]) == 18
    assert "18 of the 40 entries" in first.caption
    assert "4 of the 14 entries" in second.caption
    best = [row[-1] for row in first.rows]
    assert all(cell.mark == "best" for cell in best)


def test_our_own_tables_are_checked_alike() -> None:
    fine = {"RC@5": 20.0, "RC@20": 30.0, "MRR@5": 10.0, "MRR@20": 11.0}
    assert checked({"a": fine}) == "Arithmetic: none of the 1 entries breaks it."
    assert checked({"a": fine, "b": fine | {"RC@20": 19.0, "MRR@20": 10.0}}) == (
        "Arithmetic: 1 of 2 entries break it: b: RC@20 19.00 is below RC@5 20.00."
    )


@pytest.mark.parametrize("name", ["report.json", "report.md", "report.html", "tables/one.csv"])
def test_a_report_of_somebody_else_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("[]")
    named = replace(document(), sections=(Section("s", "s", (), (replace(table(), name="one"),)),))
    with pytest.raises(OutputError, match=f"{name} is not part of a report of ours"):
        write_report(named, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_no_legend_is_repeated() -> None:
    (leak, *_) = figures()
    alike = replace(leak.panels[1], name="again", title="Again")
    panels = (leak.panels[1], alike)
    alone, after = (saved([alike], "again", "svg", before=before).decode() for before in ((), panels[:1]))
    assert alone.count("sasrec") > after.count("sasrec") == 0
    both = saved(panels, "both", "svg").decode()
    assert both.count("sasrec") == alone.count("sasrec")


def test_signs_of_tables_are_explained_once(written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    assert text.count("small: 95") == 1
    assert "In all tables" in text
