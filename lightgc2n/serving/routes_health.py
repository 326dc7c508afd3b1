"""The model card, health probes and metrics."""

from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from lightgc2n.serving.errors import unavailable
from lightgc2n.serving.json_answers import json_response
from lightgc2n.serving.live_bundle import ServedBundle
from lightgc2n.serving.schemas import Health, ModelFacts, Readiness
from lightgc2n.serving.service import Service
from lightgc2n.serving.static_files import has_runtime


def add_health_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for the model card, probes and metrics."""
    report = service.settings.report is not None
    runtime = has_runtime()

    @app.get("/v1/model", response_model=ModelFacts, tags=["upkeep"])
    async def model() -> Response:
        """The model card, its metrics, and what the service can do with it."""
        served = service.served
        return json_response({**_facts(served), "report": report, "device": runtime, "reload": _reload(service)})

    @app.get("/healthz", response_model=Health, tags=["upkeep"])
    async def healthz() -> dict[str, str]:
        """The process is running."""
        return {"status": "draining" if service.draining else "ok"}

    @app.get("/readyz", response_model=Readiness, response_model_exclude_none=True, tags=["upkeep"])
    async def readyz() -> dict[str, str]:
        """A bundle is loaded and requests are accepted; `reload` reports that a newer bundle could not be loaded."""
        if service.draining:
            raise unavailable("draining", "the service is shutting down.")
        return {"status": "ok"} | ({"reload": "failed"} if service.watcher.fault else {})

    @app.get("/metrics", response_class=Response, tags=["upkeep"], responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus metrics."""
        text, kind = service.metrics.text()
        return Response(text, headers={"Content-Type": kind})


def _reload(service: Service) -> dict[str, Any] | None:
    """Why the newest bundle is not being served; None if it is."""
    fault = service.watcher.fault
    if fault is None:
        return None
    since = datetime.fromtimestamp(fault.since, UTC).isoformat(timespec="seconds")
    return {"reason": fault.reason, "since": since, "tries": fault.tries}


def _facts(served: ServedBundle) -> dict[str, Any]:
    config, dataset = served.recommender.source.config, served.recommender.dataset
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
