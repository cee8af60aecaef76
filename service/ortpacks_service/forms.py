"""The forms of requests and answers, of which the description in ``openapi.json`` is made."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

Texts = str | list[str]

Vectors = list[list[float]]


class EmbedRequest(TypedDict):
    """Texts to embed; the end of a long one is cut off, which is told, unless ``truncate`` is false."""

    texts: Texts
    truncate: NotRequired[bool]


class EmbedAnswer(TypedDict):
    """Vectors of length 1, in the order of the texts; ``truncated`` has the places of texts that were cut."""

    embeddings: Vectors
    dimensions: int
    model: str
    provider: str
    truncated: list[int]


class TeiRequest(TypedDict):
    """The form of Text Embeddings Inference, which ``/embed`` takes too."""

    inputs: Texts
    truncate: NotRequired[bool | None]
    truncation_direction: NotRequired[Literal["right", "Right"] | None]
    normalize: NotRequired[bool | None]
    dimensions: NotRequired[int | None]
    prompt_name: NotRequired[None]


class OpenaiRequest(TypedDict):
    """OpenAI's form. ``user`` is not used."""

    input: Texts
    model: NotRequired[str]
    encoding_format: NotRequired[Literal["float", "base64"]]
    dimensions: NotRequired[int]
    user: NotRequired[str]
    truncate: NotRequired[bool]


class OpenaiAnswer(TypedDict):
    """OpenAI's form, and the places of texts that were cut."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    model: str
    usage: dict[str, int]
    truncated: list[int]


class AddRequest(TypedDict):
    """Texts to store.

    ``keys`` and ``metadata`` have an entry for each text. A text with a key replaces the one with that key,
    so that a request may be sent again.
    """

    texts: Texts
    keys: NotRequired[list[str]]
    metadata: NotRequired[list[dict[str, Any] | None]]
    truncate: NotRequired[bool]


class AddAnswer(TypedDict):
    """Numbers of the texts, which are on disk."""

    ids: list[int]
    truncated: list[int]


class DeleteRequest(TypedDict, total=False):
    """Numbers or keys of stored texts."""

    ids: list[int]
    keys: list[str]


class StoredText(TypedDict):
    """A stored text."""

    id: int
    text: str
    key: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]


class TextsQuery(TypedDict):
    """Which of the stored texts are wanted: ``limit`` (at most 1000) with numbers above ``after``."""

    after: NotRequired[int]
    limit: NotRequired[int]


class TextsAnswer(TypedDict):
    """Texts by their numbers; with ``next``, ``?after=`` it has those that follow."""

    texts: list[StoredText]
    next: int | None


class SearchRequest(TypedDict):
    """A text whose nearest ones are wanted."""

    text: str
    k: NotRequired[int]
    truncate: NotRequired[bool]


class Found(StoredText):
    """A stored text, and the cosine of its angle to the one that was asked for."""

    score: float


class SearchAnswer(TypedDict):
    """The nearest texts, nearest first; ``truncated`` has 0 if the text that was asked for was cut."""

    results: list[Found]
    truncated: list[int]


FORMS: dict[str, tuple[Any, Any]] = {
    "POST /embed": (EmbedRequest | TeiRequest, EmbedAnswer | Vectors),
    "POST /": (TeiRequest, Vectors),
    "GET /info": (None, dict[str, Any]),
    "POST /v1/embeddings": (OpenaiRequest, OpenaiAnswer),
    "GET /v1/models": (None, dict[str, Any]),
    "GET /v1/models/{name:path}": (None, dict[str, Any]),
    "POST /add": (AddRequest, AddAnswer),
    "POST /delete": (DeleteRequest, dict[str, list[int]]),
    "GET /texts": (TextsQuery, TextsAnswer),
    "POST /search": (SearchRequest, SearchAnswer),
    "GET /readyz": (None, dict[str, Any]),
}
"""Types of the request and the answer of each route, protocols of others (``/v2``, ``/vad``) apart."""
