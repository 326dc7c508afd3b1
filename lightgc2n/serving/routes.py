"""The routes for lists, similar items, people and search, and the recommender's results as JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from lightgc2n.errors import LightGC2NError
from lightgc2n.recommending.queries import Events, PreparedQuery
from lightgc2n.recommending.results import AccountPeople, Recommendations
from lightgc2n.serving.errors import RefusedError, from_library_error, unknown
from lightgc2n.serving.live_histories import Live
from lightgc2n.serving.live_store import LiveStore
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
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.serving.service import Service
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
    current = await service.histories(served, [ask.account for ask in asks])

    def prepare(check: Check = lambda: None) -> list[PreparedQuery | RefusedError]:
        prepared = []
        for ask in asks:
            check()
            prepared.append(_prepared(served, ask, current))
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


def _prepared(
    served: ServedBundle, ask: Ask, current: Mapping[str, Live | RefusedError]
) -> PreparedQuery | RefusedError:
    times: Any = ask.times
    try:
        account, history, notes = whose_history(served, ask, current)
        query = served.recommender.prepare(
            account,
            history,
            k=ask.k,
            exclude_seen=ask.exclude_seen,
            allow=ask.allow,
            deny=ask.deny,
            domain=ask.domain,
            times=times,
            person=ask.person,
            together=ask.together,
        )
    except RefusedError as refusal:
        return refusal
    except LightGC2NError as problem:
        return from_library_error(problem)
    return replace(query, account_id=ask.account, notes=(*notes, *query.notes)) if notes else query


def whose_history(
    served: ServedBundle, ask: Ask | AskPeople | AskWho, current: Mapping[str, Live | RefusedError]
) -> tuple[str | None, Events | None, tuple[str, ...]]:
    """The account whose vector is used, the history, and notes on them.

    Without a history in the request it is the current one of the account. An erased account has neither.
    """
    live = current.get(ask.account) if ask.account is not None else None
    if ask.history is not None:
        erased = isinstance(live, RefusedError) and ask.account is not None and served.recommender.knows(ask.account)
        note = (f"account {ask.account!r} is not known: the history alone decides",) if erased else ()
        return (None if erased else ask.account), ask.history, note
    if isinstance(live, RefusedError):
        raise live
    if live is not None:
        return ask.account, live.history, live.notes
    if ask.account is not None and not served.recommender.knows(ask.account):
        raise unknown("account", ask.account)
    return ask.account, None, ()


def _note_ids(service: Service, request: Request, asks: Sequence[Ask]) -> None:
    if service.settings.log_ids:
        request.scope["ids"] = {"accounts": [ask.account for ask in asks][:20]}


def add_account_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for accounts, items and people."""
    limits = service.limits

    @app.get("/v1/accounts", response_model=AccountsFound, tags=["look up"])
    async def accounts(request: Request, search: Text = "", limit: Limit = 20) -> Response:
        """Accounts whose id contains a text; ids that begin with it come first."""
        served = service.served
        matches = await service.run_in_background(request, lambda: _accounts(served, search, limit))
        return json_response(
            matches if service.store is None else await _current(service.store, matches, search, limit)
        )

    @app.get("/v1/items", response_model=ItemsFound, tags=["look up"])
    async def items(request: Request, search: Text = "", limit: Limit = 20) -> Response:
        """Items whose id or title contains a text; those that begin with it come first."""
        served = service.served
        return json_response(await service.run_in_background(request, lambda: _items(served, search, limit)))

    @app.get("/v1/population", response_model=PopulationFound, tags=["people"])
    async def population() -> Response:
        """How many people the accounts have, with examples; zeros if the bundle has no such numbers."""
        population = service.served.recommender.source.population or NO_POPULATION
        if service.store is not None and population["examples"]:
            erased, _ = await service.store.look_up([one["account"] for one in population["examples"]])
            examples = [one for one in population["examples"] if one["account"] not in erased]
            population = {**population, "examples": examples}
        return json_response(population)

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
        """Who is probably watching: the chance of each person at the start of a session and after each item."""
        served = service.served
        _refuse_nobody(body)
        who = whose_history(served, body, await service.histories(served, [body.account]))
        return await service.find_people(request, lambda check: _who_response(served, body, who, check))

    async def _people(request: Request, ask: AskPeople) -> Response:
        served = service.served
        refuse_length(ask.k, limits)
        _refuse_nobody(ask)
        who = whose_history(served, ask, await service.histories(served, [ask.account]))
        return await service.find_people(request, lambda check: _people_response(served, ask, who, check))


Who = tuple[str | None, Events | None, tuple[str, ...]]


async def _current(store: LiveStore, matches: dict[str, Any], search: str, limit: int) -> dict[str, Any]:
    """The accounts found in the bundle without erased ones, with the store's numbers of events.

    The account of the store whose id is the searched text comes first.
    """
    names = [one["account"] for one in matches["accounts"]]
    erased, events = await store.look_up([*names, search])
    added = search in events and search not in names
    listed = [search] * added + [name for name in names if name not in erased]
    before = {one["account"]: one["events"] for one in matches["accounts"]}
    accounts = [{"account": name, "events": events.get(name, before.get(name, 0))} for name in listed[:limit]]
    return {"accounts": accounts, "total": matches["total"] + added - len(erased & set(names))}


def _refuse_nobody(ask: AskPeople | AskWho) -> None:
    """Raise an error if times do not fit, or if there is neither account nor history."""
    refuse_times(ask.history, ask.times)
    if ask.history is None and ask.account is None:
        raise RefusedError(422, "nobody_named", "give an account, a history, or both.")


def _who_response(served: ServedBundle, ask: AskWho, who: Who, check: Check) -> Response:
    times: Any = ask.times
    watching = served.recommender.who(who[0], who[1], times, time=ask.time, items=ask.items)
    check()
    return json_response(
        {
            "account": ask.account,
            "time": watching.time,
            "people": watching.people,
            "steps": [{"item": item, **_title(item, served), "chances": chances} for item, chances in watching.steps],
            "going_on": watching.going_on,
            "notes": [*who[2], *watching.notes],
        }
    )


def _title(item: str | None, served: ServedBundle) -> dict[str, Any]:
    title = served.facts.get(item or "", {}).get("title")
    return {} if title is None else {"title": title}


def _people_response(served: ServedBundle, ask: AskPeople, who: Who, check: Check) -> Response:
    times: Any = ask.times
    people = served.recommender.people(who[0], who[1], times, k=ask.k, exclude_seen=ask.exclude_seen)
    check()
    answer = people_json(people, served)
    if who[2]:
        answer |= {"account": ask.account, "notes": [*who[2], *people.notes]}
    return json_response(answer)


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


def json_response(answer: Any, status: int = 200) -> Response:
    """A JSON response, without validation: the content was made here."""
    return Response(to_json(answer), status, media_type="application/json")


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
    """An item by its id, with its title, categories, year and image where they are known."""
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
