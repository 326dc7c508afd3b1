"""The routes for lists, similar items, people and search, and the recommender's results as JSON."""

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.results import AccountPeople, Recommendations
from lightgc2n.recommending.scorer import PreparedQuery
from lightgc2n.serving.errors import RefusedError, from_library_error, unknown
from lightgc2n.serving.scheduling import BYTES_PER_LISTED_ITEM, Check
from lightgc2n.serving.schemas import (
    AccountsFound,
    Answer,
    Ask,
    AskBody,
    AskPeople,
    AskWho,
    ItemsFound,
    ManyAnswers,
    PeopleFound,
    PopulationFound,
    WhoFound,
)
from lightgc2n.serving.service import ServedBundle, Service
from lightgc2n.serving.settings import Limits

PREPARED_INLINE = 16  # queries prepared in the event loop; more would delay other requests
EXAMPLES = {
    "an account": {"value": {"account": "h000003", "k": 10}},
    "somebody new": {"value": {"history": ["v1", "v7"], "k": 5, "exclude_seen": True}},
    "several at once": {"value": {"requests": [{"account": "h000003"}, {"history": ["v1"]}]}},
}
Text = Annotated[str, Query(max_length=200, description="A text that ids or titles contain; empty: all.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
NO_POPULATION: dict[str, Any] = {"accounts": 0, "counts": [], "examples": []}


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


def add_account_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for accounts, items and people."""
    limits = service.limits

    @app.get("/v1/accounts", response_model=AccountsFound, tags=["look up"])
    async def accounts(request: Request, search: Text = "", limit: Limit = 20) -> Response:
        """Accounts whose id contains a text, those first whose id begins with it."""
        served = service.served
        return json_response(await service.run_in_background(request, lambda: _accounts(served, search, limit)))

    @app.get("/v1/items", response_model=ItemsFound, tags=["look up"])
    async def items(request: Request, search: Text = "", limit: Limit = 20) -> Response:
        """Items whose id or title contains a text, those first that begin with it."""
        served = service.served
        return json_response(await service.run_in_background(request, lambda: _items(served, search, limit)))

    @app.get("/v1/population", response_model=PopulationFound, tags=["people"])
    async def population() -> Response:
        """How many people the accounts have, and accounts worth looking at; zeros where the bundle does not say."""
        return json_response(service.served.recommender.source.population or NO_POPULATION)

    @app.get("/v1/accounts/{account:path}/people", response_model=PeopleFound, tags=["people"])
    async def people(
        request: Request, account: str, k: Annotated[int, Query(ge=1)] = 10, exclude_seen: bool = False
    ) -> Response:
        """How many people are behind an account, who did what, what each likes, and lists for each and for all."""
        ask = AskPeople.model_construct(account=account, history=None, times=None, k=k, exclude_seen=exclude_seen)
        return await _people(request, ask)

    @app.post("/v1/people", response_model=PeopleFound, tags=["people"])
    async def people_of(request: Request, body: AskPeople) -> Response:
        """The same for a given history."""
        return await _people(request, body)

    @app.post("/v1/who", response_model=WhoFound, tags=["people"])
    async def who(request: Request, body: AskWho) -> Response:
        """Who is probably watching: the chance of each person before anything is begun, and after each item."""
        served = service.served
        _refuse_nobody(served, body)
        return await service.find_people(request, lambda check: _who_response(served, body, check))

    async def _people(request: Request, ask: AskPeople) -> Response:
        served = service.served
        refuse_length(ask.k, limits)
        _refuse_nobody(served, ask)
        return await service.find_people(request, lambda check: _people_response(served, ask, check))


def _refuse_nobody(served: ServedBundle, ask: AskPeople | AskWho) -> None:
    """Raise an error if times do not fit, or if nobody, or somebody unknown, is named."""
    refuse_times(ask.history, ask.times)
    if ask.history is None and ask.account is None:
        raise RefusedError(422, "nobody_named", "give an account, a history, or both.")
    if ask.history is None and ask.account is not None and not served.recommender.knows(ask.account):
        raise unknown("account", ask.account)


def _who_response(served: ServedBundle, ask: AskWho, check: Check) -> Response:
    who: Any = (ask.account, ask.history, ask.times)
    found = served.recommender.who(*who, time=ask.time, items=ask.items)
    check()
    return json_response(
        {
            "account": found.account_id,
            "time": found.time,
            "people": found.people,
            "steps": [{"item": item, **_title(item, served), "chances": chances} for item, chances in found.steps],
            "going_on": found.going_on,
            "notes": list(found.notes),
        }
    )


def _title(item: str | None, served: ServedBundle) -> dict[str, Any]:
    title = served.facts.get(item or "", {}).get("title")
    return {} if title is None else {"title": title}


def _people_response(served: ServedBundle, ask: AskPeople, check: Check) -> Response:
    who: Any = (ask.account, ask.history, ask.times)
    people = served.recommender.people(*who, k=ask.k, exclude_seen=ask.exclude_seen)
    check()
    return json_response(people_json(people, served))


def _accounts(served: ServedBundle, search: str, limit: int) -> dict[str, Any]:
    dataset = served.recommender.dataset
    places, total = best_matches(dataset.accounts, search, limit, lambda account: (account,))
    events = dataset.lengths
    return {
        "accounts": [{"account": dataset.accounts[place], "events": int(events[place])} for place in places],
        "total": total,
    }


def _items(served: ServedBundle, search: str, limit: int) -> dict[str, Any]:
    items, titles = served.recommender.dataset.items, served.titles
    texts = (lambda item: (item, titles.get(item, ""))) if titles else (lambda item: (item,))
    places, total = best_matches(items, search, limit, texts)
    return {"items": [named(items[place], served) for place in places], "total": total}


def best_matches(
    names: Iterable[str], search: str, limit: int, texts: Callable[[str], tuple[str, ...]]
) -> tuple[list[int], int]:
    """The indices of the best matches and the number of all matches; texts that begin with `search` come first.

    The search ignores case.
    """
    lowered = search.casefold()
    matches = []
    for place, name in enumerate(names):
        where = [spot for text in texts(name) if (spot := text.casefold().find(lowered)) >= 0]
        if where:
            matches.append((min(where) > 0, place))
    return [place for _, place in nsmallest(limit, matches)], len(matches)


def json_response(answer: Any) -> Response:
    """A JSON response, without validation: the content was made here."""
    return Response(to_json(answer), media_type="application/json")


def list_json(answer: Recommendations, served: ServedBundle) -> dict[str, Any]:
    """One list. Items without a title have no such field."""
    return {
        "account": answer.account_id,
        "items": [{**named(item, served), "score": score, "rank": rank} for item, score, rank in answer.items],
        "fallback": answer.fallback,
        "notes": list(answer.notes),
        "model": served.checksum,
    }


def named(item: str, served: ServedBundle) -> dict[str, Any]:
    """An item by its id, with what is known of it: title, categories, year and image."""
    return {"item": item, **served.facts.get(item, {})}


def people_json(answer: AccountPeople, served: ServedBundle) -> dict[str, Any]:
    """The people behind an account."""
    return {
        "account": answer.account_id,
        "count": answer.count,
        "confidence": answer.confidence,
        "chances": answer.chances,
        "events": [
            {
                **named(event.item_id, served),
                "time": event.time,
                "person": event.person,
                "probability": event.probability,
                "shares": event.shares,
            }
            for event in answer.events
        ],
        "people": [
            {
                "name": person.name,
                "description": person.description,
                "events": person.events,
                "share": person.share,
                "categories": [one._asdict() for one in person.categories],
                "likes": [
                    {**named(like.item_id, served), "events": like.events, "times": like.times} for like in person.likes
                ],
                "active": person.active,
                "next": list_json(person.next, served),
            }
            for person in answer.people
        ],
        "together": None if answer.together is None else list_json(answer.together, served),
        "account_list": list_json(answer.whole, served),
        "sessions": answer.sessions,
        "notes": list(answer.notes),
    }
