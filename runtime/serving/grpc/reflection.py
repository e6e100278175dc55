"""Server reflection, by which tools such as grpcurl learn the services and messages of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from .calls import SERVICE, parsed
from .health import HEALTH_SERVICE

REFLECTION_SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Both versions of the service, whose messages are the same."""


class Reflection:
    """Answers the one method of both services. The descriptors are in a separate pool: protobuf takes every name once
    in a pool, and this process may hold the definitions of a client (open_inference.proto)."""

    def __init__(self, methods: Iterable[str]) -> None:
        """`methods`: of the protocol's service."""
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        self._messages: Any = reflection_pb2
        names = (SERVICE, HEALTH_SERVICE, *REFLECTION_SERVICES)
        self._servicer = reflection.aio.ReflectionServicer(names, pool=_pool(methods))

    def has_method(self, method: str) -> bool:
        """Whether the method exists."""
        return method == "ServerReflectionInfo"

    async def answers(self, received: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A reply to each message, both serialized. Raises BadRequest."""

        async def requests() -> AsyncIterator[Any]:
            async for data in received:
                yield parsed(self._messages.ServerReflectionRequest, data)

        async for reply in self._servicer.ServerReflectionInfo(requests(), None):
            yield bytes(reply.SerializeToString())


def _pool(methods: Iterable[str]) -> Any:
    """The descriptors of all services of the server."""
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    from . import open_inference_pb2

    pool = DescriptorPool()
    inference = _moved(open_inference_pb2.DESCRIPTOR, SERVICE.rpartition(".")[0], open_inference_pb2.DESCRIPTOR.name)
    described = inference.service.add(name=SERVICE.rpartition(".")[2])
    for name in methods:
        described.method.add(
            name=name, input_type=f".inference.{name}Request", output_type=f".inference.{name}Response"
        )
    files = [inference, _moved(reflection_pb2.DESCRIPTOR, "grpc.reflection.v1", "grpc_reflection/v1/reflection.proto")]
    for data in (*(file.SerializeToString() for file in files), health_pb2.DESCRIPTOR.serialized_pb):
        pool.AddSerializedFile(data)
    pool.AddSerializedFile(reflection_pb2.DESCRIPTOR.serialized_pb)
    return pool


def _moved(descriptor: Any, package: str, name: str) -> Any:
    """The file of a descriptor with its messages and services in another package."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    descriptor.CopyToProto(file)
    old, new = f".{file.package}.", f".{package}."
    file.package, file.name = package, name

    def move(messages: Any) -> None:
        for message in messages:
            for field in (field for field in message.field if field.type_name):
                field.type_name = field.type_name.replace(old, new, 1)
            move(message.nested_type)

    move(file.message_type)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(old, new, 1)
            method.output_type = method.output_type.replace(old, new, 1)
    return file
