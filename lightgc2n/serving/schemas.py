"""The request and response bodies of the API, as the OpenAPI document describes them."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from lightgc2n.serving.errors import RefusedError
from lightgc2n.serving.settings import MOST_QUERIES, Limits

ItemId = Annotated[str, Field(min_length=1, max_length=512)]
AccountId = Annotated[str, Field(min_length=1, max_length=512)]
Time = Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=-(2**62), le=2**62)]
STRICT = ConfigDict(extra="forbid", strict=True)
MOST_BEGUN = 100  # items of one session
MOST_FIELDS = 32  # fields of an object; valid requests have fewer

DEFAULT_LIMITS = Limits()
current_limits: ContextVar[Limits] = ContextVar("current_limits")


def _at_most(most: Callable[[Limits], int], code: str, message: str) -> BeforeValidator:
    """A check of a list's length before its items are validated."""

    def check(value: Any) -> Any:
        if isinstance(value, list) and len(value) > (limit := most(current_limits.get(DEFAULT_LIMITS))):
            raise RefusedError(422, code, f"{message.format(limit)}, found {len(value):,}.")
        return value

    return BeforeValidator(check)


# Only the first invalid item of a list is reported.
FIRST_MISTAKE = Field(fail_fast=True)
HISTORY_LENGTH = _at_most(lambda limits: limits.max_history, "history_too_long", "a history has at most {:,} events")
NAMED_LENGTH = _at_most(
    lambda limits: limits.max_named, "too_many_items", "allow and deny name at most {:,} items each"
)
BEGUN_LENGTH = _at_most(lambda _: MOST_BEGUN, "too_many_items", "items names at most {:,} that were begun")
History = Annotated[list[ItemId], FIRST_MISTAKE, HISTORY_LENGTH]
Times = Annotated[list[Time], FIRST_MISTAKE, HISTORY_LENGTH]
Named = Annotated[list[ItemId], FIRST_MISTAKE, NAMED_LENGTH]


class RequestBody(BaseModel):
    """Base of all request bodies: limits the number of fields before they are validated."""

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError(f"expected at most {MOST_FIELDS} fields, found {len(value):,}")
        return value


class Ask(RequestBody):
    """A request for one list. An account, a history, or both must be given."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={
            "examples": [
                {"account": "h000003", "k": 10},
                {"history": ["v1", "v7", "v7", "v31"], "k": 5, "exclude_seen": True},
                {"account": "h000003", "person": "B", "deny": ["v9"]},
            ]
        }
    )

    account: AccountId | None = Field(None, description="An account id; without a history its stored history is used.")
    history: History | None = Field(None, description="Item ids, oldest first, instead of the stored history.")
    times: Times | None = Field(
        None, description="The time of each event of the history: ISO 8601, or microseconds since 1970."
    )
    k: int = Field(20, ge=1, description="Length of the list.")
    person: str | None = Field(
        None, pattern="^[A-Z]$", description="The list for one of the people behind the account: A, B ..."
    )
    together: bool = Field(False, description="One list that suits all people behind the account.")
    exclude_seen: bool = Field(False, description="Leave out the items of the history.")
    allow: Named | None = Field(None, description="The only items that may be listed.")
    deny: Named | None = Field(None, description="Items that may not be listed.")
    domain: Annotated[str, Field(max_length=512)] | None = Field(None, description="List items of this domain alone.")


class ManyAsks(RequestBody):
    """Several requests, answered in order."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"examples": [{"requests": [{"account": "h000003"}, {"history": ["v1"]}]}]}
    )

    requests: list[Ask] = Field(min_length=1, max_length=MOST_QUERIES, fail_fast=True)


def _kind(body: Any) -> str:
    return "many" if isinstance(body, dict) and "requests" in body else "one"


AskBody = Annotated[Annotated[Ask, Tag("one")] | Annotated[ManyAsks, Tag("many")], Discriminator(_kind)]


class Item(BaseModel):
    """An item; unknown fields are left out."""

    item: str
    title: str | None = None
    categories: list[str] = []
    year: int | None = None
    image: str | None = Field(None, description="The address of an image.")


class Listed(Item):
    """One entry of a list; the score orders this list and is not comparable with other lists."""

    score: float
    rank: int


class Answer(BaseModel):
    """A list, best first, with notes."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "account": "h000003",
                    "items": [{"item": "v31", "title": "The Lighthouse", "score": 4.12, "rank": 1}],
                    "fallback": False,
                    "notes": [],
                    "model": "3f9a52c01b7e",
                }
            ]
        }
    )

    account: str | None
    items: list[Listed]
    fallback: bool = Field(description="There is no history, so these are the most popular items.")
    notes: list[str]
    model: str = Field(description="The first 12 characters of the checksum of the bundle that answered.")


class Problem(BaseModel):
    """An error."""

    code: str
    message: str
    details: list[Any] = []
    request_id: str = Field(description="As in the header X-Request-Id and in the log.")


class ProblemBody(BaseModel):
    """The body of every error response."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": {
                        "code": "unknown_account",
                        "message": "account 'h9' is not known here.",
                        "details": [],
                        "request_id": "5f1d3a90b7c2e846",
                    }
                }
            ]
        }
    )

    error: Problem


class ManyAnswers(BaseModel):
    """An answer for each request, in order; a failed one has an error instead."""

    answers: list[Answer | ProblemBody]


class AskPeople(RequestBody):
    """An account, an account with another history, or a history alone."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={
            "examples": [{"history": ["v1", "v2"], "times": ["2024-05-01T20:15", "2024-05-02T07:30"], "k": 5}]
        }
    )

    account: AccountId | None = None
    history: History | None = None
    times: Times | None = None
    k: int = Field(10, ge=1)
    exclude_seen: bool = False


class EventOfPerson(Item):
    time: str | None
    person: str
    probability: float
    shares: list[float]


class LikeOfPerson(Item):
    events: int = Field(description="Events of this person with the item; at least two.")
    times: float = Field(description="How many times as often as in the training data.")


class CategoryOfPerson(BaseModel):
    name: str
    events: int
    share: float = Field(description="The share of these events in the person's events.")


class Active(BaseModel):
    weekdays: list[float]
    months: list[float]
    hours: list[float] | None


class PersonFound(BaseModel):
    name: str
    description: str = Field(description='In a few words, such as "mostly history, weekend mornings".')
    events: int = Field(description="Events of which this person is the most probable owner.")
    share: float = Field(description="The share of these events in all events.")
    categories: list[CategoryOfPerson] = Field(description="The most frequent ones, or domains; at least two events.")
    likes: list[LikeOfPerson]
    active: Active | None
    next: Answer


class PeopleFound(BaseModel):
    """The people behind an account, named by letters: who did what, what each likes, and lists for them."""

    account: str | None
    count: int
    confidence: float
    chances: list[float] = Field(description="The probabilities of one person, of two ...")
    events: list[EventOfPerson]
    people: list[PersonFound]
    together: Answer | None
    account_list: Answer
    sessions: list[int] = Field(description="The session id of each event.")
    notes: list[str] = Field(description="Remarks, for example that older events were left out.")


class ExampleFound(BaseModel):
    account: str
    count: int
    confidence: float
    events: int


class PopulationFound(BaseModel):
    """How many people the accounts of the bundle have, estimated when it was exported."""

    accounts: int = Field(description="Accounts that were counted: all, or 2,000 spread evenly over them.")
    counts: list[int] = Field(description="Accounts with one person, with two ...")
    examples: list[ExampleFound] = Field(
        description="An account with a clear estimate for each count, and one with an uncertain estimate."
    )


class AskWho(RequestBody):
    """Who is watching: an account, a history, or both, a time, and what was begun."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"examples": [{"account": "h000003", "time": "2030-05-04T20:15", "items": ["v1"]}]}
    )

    account: AccountId | None = None
    history: History | None = None
    times: Times | None = None
    time: Time | None = Field(
        None, description="The time to estimate for, not before the newest event: ISO 8601, or microseconds since 1970."
    )
    items: Annotated[list[ItemId], FIRST_MISTAKE, BEGUN_LENGTH] = Field(
        [], description="What was begun in this session, in order."
    )


class WatchingAfter(BaseModel):
    item: str | None = Field(description="The item that was begun; null before anything was.")
    title: str | None = None
    chances: list[float] = Field(description="The chance of each person; they sum to one.")


class WhoFound(BaseModel):
    """The people behind an account, and the chance that each of them is watching."""

    account: str | None
    time: str | None
    people: list[str] = Field(description="Letters, as for the people of the same history.")
    steps: list[WatchingAfter] = Field(description="Before anything was begun, and after each item.")
    going_on: int = Field(description="The number of items taken from the history, because its last session continues.")
    notes: list[str]


class AccountListed(BaseModel):
    account: str
    events: int


class AccountsFound(BaseModel):
    accounts: list[AccountListed]
    total: int


class ItemsFound(BaseModel):
    items: list[Item]
    total: int


class FailedReload(BaseModel):
    """The bundle at the path cannot be loaded; an older one is served, and loading is retried."""

    reason: str
    since: str = Field(description="The time of the first failed attempt, ISO 8601.")
    tries: int


class ModelFacts(BaseModel):
    """The model card and what the service can do with it."""

    model: str
    dataset: str
    metrics: dict[str, Any]
    card: str = Field(description="The model card, in Markdown.")
    settings: dict[str, Any]
    items: int
    accounts: int
    checksum: str = Field(description="The first 12 characters of the checksum of the bundle, accounts included.")
    schema_: int = Field(alias="schema")
    people: bool = Field(description="Whether the people behind accounts can be found.")
    report: bool = Field(description="Whether there is a report at /report.")
    device: bool = Field(description="Whether a browser can run the model by itself: /device and /ort.")
    titles: bool
    store: Literal["ok", "unavailable"] | None = Field(
        description="Whether the store of events answers; null: no store."
    )
    reload: FailedReload | None = Field(description="Why a newer bundle is not served; null if there is none.")


class Health(BaseModel):
    status: Literal["ok", "draining"]


class Readiness(BaseModel):
    status: Literal["ok"]
    reload: Literal["failed"] | None = Field(
        None, description="A newer bundle cannot be loaded, the old one is served; /v1/model says why."
    )
    store: Literal["unavailable"] | None = Field(None, description="The store of events does not answer.")
