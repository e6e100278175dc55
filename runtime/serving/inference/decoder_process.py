"""The process that decodes: reads jobs from standard input, writes pixels to standard output, ends with its input."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from typing import BinaryIO, Final

import msgspec

from ....engines.errors import ImageError
from ....engines.geometry import Geometry
from .image_decoding import HEAD, READY, DecodedImage, DecodeJob, DecodeReply
from .request_images import Prepared, prepare_file

MEMORY: Final = 4 << 30
"""Bytes that a process may allocate; the largest image that is read needs about a third."""


def main(input: BinaryIO, output: BinaryIO) -> None:
    """Answers jobs until the input ends."""
    output.write(READY)
    output.flush()
    while length := int.from_bytes(input.read(HEAD), "little"):
        job = msgspec.msgpack.decode(input.read(length), type=DecodeJob)
        signal.alarm(job.seconds)  # ends this process, whatever it does then
        reply = msgspec.msgpack.encode(_answer(job))
        signal.alarm(0)
        output.write(len(reply).to_bytes(HEAD, "little") + reply)
        output.flush()


def _answer(job: DecodeJob) -> DecodeReply:
    geometry = Geometry.from_key(job.geometry)
    try:
        return DecodeReply(
            [
                _pixels(prepare_file(data, geometry, f"Image {number}", side=job.side))
                for number, data in enumerate(job.images)
            ]
        )
    except ImageError as error:
        return DecodeReply([], str(error))


def _pixels(prepared: Prepared) -> DecodedImage:
    display = prepared.display
    shown, drawn = ((0, 0), b"") if display is None else ((display.shape[0], display.shape[1]), display.tobytes())
    return DecodedImage(prepared.pixels.tobytes(), prepared.size, prepared.frame, shown, drawn)


if __name__ == "__main__":
    # Before the first file, whose time is limited.
    from ...data.images import decode
    from ...data.images.samples import SYNTAXES, dicom_sample

    for syntax in SYNTAXES:
        with suppress(ImageError):  # a codec that is not installed is told when a file needs it
            decode.decode_grey(dicom_sample(syntax), "a sample")

    # A service manager sends its signal to every process; the server ends this one after its last answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most), most))
    # What libraries print must not mix with the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.stdin.buffer, replies)
