"""A server with gRPC as a process of its own."""

from __future__ import annotations

from typing import Any

from serving_process import ServerProcess


class GrpcServer(ServerProcess):
    """`xbench-fast serve` that answers gRPC too; `grpc` is "host:port", from the second line of the banner."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, "--grpc-port", 0, **options)
        assert self.process.stdout is not None
        self.banner.append(self.process.stdout.readline().rstrip("\n"))
        assert self.banner[1].startswith(("grpc://", "grpcs://")), self.log.read_text()
        self.grpc = self.banner[1].partition("://")[2]
