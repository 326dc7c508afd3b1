"""Live quality in the store: sums by day and model, to which every worker adds."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields

from lightgc2n.store.databases import Database

CUTOFF = 20
DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class QualitySums:
    """Live quality of one model on one day: counts of events, and sums of MRR@20 and RC@20."""

    received: int = 0  # events
    scored: int = 0  # received events whose rank was recorded
    model_mrr: float = 0.0
    model_rc: float = 0.0
    popular_mrr: float = 0.0  # the most popular items
    popular_rc: float = 0.0
    recent_mrr: float = 0.0  # the account's own items, the newest first, then the most popular ones
    recent_rc: float = 0.0

    def __add__(self, other: "QualitySums") -> "QualitySums":
        return QualitySums(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class DayQuality:
    """The sums of a day, counted in days since 1970, and of a model, named by the checksum of its bundle."""

    day: int
    model: str
    sums: QualitySums


Key = tuple[int, str]  # day, model
NAMES = tuple(field.name for field in fields(QualitySums))
SUMS = ", ".join(NAMES)


def add_quality(database: Database, sums: Mapping[Key, QualitySums]) -> None:
    """Add sums to those of the store, in one transaction."""
    with database.transaction() as session:
        for (day, model), one in sorted(sums.items()):
            session.run(
                f"INSERT INTO quality (day, model, {SUMS}) VALUES (?, ?{', ?' * len(NAMES)}) ON CONFLICT (day, model) "
                f"DO UPDATE SET {', '.join(f'{name} = quality.{name} + excluded.{name}' for name in NAMES)}",
                (day, model, *astuple(one)),
            )


def read_quality(database: Database, days: int) -> Sequence[DayQuality]:
    """Return the newest days that have sums, the oldest first."""
    rows = database.query(
        f"SELECT day, model, {SUMS} FROM quality WHERE day IN "
        f"(SELECT DISTINCT day FROM quality ORDER BY day DESC LIMIT ?) ORDER BY day, model",
        (days,),
    )
    return [DayQuality(int(day), str(model), QualitySums(*sums)) for day, model, *sums in rows]
