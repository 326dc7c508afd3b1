"""The routes that change what the service knows: events, and their erasure."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import unquote

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from lightgc2n.errors import SettingError
from lightgc2n.recommending.queries import History, read_times
from lightgc2n.serving.errors import RefusedError, request_id, unknown
from lightgc2n.serving.event_schemas import Erased, Event, EventBody, EventsPage, EventsStored, ManyEvents
from lightgc2n.serving.live_histories import Live
from lightgc2n.serving.live_store import LiveStore
from lightgc2n.serving.recorder import RecordedEvent
from lightgc2n.serving.routes import json_response, named
from lightgc2n.serving.served_bundle import ServedBundle
from lightgc2n.serving.service import Service
from lightgc2n.store.events import NewEvent, Outcome, StoredEvent, fault_of

CHECKED_INLINE = 100  # events checked in the event loop; more would delay other requests
NUMBERED = "~"  # begins the name of an event without an id: ~17
EMPTY = History(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64))
ERASED = "the account or the event was erased; its id cannot be used again."
Parsed = NewEvent | str  # an event, or the reason why it cannot be stored


def add_event_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for events; without a store they answer that there is none."""

    @app.post("/v1/events", status_code=201, response_model=EventsStored, tags=["events"])
    async def events(request: Request, body: EventBody) -> Response:
        """Store one event, or up to 1,000. The response is sent once they are durable; the same id counts once."""
        store = _store_of(service)
        sent: Sequence[Any] = body.events if isinstance(body, ManyEvents) else [body]
        if len(sent) <= CHECKED_INLINE:
            parsed = [_parsed(one) for one in sent]
        else:
            parsed = await service.run_in_background(request, lambda: [_parsed(one) for one in sent])
        good = [one for one in parsed if isinstance(one, NewEvent)]
        outcomes = await _append(service, store, request, good)
        answer = _summary(parsed, outcomes)
        if good:
            await _note_write(service, store, request, good, answer)
        for name in ("stored", "duplicates", "refused"):
            service.metrics.events.labels(name).inc(answer[name])
        if answer["refused"] == len(parsed):
            wrong = [{"where": f"events.{place}", **one} for place, one in enumerate(answer["results"])]
            raise RefusedError(422, "events_refused", "no event could be stored; details say why.", wrong)
        return json_response(answer, 201)

    @app.get("/v1/accounts/{account:path}/events", response_model=EventsPage, tags=["events"])
    async def events_of(
        request: Request,
        account: str,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
    ) -> Response:
        """The stored events of an account in pages, newest first."""
        del account
        if len(parts := _ids_in_path(request)) != 2:
            raise _not_encoded()
        owner, cursor = parts[0], _cursor(before)
        page, version = await _store_of(service).query(
            lambda store: (store.events(owner, limit, cursor), store.version(owner))
        )
        if version is None:
            raise unknown("account", owner)
        return json_response(_page(owner, page, limit, service.served))

    @app.delete("/v1/accounts/{account:path}/events/{event:path}", response_model=Erased, tags=["events"])
    async def erase_event(request: Request, account: str, event: str) -> Response:
        """Erase one event: by its id, or `~` and its number as listed. Later responses and models do not use it."""
        del account, event
        return await _erase(request)

    @app.delete("/v1/accounts/{account:path}", response_model=Erased, tags=["events"])
    async def erase_account(request: Request, account: str) -> Response:
        """Erase an account with its events. Later responses and models do not use it; its id cannot be used again."""
        del account
        return await _erase(request)

    async def _erase(request: Request) -> Response:
        """An id may contain slashes, percent-encoded, so that both routes match: the path as it was sent decides."""
        store, served = _store_of(service), service.served
        parts = _ids_in_path(request)
        if len(parts) == 1:
            known = served.recommender.knows(parts[0])
            note = _erasure_line(service, store, request, parts[0], "account")
            count = await store.erase_account(parts[0], known, note)
            service.metrics.erasures.labels("account").inc()
            return json_response({"events": count, "stays": store.what_stays(known)})
        if len(parts) != 3 or parts[1] != "events":
            raise _not_encoded()
        account, _, event = parts
        number = _number(event)
        note = _erasure_line(service, store, request, account, "event")
        if not await store.erase_event(account, event if number is None else None, number, note):
            raise unknown("event", event)
        service.metrics.erasures.labels("event").inc()
        return json_response({"events": 1, "stays": store.what_stays(served.recommender.knows(account))})


def _store_of(service: Service) -> LiveStore:
    if service.store is None:
        raise RefusedError(404, "no_store", "this service has no store of events; start it with --store.")
    return service.store


def _not_encoded() -> RefusedError:
    return RefusedError(404, "not_found", "percent-encode slashes in ids: %2F.")


def _ids_in_path(request: Request) -> list[str]:
    """The parts of the path after /v1/accounts/ as they were sent: a slash in an id is percent-encoded."""
    return [unquote(part) for part in request.scope["raw_path"].decode("latin-1").split("/")[3:]]


def _number(event: str) -> int | None:
    """The number of an event that is named by its number; None for an id."""
    if not event.startswith(NUMBERED):
        return None
    digits = event[1:]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else 0  # 0: no event has it


def _parsed(sent: Any) -> Parsed:
    """An event that can be stored, or the reason why it cannot."""
    try:
        event = sent if isinstance(sent, Event) else Event.model_validate(sent)
        moment = time.time_ns() // 1000 if event.time is None else int(read_times([event.time])[0])  # type: ignore[arg-type]
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    except SettingError as problem:
        return problem.service
    if event.id is not None and event.id.startswith(NUMBERED):
        return f"id: expected any first character but {NUMBERED}"
    new = NewEvent(event.account, event.item, moment, event.id, event.domain, event.session)
    return fault_of(new) or new


async def _append(service: Service, store: LiveStore, request: Request, events: Sequence[NewEvent]) -> list[Outcome]:
    """Store events; a recorder of live quality receives some of them with the histories before them."""
    if not events:
        return []
    served, recorder = service.served, service.recorder
    places = recorder.select(events) if recorder is not None else ()
    before = await service.histories(served, [events[place].account for place in places]) if places else {}
    outcomes = await store.append(request.scope["client_name"], events)
    if recorder is not None and places:
        recorder.record(served, _recorded(served, events, outcomes, set(places), before))
    return outcomes


def _recorded(
    served: ServedBundle,
    events: Sequence[NewEvent],
    outcomes: Sequence[Outcome],
    places: set[int],
    before: dict[str, Live | RefusedError],
) -> list[RecordedEvent]:
    """The selected events that were stored, each with the history before it; earlier events of the request count."""
    index, recorded = served.recommender.dataset.item_index, list[RecordedEvent]()
    histories: dict[str, History] = {}
    for account, live in before.items():
        known = live.history if isinstance(live, Live) else None
        histories[account] = known or served.recommender.stored_history(account) or EMPTY
    for place, (event, outcome) in enumerate(zip(events, outcomes, strict=True)):
        if outcome is not Outcome.STORED or event.account not in histories:
            continue
        history = histories[event.account]
        if place in places:
            recorded.append(RecordedEvent(event, history))
        if event.item in index:
            histories[event.account] = _with_event(history, index[event.item], event.time)
    return recorded


def _with_event(history: History, item: int, moment: int) -> History:
    """The history with the event inserted by time."""
    if history.times is None:
        return History(np.append(history.items, np.int32(item)), None)
    place = int(np.searchsorted(history.times, moment, side="right"))
    return History(np.insert(history.items, place, item), np.insert(history.times, place, moment))


async def _note_write(
    service: Service, store: LiveStore, request: Request, events: Sequence[NewEvent], answer: dict[str, Any]
) -> None:
    """Append a line to the audit log."""
    accounts = list(dict.fromkeys(event.account for event in events))
    facts = {**_asker(request), **{name: answer[name] for name in ("stored", "duplicates", "refused")}}
    ids = {"ids": accounts, "items": [event.item for event in events]} if service.settings.log_ids else {}
    await service.audit.note("write", lambda: {**facts, "accounts": store.hashes_of(accounts), **ids}, durable=False)


def _erasure_line(service: Service, store: LiveStore, request: Request, account: str, what: str) -> Callable[[], None]:
    """Return a function that appends a line to the audit log."""
    facts = {**_asker(request), "what": what, **({"ids": [account]} if service.settings.log_ids else {})}
    return lambda: service.audit.write("erase", lambda: {**facts, "accounts": store.hashes_of([account])}, durable=True)


def _asker(request: Request) -> dict[str, Any]:
    return {"key": request.scope.get("key"), "request_id": request_id.get()}


def _summary(parsed: Sequence[Parsed], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcome of each event, and the number of each outcome."""
    left, results = iter(outcomes), list[dict[str, str]]()
    for one in parsed:
        outcome = next(left) if isinstance(one, NewEvent) else None
        if outcome is None:
            results.append({"status": "refused", "code": "invalid", "message": str(one)})
        elif outcome is Outcome.ERASED:
            results.append({"status": "refused", "code": "erased", "message": ERASED})
        else:
            results.append({"status": outcome.value})
    counts = [one["status"] for one in results]
    return {
        "stored": counts.count("stored"),
        "duplicates": counts.count("duplicate"),
        "refused": counts.count("refused"),
        "results": results,
    }


def _cursor(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        moment, number = map(int, text.split("."))
    except ValueError:
        raise RefusedError(422, "invalid", "before: expected `next` of the page before.") from None
    if not max(abs(moment), abs(number)) < 2**63:
        raise RefusedError(422, "invalid", "before: expected `next` of the page before.")
    return moment, number


def _page(account: str, events: Sequence[StoredEvent], limit: int, served: ServedBundle) -> dict[str, Any]:
    rows = [
        {
            "event": one.id if one.id is not None else f"{NUMBERED}{one.number}",
            **named(one.item, served),
            "time": _iso(one.time),
            **{name: value for name, value in (("domain", one.domain), ("session", one.session)) if value is not None},
        }
        for one in events
    ]
    last = events[-1] if len(events) == limit else None
    return {"account": account, "events": rows, "next": None if last is None else f"{last.time}.{last.number}"}


def _iso(moment: int) -> str:
    return str(np.datetime64(moment, "us"))
