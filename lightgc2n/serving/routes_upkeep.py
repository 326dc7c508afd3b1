"""What is served, and how the service is doing."""

from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from lightgc2n.serving.answers import json_response
from lightgc2n.serving.bundles import Served
from lightgc2n.serving.files import has_runtime
from lightgc2n.serving.refusals import RefusedError
from lightgc2n.serving.schemas import Health, ModelFacts
from lightgc2n.serving.service import Service


def add_upkeep(app: FastAPI, service: Service) -> None:
    """The routes of this file."""
    report = service.settings.report is not None
    runtime = has_runtime()

    @app.get("/v1/model", response_model=ModelFacts, tags=["upkeep"])
    async def model() -> Response:
        """The model card, its metrics, and what the service can do with it."""
        served = service.served
        return json_response({**_facts(served), "report": report, "device": runtime})

    @app.get("/healthz", response_model=Health, tags=["upkeep"])
    async def healthz() -> dict[str, str]:
        """The process runs."""
        return {"status": "draining" if service.draining else "ok"}

    @app.get("/readyz", response_model=Health, tags=["upkeep"])
    async def readyz() -> dict[str, str]:
        """A bundle is loaded, and requests are welcome."""
        if service.draining:
            raise RefusedError(503, "draining", "the service is about to end.")
        return {"status": "ok"}

    @app.get("/metrics", response_class=Response, tags=["upkeep"], responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        text, kind = service.metrics.text()
        return Response(text, headers={"Content-Type": kind})


def _facts(served: Served) -> dict[str, Any]:
    config, dataset = served.recommender.config, served.recommender.dataset
    return {
        "model": served.recommender.name,
        "dataset": dataset.name,
        "metrics": config.get("metrics", {}),
        "card": served.card,
        "settings": config.get("settings", {}),
        "items": len(dataset.items),
        "accounts": len(dataset.accounts),
        "checksum": served.checksum,
        "schema": config["schema"],
        "people": served.recommender.finds_people,
        "titles": bool(served.titles),
    }
