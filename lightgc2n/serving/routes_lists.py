"""`/v1/recommend` and `/v1/items/{id}/similar`: lists of items."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import Response

from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.results import Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.errors import RefusedError, from_library_error, unknown
from lightgc2n.serving.fair_use import BYTES_PER_LISTED_ITEM, Check
from lightgc2n.serving.json_answers import json_response, list_json
from lightgc2n.serving.live_bundle import ServedBundle
from lightgc2n.serving.schemas import Answer, Ask, AskBody, ManyAnswers
from lightgc2n.serving.service import Service
from lightgc2n.serving.settings import Limits

PREPARED_INLINE = 16  # queries prepared in the event loop; more would delay other requests
EXAMPLES = {
    "an account": {"value": {"account": "h000003", "k": 10}},
    "somebody new": {"value": {"history": ["v1", "v7"], "k": 5, "exclude_seen": True}},
    "several at once": {"value": {"requests": [{"account": "h000003"}, {"history": ["v1"]}]}},
}


def add_list_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for lists."""
    limits = service.limits

    @app.post("/v1/recommend", response_model=Answer | ManyAnswers, tags=["lists"])
    async def recommend(
        request: Request,
        body: Annotated[AskBody, Body(openapi_examples=EXAMPLES)],
    ) -> Response:
        """The next items for an account, for one of its people, for all of them together, or for a history."""
        served = service.served
        if isinstance(body, Ask):
            _note_ids(service, request, [body])
            refuse_beyond([body], limits)
            (answer,) = await _answers(service, served, request, [body])
            if isinstance(answer, RefusedError):
                raise answer
            return json_response(list_json(answer, served))
        _note_ids(service, request, body.requests)
        refuse_beyond(body.requests, limits)
        request.scope["reservation"].need(BYTES_PER_LISTED_ITEM * sum(ask.k for ask in body.requests))
        lists = await _answers(service, served, request, body.requests)
        answers = [one.body if isinstance(one, RefusedError) else one for one in lists]
        return await service.run_in_background(request, lambda: _many_response(answers, served))

    @app.get("/v1/items/{item:path}/similar", response_model=Answer, tags=["lists"])
    async def similar(request: Request, item: str, k: Annotated[int, Query(ge=1)] = 20) -> Response:
        """The items most like an item, by the vectors that the model scores with."""
        served = service.served
        refuse_length(k, limits)
        if item not in served.recommender.dataset.item_index:
            raise unknown("item", item)
        items = await service.run_in_background(request, lambda: served.recommender.similar(item, k))
        return json_response(list_json(items, served))


def refuse_length(k: int, limits: Limits) -> None:
    if k > limits.max_k:
        raise RefusedError(422, "k_too_large", f"a list has at most {limits.max_k:,} items, {k:,} were requested.")


def refuse_times(history: Sequence[str] | None, times: Sequence[Any] | None) -> None:
    if times is not None and (history is None or len(times) != len(history)):
        raise RefusedError(422, "times_do_not_fit", "times: give exactly one for each event of the history.")


def refuse_beyond(asks: Sequence[Ask], limits: Limits) -> None:
    """Raise an error if a request exceeds a limit or contradicts itself."""
    for ask in asks:
        refuse_length(ask.k, limits)
        refuse_times(ask.history, ask.times)
        if ask.account is None and ask.history is None:
            raise RefusedError(422, "nobody_named", "give an account, a history, or both.")
        if ask.person is not None and ask.together:
            raise RefusedError(422, "invalid", "give a person, or together, not both.")
    if sum(ask.k for ask in asks) > limits.max_listed:
        raise RefusedError(
            422, "too_much", f"the lists of one request have at most {limits.max_listed:,} items together."
        )


async def _answers(
    service: Service, served: ServedBundle, request: Request, asks: Sequence[Ask]
) -> list[Recommendations | RefusedError]:
    """For each query its list, or its error."""

    def prepare(check: Check = lambda: None) -> list[PreparedQuery | RefusedError]:
        prepared = []
        for ask in asks:
            check()
            prepared.append(_prepared(served, ask))
        return prepared

    if any(ask.person or ask.together for ask in asks):
        prepared = await service.find_people(request, prepare)
    elif len(asks) > PREPARED_INLINE:
        prepared = await service.run_in_background(request, prepare)
    else:
        prepared = prepare()
    queries = [one for one in prepared if isinstance(one, PreparedQuery)]
    lists = iter(await service.lists(served, queries))
    return [one if isinstance(one, RefusedError) else next(lists) for one in prepared]


def _many_response(answers: Sequence[Recommendations | dict[str, Any]], served: ServedBundle) -> Response:
    """The response with many lists and errors."""
    return json_response({"answers": [one if isinstance(one, dict) else list_json(one, served) for one in answers]})


def _prepared(served: ServedBundle, ask: Ask) -> PreparedQuery | RefusedError:
    if ask.history is None and ask.account is not None and not served.recommender.knows(ask.account):
        return unknown("account", ask.account)
    times: Any = ask.times
    try:
        return served.recommender.prepare(
            ask.account,
            ask.history,
            k=ask.k,
            exclude_seen=ask.exclude_seen,
            allow=ask.allow,
            deny=ask.deny,
            domain=ask.domain,
            times=times,
            person=ask.person,
            together=ask.together,
        )
    except LightGC2NError as problem:
        return from_library_error(problem)


def _note_ids(service: Service, request: Request, asks: Sequence[Ask]) -> None:
    if service.settings.log_ids:
        request.scope["ids"] = {"accounts": [ask.account for ask in asks][:20]}
