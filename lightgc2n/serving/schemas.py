"""What is asked and what is answered, as the OpenAPI document tells it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from lightgc2n.serving.settings import MOST_QUESTIONS

ItemId = Annotated[str, Field(min_length=1, max_length=512)]
AccountId = Annotated[str, Field(min_length=1, max_length=512)]
Time = Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=-(2**62), le=2**62)]
STRICT = ConfigDict(extra="forbid", strict=True)


class Ask(BaseModel):
    """Who asks for a list, and what may be in it. An account, a history, or both must be given."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={
            "examples": [
                {"account": "h000003", "k": 10},
                {"history": ["v1", "v7", "v7", "v31"], "k": 5, "exclude_seen": True},
                {"account": "h000003", "person": "B", "deny": ["v9"]},
            ]
        }
    )

    account: AccountId | None = Field(None, description="An account; without a history, its stored one counts.")
    history: list[ItemId] | None = Field(None, description="Items, oldest first, in place of the stored ones.")
    times: list[Time] | None = Field(
        None, description="When each event of the history was: ISO 8601, or microseconds since 1970."
    )
    k: int = Field(20, ge=1, description="Length of the list.")
    person: str | None = Field(
        None, pattern="^[A-Z]$", description="The list for one of the people behind the account: A, B ..."
    )
    together: bool = Field(False, description="One list that suits all people behind the account.")
    exclude_seen: bool = Field(False, description="Leave items of the history out.")
    allow: list[ItemId] | None = Field(None, description="The only items that may be listed.")
    deny: list[ItemId] | None = Field(None, description="Items that may not be listed.")
    domain: Annotated[str, Field(max_length=512)] | None = Field(None, description="List items of this domain alone.")


class ManyAsks(BaseModel):
    """Several questions, answered in their order."""

    model_config = STRICT | ConfigDict(
        json_schema_extra={"examples": [{"requests": [{"account": "h000003"}, {"history": ["v1"]}]}]}
    )

    requests: list[Ask] = Field(min_length=1, max_length=MOST_QUESTIONS)


def _kind(body: Any) -> str:
    return "many" if isinstance(body, dict) and "requests" in body else "one"


AskBody = Annotated[Annotated[Ask, Tag("one")] | Annotated[ManyAsks, Tag("many")], Discriminator(_kind)]


class Listed(BaseModel):
    """One place of a list; the score orders the list and means nothing beyond it."""

    item: str
    title: str | None = None
    score: float
    rank: int


class Answer(BaseModel):
    """A list, best first, and what its reader should know."""

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
    fallback: bool = Field(description="Nothing is known of who asks, so these are the most popular items.")
    notes: list[str]
    model: str = Field(description="The checksum of the bundle that answered, its first 12 letters.")


class Problem(BaseModel):
    """Why a request is not answered."""

    code: str
    message: str
    details: list[Any] = []


class ProblemBody(BaseModel):
    """The shape of every error."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"error": {"code": "unknown_account", "message": "account 'h9' is not known here.", "details": []}}
            ]
        }
    )

    error: Problem


class ManyAnswers(BaseModel):
    """An answer for each question, in order; one that failed has its error in its place."""

    answers: list[Answer | ProblemBody]


class AskPeople(BaseModel):
    """An account with another history, or a history alone: what if?"""

    model_config = STRICT | ConfigDict(
        json_schema_extra={
            "examples": [{"history": ["v1", "v2"], "times": ["2024-05-01T20:15", "2024-05-02T07:30"], "k": 5}]
        }
    )

    account: AccountId | None = None
    history: list[ItemId] | None = None
    times: list[Time] | None = None
    k: int = Field(10, ge=1)
    exclude_seen: bool = False


class EventOfPerson(BaseModel):
    item: str
    title: str | None = None
    time: str | None
    person: str
    probability: float
    shares: list[float]


class LikeOfPerson(BaseModel):
    item: str
    title: str | None = None
    events: float
    times: float = Field(description="How many times as often as everybody has it.")


class Active(BaseModel):
    weekdays: list[float]
    months: list[float]
    hours: list[float] | None


class PersonFound(BaseModel):
    name: str
    events: int
    share: float
    likes: list[LikeOfPerson]
    active: Active | None
    next: Answer


class PeopleFound(BaseModel):
    """The people behind an account, by letters: who did what, what each likes, and what to show them."""

    account: str | None
    count: int
    confidence: float
    chances: list[float] = Field(description="Of one person, of two ...")
    events: list[EventOfPerson]
    people: list[PersonFound]
    together: Answer | None
    account_list: Answer
    sessions: list[int] = Field(description="For each event the number of its session.")


class AccountListed(BaseModel):
    account: str
    events: int


class AccountsFound(BaseModel):
    accounts: list[AccountListed]
    total: int


class ItemListed(BaseModel):
    item: str
    title: str | None = None


class ItemsFound(BaseModel):
    items: list[ItemListed]
    total: int


class ModelFacts(BaseModel):
    """The model card and what the service can do with it."""

    model: str
    dataset: str
    metrics: dict[str, Any]
    card: str = Field(description="The model card, in Markdown.")
    settings: dict[str, Any]
    items: int
    accounts: int
    checksum: str
    schema_: int = Field(alias="schema")
    people: bool = Field(description="Whether the people behind accounts can be told apart.")
    report: bool = Field(description="Whether there is a report at /report.")
    device: bool = Field(description="Whether a browser can run the model by itself: /device and /ort.")
    titles: bool


class Health(BaseModel):
    status: Literal["ok", "draining"]
