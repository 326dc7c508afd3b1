"""A recommender over a bundle, with onnxruntime and numpy; it answers like the run that was exported."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lightgc2n.errors import SettingError, option
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.recommending.bundle_files import GRAPH, HISTORIES, SERVER, open_bundle
from lightgc2n.recommending.bundle_parts import ItemVectors, read_device, read_server
from lightgc2n.recommending.bundle_people import read_finder
from lightgc2n.recommending.bundle_schema import check_graph
from lightgc2n.recommending.histories import Histories, Source
from lightgc2n.recommending.onnx_scorer import OnnxScorer, check_trial_run, open_session
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.schema_checks import EXPORT_AGAIN, need


def load_bundle(folder: Path, threads: int = 1) -> Recommender:
    """The recommender over the bundle in `folder`; raise an error before any of it is used if it is damaged.

    Args:
        threads: of one graph run; a service that computes several requests at once does well with one.
    """
    files = open_bundle(folder)
    device = read_device(files)
    server = read_server(files, device)
    finder, vectors = read_finder(files, len(server.dataset.accounts)), ItemVectors(files)
    timed = HISTORIES not in files.server or finder is None or finder.gap is None or server.dataset.times is not None
    need(timed, f"{files.folder / SERVER / HISTORIES}: times", "a table, as people are found by times", "nothing")
    graph = files.folder / GRAPH
    session = open_session(graph, threads)
    check_graph(session, files.config, str(graph))
    scorer = OnnxScorer(device, server, session, vectors)
    check_trial_run(scorer, str(graph))
    files.refuse_changed()
    everyone = np.ones(len(server.dataset.accounts), dtype=bool)
    histories = Histories(server.dataset, everyone, stored=not server.without_histories)
    source = Source(histories, _finder_of(finder), finder is not None, device.titles, device.config, device.card)
    return Recommender(device.model, scorer, source)


def _finder_of(finder: PeopleFinder | None) -> Callable[[], PeopleFinder]:
    def checked() -> PeopleFinder:
        if finder is None:
            raise SettingError(
                f"this bundle cannot find people: it was exported with {option('--no-people', 'people=False')}, or "
                f"from data without whole logs. {EXPORT_AGAIN}"
            )
        return finder

    return checked
