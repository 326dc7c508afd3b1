"""The route for live quality and the history of promotions."""

import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from lightgc2n.serving.live_quality import sums_by_day
from lightgc2n.serving.routes import json_response
from lightgc2n.serving.service import Service
from lightgc2n.store.quality import DayQuality, QualitySums

PROMOTIONS = "promotions.json"  # beside the link that a pipeline swaps
LONGEST, MOST_SHOWN = 2**22, 100
ENTRY = ("at", "round", "kind", "before", "reason", "model", "judged")
MADE_BY = re.compile(r"lightgc2n [0-9][0-9A-Za-z.+-]*")
BASELINES = {"popular": "most popular items", "recent": "the account's own items, then the most popular"}


class Scores(BaseModel):
    """MRR@20 and RC@20, between 0 and 1."""

    mrr: float
    rc: float


class Day(BaseModel):
    """The live quality of one day."""

    day: str
    received: int = Field(description="Events of this day.")
    scored: int = Field(description="Of these, the events whose rank was recorded; a random sample under load.")
    model: Scores | None = Field(
        description="The model that was live when each event came; null if nothing was scored."
    )
    baseline: Scores | None = Field(description="A simple baseline with the same questions.")
    models: list[str] = Field(description="The bundles that were live, as in `model` of answers.")


class QualityFound(BaseModel):
    """Live quality by day, and every decision about the live model."""

    days: list[Day]
    baseline: str | None = Field(description="What the baseline lists: the better of two over all days shown.")
    promotions: list[dict[str, Any]] = Field(description="Decisions of the pipeline, the oldest first.")
    recording: Literal["on", "off"] = Field(description="off: the service has no store of events.")


def add_quality_routes(app: FastAPI, service: Service) -> None:
    """Add the route for live quality."""

    @app.get("/v1/quality", response_model=QualityFound, tags=["upkeep"])
    async def quality(request: Request) -> Response:
        """MRR@20 and RC@20 of the live model by day, before each event was stored, and the history of promotions."""
        days = service.quality.days if service.quality is not None else ()
        decisions = await service.run_in_background(request, lambda: promotions(service.settings.bundle))
        recording = "off" if service.quality is None else "on"
        return json_response({**by_day(days), "promotions": decisions, "recording": recording})


def by_day(days: Any) -> dict[str, Any]:
    """The days as JSON, beside the baseline that is better over all of them."""
    every = sums_by_day(days)
    total = sum(every.values(), QualitySums())
    better = "recent" if total.recent_mrr >= total.popular_mrr else "popular"
    rows = [_day(day, sums, better, days) for day, sums in sorted(every.items())]
    return {"days": rows, "baseline": BASELINES[better] if total.scored else None}


def _day(day: int, sums: QualitySums, baseline: str, days: list[DayQuality]) -> dict[str, Any]:
    def scores(name: str) -> dict[str, float] | None:
        return {
            metric: getattr(sums, f"{name}_{metric}") / sums.scored for metric in ("mrr", "rc")
        } if sums.scored else None  # fmt: skip

    models = [one.model for one in days if one.day == day and one.sums.scored]
    facts = {"day": str(np.datetime64(day, "D")), "received": sums.received, "scored": sums.scored, "models": models}
    return facts | {"model": scores("model"), "baseline": scores(baseline)}


def promotions(bundle: Path) -> list[dict[str, Any]]:
    """The newest decisions of the pipeline whose link is served; nothing if there is no pipeline."""
    if not bundle.is_symlink():
        return []
    try:
        handle = os.open(bundle.parent / PROMOTIONS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            content = json.loads(file.read(LONGEST))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(content, dict) or not MADE_BY.fullmatch(str(content.get("made_by"))):
        return []
    entries = content.get("promotions")
    known = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return [{name: one.get(name) for name in ENTRY} for one in known[-MOST_SHOWN:]]
