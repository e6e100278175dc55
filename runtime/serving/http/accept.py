"""The media type of an answer, by the header Accept (RFC 9110 §12.5.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..protocol.request_errors import BadRequest

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

Endpoint = Callable[["Request"], Awaitable["Response"]]

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
_LONGEST: Final = 4096
"""Characters of Accept that are read: 4 MB of media types took 11 s, in which no other client was answered."""


@dataclass(frozen=True)
class _Range:
    media_type: str
    weight: float

    def matches(self, offer: str) -> int:
        """2 for the media type itself, 1 for its kind (image/*), 0 for all, -1 for none of these."""
        if self.media_type == offer:
            return 2
        if self.media_type == offer.partition("/")[0] + "/*":
            return 1
        return 0 if self.media_type in ("*/*", "*") else -1


def accepted(headers: Sequence[str], offers: Sequence[str]) -> str:
    """The media type among `offers` that the values of Accept prefer; the first one without the header.

    The weight of an offer is the weight of the most specific range that matches it. Among equal weights an offer that
    is named comes before one that a wildcard allows, and then the order in the header counts. Parameters other than q
    are not looked at. Raises BadRequest with status 406.
    """
    text = ",".join(headers)
    if len(text) > _LONGEST:
        raise BadRequest(f"The Accept header has more than {_LONGEST} characters; name fewer media types.", status=406)
    return _preferred(text, tuple(offers))


@lru_cache(64)
def _preferred(text: str, offers: tuple[str, ...]) -> str:
    ranges = _ranges(text)
    if not text.strip(" ,"):
        return offers[0]
    matching: list[tuple[float, int, int, int]] = []
    for position, offer in enumerate(offers):
        specific, order = max(((item.matches(offer), -number) for number, item in enumerate(ranges)), default=(-1, 0))
        if specific >= 0 and (weight := ranges[-order].weight) > 0:
            matching.append((weight, specific, order if specific == 2 else 0, -position))
    if not matching:
        raise BadRequest(f"The Accept header takes none of {', '.join(offers)}; send one of them, or */*.", status=406)
    return offers[-max(matching)[-1]]


def offering(media_type: str, endpoint: Endpoint) -> Endpoint:
    """An endpoint that answers with one media type, and with status 406 to those who do not accept it."""

    async def checked(request: Request) -> Any:
        accepted(request.headers.getlist("accept"), (media_type,))
        return await endpoint(request)

    return checked


def _ranges(text: str) -> list[_Range]:
    """The ranges of a header, without those whose weight is no number from 0 to 1."""
    ranges = []
    for part in text.split(","):
        media_type, *options = (item.strip().lower() for item in part.split(";"))
        weight = next((option.partition("=")[2].strip() for option in options if option.startswith("q=")), "1")
        try:
            number = float(weight)
        except ValueError:
            continue
        if media_type and 0.0 <= number <= 1.0:
            ranges.append(_Range(media_type, number))
    return ranges
