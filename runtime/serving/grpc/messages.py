"""The protocol's messages as classes, made when they are needed."""

from __future__ import annotations

import base64
from typing import Any

from ....engines.errors import MissingExtraError
from ..protocol.errors import BadRequest
from .descriptor import DESCRIPTOR_SET

__all__ = ["SERVICE", "Messages"]

SERVICE = "inference.GRPCInferenceService"


class Messages:
    """The classes by name. Raises MissingExtraError without protobuf.

    They live in a pool of their own: clients of the protocol put messages of the same names into protobuf's common one,
    which takes every name once.
    """

    def __init__(self) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
        except ImportError as error:
            raise MissingExtraError("protobuf is not installed; install xbench-fast[serve].") from error
        described = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTOR_SET))
        pool = descriptor_pool.DescriptorPool()
        for file in described.file:
            pool.AddSerializedFile(file.SerializeToString())
        self._error: type[Exception] = message.DecodeError
        self._classes: dict[str, Any] = {
            entry.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{entry.name}"))
            for file in described.file
            for entry in file.message_type
        }

    def make(self, kind: str, /, **fields: Any) -> Any:
        """A message of the class `kind`."""
        return self._classes[kind](**fields)

    def parse(self, name: str, data: bytes) -> Any:
        """The message in `data`. Raises BadRequest when there is none."""
        try:
            return self._classes[name].FromString(data)
        except self._error as error:
            raise BadRequest(f"The message is no valid {name}.") from error
