"""What the recommender found, as the JSON of the service."""

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response
from pydantic_core import to_json

from lightgc2n.recommending.results import AccountPeople, Recommendations
from lightgc2n.serving.live_bundle import Served

Titles = Mapping[str, str]


def json_response(found: Any) -> Response:
    """The answer as it is: it was made here, and is not checked again."""
    return Response(to_json(found), media_type="application/json")


def list_json(found: Recommendations, served: Served) -> dict[str, Any]:
    """One list. Items without a title have no such field."""
    titles = served.titles
    if titles:
        items = [{**named(item, titles), "score": score, "rank": rank} for item, score, rank in found.items]
    else:
        items = [{"item": item, "score": score, "rank": rank} for item, score, rank in found.items]
    return {
        "account": found.account_id,
        "items": items,
        "fallback": found.fallback,
        "notes": list(found.notes),
        "model": served.checksum,
    }


def named(item: str, titles: Titles) -> dict[str, str]:
    title = titles.get(item)
    return {"item": item} if title is None else {"item": item, "title": title}


def people_json(found: AccountPeople, served: Served) -> dict[str, Any]:
    """The people behind an account."""
    titles = served.titles
    return {
        "account": found.account_id,
        "count": found.count,
        "confidence": found.confidence,
        "chances": found.chances,
        "events": [
            {
                **named(event.item_id, titles),
                "time": event.time,
                "person": event.person,
                "probability": event.probability,
                "shares": event.shares,
            }
            for event in found.events
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
            for person in found.people
        ],
        "together": None if found.together is None else list_json(found.together, served),
        "account_list": list_json(found.whole, served),
        "sessions": found.sessions,
        "notes": list(found.notes),
    }
