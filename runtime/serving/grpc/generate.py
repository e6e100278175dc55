"""Makes descriptor.py from open_inference.proto; needs the package grpcio-tools, as development does.

    python -m xbench_fast.runtime.serving.grpc.generate

Only the description of the messages is kept, as one constant: classes are made from it when gRPC is used, so that
nothing here is imported without protobuf, and no generated code is tied to one version of it.
"""

from __future__ import annotations

import base64
import importlib
import tempfile
import textwrap
from pathlib import Path

from ....engines.errors import MissingExtraError

__all__ = ["PROTO", "describe", "main", "render"]

PROTO = Path(__file__).with_name("open_inference.proto")


def describe() -> bytes:
    """The serialized FileDescriptorSet of open_inference.proto. Raises MissingExtraError without grpcio-tools."""
    try:
        protoc = importlib.import_module("grpc_tools.protoc")
    except ImportError as error:
        raise MissingExtraError("grpcio-tools is not installed; install xbench-fast[dev].") from error
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        status = protoc.main(["protoc", f"--proto_path={PROTO.parent}", f"--descriptor_set_out={made}", PROTO.name])
        if status != 0:
            raise SystemExit(status)
        return made.read_bytes()


def render(described: bytes) -> str:
    """The source of descriptor.py."""
    lines = "\n".join(textwrap.wrap(base64.b64encode(described).decode(), 116))
    return (
        '"""Made from open_inference.proto by generate.py; do not edit."""\n\n'
        "from __future__ import annotations\n\nfrom typing import Final\n\n"
        '__all__ = ["DESCRIPTOR_SET"]\n\n'
        f'DESCRIPTOR_SET: Final = """\n{lines}\n"""\n'
        '"""A FileDescriptorSet, in base64."""\n'
    )


def main() -> None:
    """Writes descriptor.py."""
    PROTO.with_name("descriptor.py").write_text(render(describe()), encoding="utf-8")


if __name__ == "__main__":
    main()
