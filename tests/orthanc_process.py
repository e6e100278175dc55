"""An Orthanc with DICOMweb as an ordinary process on a free loopback port, and what a test asks it besides."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
OPENER = build_opener(ProxyHandler({}))


def orthanc_program() -> str | None:
    """The program, None where it or its DICOMweb plugin is not installed."""
    program = shutil.which("Orthanc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return program if program and PLUGIN.is_file() else None


class Orthanc:
    """The process, with its database in `folder`. url: the DICOMweb address."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder

    def __enter__(self) -> Self:
        for _ in range(3):  # another process may take the port in between
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            if self._start():
                self.url = f"http://127.0.0.1:{self.port}/dicom-web"
                return self
        raise AssertionError(f"Orthanc does not start: {(self._folder / 'log').read_text()[-2000:]}")

    def _start(self) -> bool:
        place = str(self._folder / "db")
        settings = {
            "Name": "test", "StorageDirectory": place, "IndexDirectory": place, "Plugins": [str(PLUGIN)],
            "HttpPort": self.port, "RemoteAccessAllowed": False, "AuthenticationEnabled": False,
            "DicomServerEnabled": False, "OverwriteInstances": False,
            "DicomWeb": {"Enable": True, "Root": "/dicom-web/", "EnableWado": False},
        }  # fmt: skip
        file = self._folder / "orthanc.json"
        file.write_text(json.dumps(settings))
        with (self._folder / "log").open("w") as log:
            self.process = subprocess.Popen([self._program, str(file)], stdout=log, stderr=log)
        end = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < end:
            try:
                self.ask("/system")
                return True
            except (URLError, OSError):
                time.sleep(0.05)
        self.process.kill()
        self.process.wait()
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, path: str, body: bytes | None = None, method: str | None = None) -> bytes:
        """The body of an answer of its own interface."""
        request = Request(f"http://127.0.0.1:{self.port}{path}", body, method=method)
        with OPENER.open(request, timeout=30) as reply:
            content: bytes = reply.read()
        return content

    def ask(self, path: str, body: bytes | None = None) -> Any:
        return json.loads(self.call(path, body))

    def upload(self, content: bytes) -> None:
        self.call("/instances", content)

    def clear(self) -> None:
        """Deletes all that it has."""
        for patient in self.ask("/patients"):
            self.call(f"/patients/{patient}", method="DELETE")

    def files(self) -> dict[str, bytes]:
        """SOP Instance UID -> the file, of all instances."""
        found = {item["MainDicomTags"]["SOPInstanceUID"]: item["ID"] for item in self.ask("/instances?expand")}
        return {uid: self.call(f"/instances/{name}/file") for uid, name in found.items()}
