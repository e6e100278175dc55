"""What each method of the protocol does, without the transport."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..inference.metadata import model_metadata, repository_index, server_metadata
from ..inference.service import Service
from ..protocol.interface import OUTPUTS
from ..protocol.request_errors import BadRequest, DeadlineExceeded, NotFound, RequestError
from .grpc_codec import decode_infer, encode_infer

if TYPE_CHECKING:
    from google.protobuf.message import Message

SERVICE: Final = "inference.GRPCInferenceService"

HEALTH: Final = frozenset({"ServerLive", "ServerReady"})
"""Methods that need neither a token nor a message."""

M = TypeVar("M", bound="Message")
_SHORT: Final = 1 << 18  # bytes whose parsing takes about as long as passing them to a thread


@dataclasses.dataclass
class Call:
    """A call: its service and method ("other" for unknown ones), its message, the seconds its client still waits (None:
    no limit), fields for the access log."""

    route: str
    data: bytes = b""
    remaining: float | None = None
    noted: dict[str, Any] = dataclasses.field(default_factory=dict)


class Calls:
    """The methods by name: the bytes of a message in, the reply out. They raise RequestError."""

    def __init__(self, service: Service) -> None:
        from . import open_inference_pb2

        self._service = service
        self._messages = open_inference_pb2
        self._methods: dict[str, Callable[[Call], Awaitable[Message | bytes]]] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
            "RepositoryIndex": self._repository_index,
        }

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods."""
        return tuple(self._methods)

    def has_method(self, method: str) -> bool:
        """Whether the method exists."""
        return method in self._methods

    def check_room(self, method: str) -> None:
        """Raises Draining or Overloaded if every model would refuse a request now.

        For calls whose message, which names the model, has not been read yet."""
        if method != "ModelInfer":
            return
        refused: RequestError | None = None
        for model in self._service.catalogue.models:
            try:
                self._service.check_room(model)
            except RequestError as error:
                refused = error
            else:
                return
        if refused is not None:
            with self._service.counted(""):
                raise refused

    async def answer(self, method: str, call: Call) -> bytes:
        """The reply to a call, serialized."""
        reply = await self._methods[method](call)
        return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())

    async def _server_live(self, call: Call) -> Message:
        return self._messages.ServerLiveResponse(live=True)

    async def _server_ready(self, call: Call) -> Message:
        return self._messages.ServerReadyResponse(ready=self._service.ready)

    async def _model_ready(self, call: Call) -> Message:
        asked = parsed(self._messages.ModelReadyRequest, call.data)
        try:
            self._service.catalogue.get(asked.name, asked.version)
        except NotFound:  # no error here: an unknown model is not ready
            return self._messages.ModelReadyResponse(ready=False)
        return self._messages.ModelReadyResponse(ready=self._service.ready)

    async def _server_metadata(self, call: Call) -> Message:
        parsed(self._messages.ServerMetadataRequest, call.data)
        return self._messages.ServerMetadataResponse(**server_metadata())

    async def _model_metadata(self, call: Call) -> Message:
        asked = parsed(self._messages.ModelMetadataRequest, call.data)
        metadata = model_metadata(self._service.catalogue.get(asked.name, asked.version))
        fields = ("name", "versions", "platform", "inputs", "outputs")
        return self._messages.ModelMetadataResponse(**{key: metadata[key] for key in fields})

    async def _repository_index(self, call: Call) -> Message:
        asked = parsed(self._messages.RepositoryIndexRequest, call.data)
        if asked.repository_name:
            raise BadRequest("There is one repository; leave repository_name empty.")
        models = [item for item in repository_index(self._service) if item["state"] == "READY" or not asked.ready]
        return self._messages.RepositoryIndexResponse(models=models)

    async def _model_infer(self, call: Call) -> bytes:
        service = self._service
        short = len(call.data) < _SHORT
        with service.counted(""):
            message = await service.work(partial(parsed, self._messages.ModelInferRequest, call.data), short=short)
        with service.counted(message.model_name):
            model = service.catalogue.get(message.model_name, message.model_version)
            call.noted["model"] = model.name
            service.check_room(model.name)
            request = await service.work(partial(decode_infer, message), short=short)
            call.noted |= {"images": request.count, "outputs": sorted(request.outputs & OUTPUTS.keys())}
            if call.remaining is not None:
                if call.remaining <= 0:
                    raise DeadlineExceeded("The client's deadline is over.")
                wanted = call.remaining if request.timeout is None else min(request.timeout, call.remaining)
                request = dataclasses.replace(request, timeout=wanted)
        answer = await service.infer(request)
        size = sum(array.nbytes for array in answer.outputs.values())
        return await service.work(partial(encode_infer, answer), short=size < _SHORT)


def parsed(message_type: type[M], data: bytes) -> M:
    """The message of type `message_type` in `data`. Raises BadRequest if it cannot be parsed."""
    from google.protobuf.message import DecodeError

    try:
        message: M = message_type.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"The message is not a valid {message_type.__name__}.") from error
    return message
