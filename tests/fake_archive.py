"""An archive in this process that speaks DICOMweb and fails as it is told, which a real one does not.

with FakeArchive(films) as archive:
    archive.faults.append(Fault("POST", status=503))
"""

from __future__ import annotations

import io
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydicom import dcmread


@dataclass
class Fault:
    """How one request fails: of a method, on a path with a text. status: of the answer, which has `headers`.

    how: "status" alone; "drop" the connection before, or "drop after" the request was carried out; "cut" the answer;
    "half" of the objects are stored; "none" is, and all are said to be; "answer" with `body` and `headers` instead.
    times: requests that it is for.
    """

    method: str = "GET"
    path: str = ""
    how: str = "status"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    times: int = 1


class FakeArchive:
    """objects: UID -> file. posted: UIDs of each request that stored. seen: method, path and headers of requests.

    bad: UIDs that are never stored. named_bad: whether an answer names them. token: what is wanted. certificate: its
    file and that of its key, for https. page and offsets: the most entries of an answer, and
    whether an offset counts. filters: whether a search looks at its attributes. partial: status of a list with entries.
    """

    def __init__(
        self, files: Sequence[bytes] = (), token: str | None = None, certificate: tuple[Path, Path] | None = None
    ) -> None:
        self.objects = {str(_header(content).SOPInstanceUID): content for content in files}
        self.token, self._certificate = token, certificate
        self.faults: list[Fault] = []
        self.posted: list[list[str]] = []
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.bad: set[str] = set()
        self.unlisted: tuple[str, ...] = ()
        self.named_bad = True
        self.page, self.offsets, self.filters = 100, True, True
        self.partial = 200

    def __enter__(self) -> FakeArchive:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"archive": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/dicom-web"
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = self.url.replace("http", "https", 1)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and fault.path in path and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    def entries(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        place = dict(re.findall(r"(studies|series|instances)/([\d.]+)", path))
        found: dict[str, dict[str, Any]] = {}
        for uid, content in list(self.objects.items()):
            header = _header(content)
            study, series = str(header.StudyInstanceUID), str(header.SeriesInstanceUID)
            wanted = {"StudyInstanceUID": study, "Modality": str(header.get("Modality", "")), "SOPInstanceUID": uid}
            if self.filters and any(query.get(name, value) != value for name, value in wanted.items()):
                continue
            if place.get("studies", study) != study or place.get("series", series) != series:
                continue
            entry = {"0020000D": _value(study), "0020000E": _value(series), "00100010": _value("ZZCANARY^ZZ")}
            entry["00080060"] = _value(wanted["Modality"])
            if path.endswith("/instances"):
                entry |= {"00080018": _value(uid)}
                entry |= {"00280010": _value(header.Rows)} if "Rows" in header else {}
                entry |= {"00280008": _value(header.NumberOfFrames)} if "NumberOfFrames" in header else {}
            else:
                count = found[series]["00201209"]["Value"][0] if series in found else 0
                entry["00201209"] = _value(count + 1)
            for tag in self.unlisted:
                entry.pop(tag, None)
            found[uid if path.endswith("/instances") else series] = entry
        start = int(query.get("offset", 0)) * self.offsets
        return list(found.values())[start : start + min(self.page, int(query.get("limit", 100)))]

    def store(self, files: Sequence[bytes], half: bool) -> tuple[int, dict[str, Any]]:
        stored, failed = list[str](), list[str]()
        for number, content in enumerate(files):
            uid = str(_header(content).SOPInstanceUID)
            if uid in self.bad or (half and number >= (len(files) + 1) // 2):
                failed.append(uid)
            else:
                self.objects.setdefault(uid, content)
                stored.append(uid)
        self.posted.append(stored)
        answer: dict[str, Any] = {}
        if stored:
            answer["00081199"] = {"vr": "SQ", "Value": [{"00081155": _value(uid)} for uid in stored]}
        if failed and self.named_bad:
            item = [{"00081155": _value(uid), "00081197": _value(0x0110)} for uid in failed]
            answer["00081198"] = {"vr": "SQ", "Value": item}
        return (200 if not failed else 202 if stored and self.named_bad else 409 if self.named_bad else 400), answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    archive: FakeArchive

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        if (fault := self._failed()) is not None and fault.how != "cut":
            return
        if path.endswith(("/series", "/instances")):
            entries = self.archive.entries(path, query)
            body, kind = json.dumps(entries).encode(), "application/dicom+json"
        else:
            content = self.archive.objects.get(path.rpartition("/")[2])
            if content is None:
                self._answer(404, b"ZZCANARY", "text/plain")
                return
            body = b"--b 1\r\nContent-Type: application/dicom\r\n\r\n%s\r\n--b 1--\r\n" % content
            kind = 'multipart/related; type="application/dicom"; boundary="b 1"'
        status = self.archive.partial if body.startswith(b"[") and body != b"[]" else 200
        self._answer(status, body, kind, cut=fault is not None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self._failed()
        if fault is not None and fault.how not in ("drop after", "half", "none"):
            return
        found = re.search(r"boundary=(\w+)", self.headers["Content-Type"])
        assert found is not None
        parts = body.split(b"--" + found[1].encode())[1:-1]
        files = [part.partition(b"\r\n\r\n")[2][:-2] for part in parts]
        kept = dict(self.archive.objects)
        status, answer = self.archive.store(files, fault is not None and fault.how == "half")
        if fault is not None and fault.how == "none":
            self.archive.objects = kept
        if fault is not None and fault.how == "drop after":
            self._drop()
        else:
            self._answer(status, json.dumps(answer).encode(), "application/dicom+json")

    def _failed(self) -> Fault | None:
        """The fault of this request, which is carried out here where it needs nothing else."""
        archive = self.archive
        archive.seen.append((self.command, self.path, dict(self.headers)))
        if archive.token is not None and self.headers.get("Authorization") != f"Bearer {archive.token}":
            self._answer(401, b"ZZCANARY", "text/plain")
            return Fault()
        fault = archive.fault(self.command, self.path)
        if fault is None:
            return None
        if fault.how == "status":
            self._answer(fault.status, b"ZZCANARY", "text/plain", fault.headers)
        elif fault.how == "answer":
            self._answer(fault.status, fault.body, "", fault.headers)
        elif fault.how == "drop":
            self._drop()
        return fault

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _answer(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            if value:
                self.send_header(name, value)
        if cut:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)


def _header(content: bytes) -> Any:
    return dcmread(io.BytesIO(content), stop_before_pixels=True)


def _value(value: Any) -> dict[str, Any]:
    return {"vr": "UN", "Value": [value]}
