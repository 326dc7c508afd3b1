"""The recommender's results as JSON."""

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response
from pydantic_core import to_json

from lightgc2n.recommending.results import AccountPeople, Recommendations
from lightgc2n.serving.live_bundle import ServedBundle

Titles = Mapping[str, str]


def json_response(answer: Any) -> Response:
    """A JSON response, without validation: the content was made here."""
    return Response(to_json(answer), media_type="application/json")


def list_json(answer: Recommendations, served: ServedBundle) -> dict[str, Any]:
    """One list. Items without a title have no such field."""
    titles = served.titles
    if titles:
        items = [{**named(item, titles), "score": score, "rank": rank} for item, score, rank in answer.items]
    else:
        items = [{"item": item, "score": score, "rank": rank} for item, score, rank in answer.items]
    return {
        "account": answer.account_id,
        "items": items,
        "fallback": answer.fallback,
        "notes": list(answer.notes),
        "model": served.checksum,
    }


def named(item: str, titles: Titles) -> dict[str, str]:
    title = titles.get(item)
    return {"item": item} if title is None else {"item": item, "title": title}


def people_json(answer: AccountPeople, served: ServedBundle) -> dict[str, Any]:
    """The people behind an account."""
    titles = served.titles
    return {
        "account": answer.account_id,
        "count": answer.count,
        "confidence": answer.confidence,
        "chances": answer.chances,
        "events": [
            {
                **named(event.item_id, titles),
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
                "events": person.events,
                "share": person.share,
                "likes": [
                    {**named(like.item_id, titles), "events": like.events, "times": like.times} for like in person.likes
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
