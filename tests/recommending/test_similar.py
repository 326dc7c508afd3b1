"""Items that are alike, by the vectors that the model scores them with."""

import numpy as np
import pytest

from lightgc2n.errors import DataError, SettingError
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from tests.export.town import EXPORTED, bundle_of, run_of


@pytest.mark.parametrize("model", EXPORTED)
def test_the_nearest_by_a_slow_loop(model: str) -> None:
    trained, bundle = load(run_of(model)).scorer.model, load_bundle(bundle_of(model))
    name = {"lightgc2n": "head.weight", "lightgc2n-plus": "items", "sasrec": "second_items"}[model]
    vectors = trained.state_dict()[name].numpy().astype(np.float64)
    for item in (3, 200):
        cosines = {}
        for other, vector in enumerate(vectors):
            if other != item and bundle.scorer.popularity[other] > 0:
                cosines[other] = float(vector @ vectors[item] / np.linalg.norm(vector) / np.linalg.norm(vectors[item]))
        wanted = sorted(cosines, key=lambda other: -cosines[other])[:7]
        found = bundle.similar(bundle.dataset.items[item], k=7)
        assert [one.item_id for one in found] == [bundle.dataset.items[other] for other in wanted]
        np.testing.assert_allclose([one.score for one in found], [cosines[other] for other in wanted], atol=1e-5)
        rounded = load_bundle(bundle_of(model, int8=True)).similar(bundle.dataset.items[item], k=7)
        assert len({one.item_id for one in found} & {one.item_id for one in rounded}) >= 5


def test_what_training_never_showed_comes_last_and_what_is_unknown_is_refused() -> None:
    bundle = load_bundle(bundle_of("sasrec"))
    shown = int((bundle.scorer.popularity > 0).sum())
    item = bundle.dataset.items[int(bundle.scorer.popularity.argmax())]
    everything = [bundle.dataset.item_index[one.item_id] for one in bundle.similar(item, k=10_000)]
    assert sorted([*everything, bundle.dataset.item_index[item]]) == list(range(len(bundle.dataset.items)))
    assert (bundle.scorer.popularity[everything[: shown - 1]] > 0).all()
    assert (bundle.scorer.popularity[everything[shown - 1 :]] == 0).all()
    with pytest.raises(DataError, match="item '\\?' is not in data"):
        bundle.similar("?")
    with pytest.raises(SettingError, match="at least 1"):
        bundle.similar(item, k=0)
