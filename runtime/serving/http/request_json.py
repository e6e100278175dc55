"""The JSON of a request as types: requests are checked against them, and their OpenAPI schemas come from them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from ..protocol.interface import INPUTS, OUTPUTS
from ..protocol.requests import TEXT_LIMIT, Parameter
from ..protocol.tensors import DATATYPES, MOST_AXES

_MOST_ENTRIES: Final = 64  # inputs or outputs, as over gRPC
# Names outside these lists are refused later, in a sentence that proposes the name that was probably meant.
_INPUT: Final = Meta(extra_json_schema={"enum": list(INPUTS)})
_DATATYPE: Final = Meta(extra_json_schema={"enum": [*DATATYPES, "BYTES"]})
_OUTPUT: Final = Meta(
    extra_json_schema={"enum": list(OUTPUTS)},
    description="; ".join(f"{name}: {output.description}" for name, output in OUTPUTS.items()),
)


class InputTensor(Struct):
    """A tensor: its data, flat or nested as its shape, or `binary_data_size` among its parameters."""

    name: Annotated[str, _INPUT]
    datatype: Annotated[str, _DATATYPE]
    shape: Annotated[list[Annotated[int, Meta(extra_json_schema={"minimum": 0})]], Meta(max_length=MOST_AXES)]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class RequestedOutput(Struct):
    """An output that the answer must have."""

    name: Annotated[str, _OUTPUT]
    parameters: dict[str, Any] | None = None


class RequestBody(Struct):
    """A request. Members that are null are as if they were not sent, since serialisers of typed languages write every
    member. Unknown members are ignored."""

    inputs: Annotated[list[InputTensor], Meta(min_length=1, max_length=_MOST_ENTRIES)]
    id: Annotated[str, Meta(max_length=TEXT_LIMIT)] | None = None
    outputs: Annotated[list[RequestedOutput], Meta(max_length=_MOST_ENTRIES)] | None = None
    parameters: dict[str, Parameter | None] | None = None
