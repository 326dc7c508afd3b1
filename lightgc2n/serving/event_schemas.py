"""The bodies of the routes for events."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from lightgc2n.serving.schemas import STRICT, AccountId, Item, ItemId, RequestBody, Time
from lightgc2n.serving.settings import MOST_QUERIES


class Event(RequestBody):
    """Something that an account watched or bought."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"examples": [{"account": "h000003", "item": "v31", "time": "2024-05-01T20:15", "id": "e1"}]}
    )

    account: AccountId
    item: ItemId = Field(description="An item that the model does not know is stored; a later model uses it.")
    time: Time | None = Field(None, description="ISO 8601, or microseconds since 1970; without it the time of arrival.")
    id: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        None, description="The same id of an account counts once. It does not begin with ~."
    )
    domain: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        None, description="The domain of the item."
    )
    session: Annotated[str, Field(min_length=1, max_length=512)] | None = None


EVENT_LIST = {"type": "array", "items": {"$ref": "#/components/schemas/Event"}, "minItems": 1, "maxItems": MOST_QUERIES}


class ManyEvents(RequestBody):
    """Several events. Each is checked by itself: bad ones are refused, good ones are stored."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"examples": [{"events": [{"account": "h000003", "item": "v31", "id": "e1"}]}]}
    )

    events: Annotated[list[Any], Field(min_length=1, max_length=MOST_QUERIES), WithJsonSchema(EVENT_LIST)]


def _events_kind(body: Any) -> str:
    return "many" if isinstance(body, dict) and "events" in body else "one"


EventBody = Annotated[Annotated[Event, Tag("one")] | Annotated[ManyEvents, Tag("many")], Discriminator(_events_kind)]


class EventResult(BaseModel):
    status: Literal["stored", "duplicate", "refused"]
    code: str | None = Field(None, description="The error code of a refused event: invalid or erased.")
    message: str | None = Field(None, description="The reason why it was refused.")


class EventsStored(BaseModel):
    """The outcome of each event, in order. Stored events are durable."""

    stored: int
    duplicates: int
    refused: int
    results: list[EventResult]


class EventListed(Item):
    event: str = Field(description="The name of the event for DELETE: its id, or ~ and its number.")
    time: str
    domain: str | None = None
    session: str | None = None


class EventsPage(BaseModel):
    account: str
    events: list[EventListed] = Field(description="Newest first.")
    next: str | None = Field(description="The value of `before` for the next page; null on the last one.")


class Erased(BaseModel):
    """An erasure that is durable."""

    events: int = Field(description="Number of erased events.")
    stays: list[str] = Field(description="Data that the erasure does not reach.")
