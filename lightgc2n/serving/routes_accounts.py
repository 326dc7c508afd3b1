"""Search for accounts and items, and the people behind an account."""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from lightgc2n.serving.errors import RefusedError, unknown
from lightgc2n.serving.fair_use import Check
from lightgc2n.serving.json_answers import json_response, named, people_json
from lightgc2n.serving.live_bundle import ServedBundle
from lightgc2n.serving.routes_lists import refuse_length, refuse_times
from lightgc2n.serving.schemas import AccountsFound, AskPeople, ItemsFound, PeopleFound
from lightgc2n.serving.service import Service

Text = Annotated[str, Query(max_length=200, description="A text that ids or titles contain; empty: all.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


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

    async def _people(request: Request, ask: AskPeople) -> Response:
        served = service.served
        refuse_length(ask.k, limits)
        refuse_times(ask.history, ask.times)
        if ask.history is None and ask.account is None:
            raise RefusedError(422, "nobody_named", "give an account, a history, or both.")
        if ask.history is None and ask.account is not None and not served.recommender.knows(ask.account):
            raise unknown("account", ask.account)
        return await service.find_people(request, lambda check: _people_response(served, ask, check))


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
    return {"items": [named(items[place], titles) for place in places], "total": total}


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
