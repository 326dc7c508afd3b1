"""Rolling origins against a slow loop over the events."""

from pathlib import Path

import numpy as np

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.rolling_origins import rolling_origins
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.synthetic.households import HouseholdConfig, generate


def test_origins_against_a_loop(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=60), seed=1, out=tmp_path / "data")
    split = split_dataset(load_dataset(tmp_path / "data"), SplitConfig(protocol="time"))
    assert split.known is not None
    assert split.known.times is not None
    logs = [
        list(zip(split.known.times[first:last].tolist(), split.known.events[first:last].tolist(), strict=True))
        for first, last in zip(split.known.offsets[:-1], split.known.offsets[1:], strict=True)
    ]
    later = sorted(time for log in logs for time, _ in log)[len(split.train.events) :]
    origins = list(rolling_origins(split))
    assert len(origins) == 6
    for number, (known, queries) in enumerate(origins):
        cut = later[len(later) * number // 6]
        expected = []
        for log in logs:
            before = [item for time, item in log if time < cut]
            if before and len(before) < len(log):
                expected.append((before, log[len(before)][1]))
        histories = [
            queries.events[first:last].tolist() for first, last in zip(queries.start, queries.stop, strict=True)
        ]
        assert list(zip(histories, queries.target.tolist(), strict=True)) == expected
        assert known.events.tolist() == [item for log in logs for time, item in log if time < cut]
    first = origins[0][1]
    assert np.array_equal(np.sort(first.target), np.sort(split.validation.target))
