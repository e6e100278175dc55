"""A server that speaks the chat protocol, as a process of its own on loopback, for the tests of `ask`.

It knows an answer by the SHA-256 of the pixels that it decodes and by the words of the prompt; no id is sent. It counts
what it gets, and keeps every body and header for the tests of privacy.

    with AskServer(answers={(pixels, prompt_end): message}, ...) as server: ...
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, ClassVar
from urllib.request import ProxyHandler, Request, build_opener


class AskServer:
    """Starts the process. plan: see `_Handler`; `url` is the endpoint."""

    def __init__(self, **plan: Any) -> None:
        self._plan = plan

    def __enter__(self) -> AskServer:
        self._process = Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(self._plan) + "\n")
        self._process.stdin.flush()
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _call(self, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        opener = build_opener(ProxyHandler({}))
        with opener.open(Request(f"http://127.0.0.1:{self.port}{path}", body), timeout=30) as reply:
            return json.loads(reply.read())

    def seen(self) -> list[dict[str, Any]]:
        """Each request: `path`, `headers`, `body` as text."""
        return self._call("/_seen")

    def counts(self) -> dict[str, int]:
        """requests: chat requests; distinct: their different bodies; most: under way at once."""
        return self._call("/_counts")

    def change(self, **plan: Any) -> None:
        """Replaces parts of the plan."""
        self._call("/_change", plan)


class _Handler(BaseHTTPRequestHandler):
    """plan: models, owned_by; `answers`: pixels hash -> words -> reply, `default`: of others; `script`: replies that
    come first, one for each chat request; `count_tokens`: factor, or -1 for the same count; `resize`: factor by
    which the counted image is smaller; `delay`: most seconds of a random delay; `fail`: share of random 429."""

    protocol_version = "HTTP/1.1"
    plan: ClassVar[dict[str, Any]] = {}
    seen: ClassVar[list[dict[str, Any]]] = []
    lock = threading.Lock()
    under_way = most = chats = 0
    bodies: ClassVar[set[bytes]] = set()
    random = random.Random(5)

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/_seen":
            return self._json(200, self.seen)
        if self.path == "/_counts":
            own = _Handler
            return self._json(200, {"requests": own.chats, "distinct": len(own.bodies), "most": own.most})
        self._keep("")
        if self.path.endswith("/models"):
            models = self.plan.get("models", ["tiny"])
            data = [{"id": name, "owned_by": self.plan.get("owned_by", "vllm")} for name in models]
            return self._json(200, {"data": data})
        if self.path == "/version":
            return self._json(200, {"version": "0.99"})
        return self._json(404, {})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/_change":
            self.plan.update(json.loads(raw))
            return self._json(200, {})
        own = _Handler
        with self.lock:
            own.chats += 1
            own.under_way += 1
            own.most = max(own.most, own.under_way)
            own.bodies.add(hashlib.sha256(raw).digest())
            script = self.plan.get("script") or []
            reply = script.pop(0) if script else None
            fails = self.random.random() < self.plan.get("fail", 0)
            delay = self.random.random() * self.plan.get("delay", 0)
        if not self.plan.get("instant"):
            self._keep(raw.decode())
        time.sleep(delay)
        try:
            self._reply({"status": 429} if fails and not reply else reply, raw)
        finally:
            with self.lock:
                own.under_way -= 1

    def _keep(self, body: str) -> None:
        self.seen.append({"path": self.path, "headers": dict(self.headers.items()), "body": body})

    def _reply(self, reply: Mapping[str, Any] | None, raw: bytes) -> None:
        if self.plan.get("instant"):
            return self._json(200, _completion({"model": "tiny"}, {"content": "[]"}, {}))
        body = json.loads(raw)
        image, words = _read(body)
        if reply is None:
            known = self.plan.get("answers", {}).get(hashlib.sha256(image[1]).hexdigest(), {})
            reply = next((known[key] for key in known if key in words), self.plan.get("default", {"content": "[]"}))
        if "sleep" in reply:
            time.sleep(min(reply["sleep"], 30))
        if reply.get("reset"):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return None
        status, headers = reply.get("status", 200), dict(reply.get("headers", {}))
        if str(headers.get("Retry-After", "")).startswith("HTTP-DATE+"):
            at = time.time() + float(headers["Retry-After"].removeprefix("HTTP-DATE+").removesuffix("s"))
            headers["Retry-After"] = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))
        if status != 200 or "body" in reply:
            return self._send(status, json.dumps(reply.get("body", {})).encode(), headers)
        if "raw" in reply:
            return self._send(200, reply["raw"].encode(), headers)
        document = _completion(body, reply, self._usage(image[0]))
        content = json.dumps(document).encode()
        if "size" in reply:
            content = content[:-1] + b" " * reply["size"] + b"}"
        return self._send(200, content, headers, reply.get("cut_at"), reply.get("trickle"))

    def _usage(self, size: tuple[int, int]) -> dict[str, int]:
        factor = self.plan.get("count_tokens", 28)
        if not factor:
            return {}
        scale = self.plan.get("resize", 1.0) if size[0] * size[1] > 100_000 else 1.0
        side = max(factor, 1)
        tokens = 256 if factor < 0 else round(size[0] * scale / side) * round(size[1] * scale / side)
        return {"prompt_tokens": 20 + tokens, "completion_tokens": 5, "total_tokens": 25 + tokens}

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), {})

    def _send(
        self,
        status: int,
        content: bytes,
        headers: Mapping[str, str],
        cut: int | None = None,
        trickle: float | None = None,
    ) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if trickle is not None:
                for at in range(len(content)):
                    self.wfile.write(content[at : at + 1])
                    time.sleep(trickle)
            else:
                self.wfile.write(content if cut is None else content[:cut])
            self.close_connection |= cut is not None
        except OSError:
            self.close_connection = True


def _completion(body: Mapping[str, Any], reply: Mapping[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.get("content", "[]")}
    message |= {key: reply[key] for key in ("refusal", "reasoning_content") if key in reply}
    choice = {"index": 0, "message": message, "finish_reason": reply.get("finish", "stop")}
    return {"model": reply.get("model", body["model"]), "choices": [choice], **({"usage": usage} if usage else {})}


def _read(body: Mapping[str, Any]) -> tuple[tuple[tuple[int, int], bytes], str]:
    """Size and pixels of the image of a body, and the texts of its prompt."""
    from PIL import Image

    image, words = ((0, 0), b""), ""
    for message in body["messages"]:
        content = message["content"]
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part["type"] == "text":
                words += part["text"]
            else:
                data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
                with Image.open(io.BytesIO(data)) as opened:
                    assert opened.mode == "L"
                    image = opened.size, opened.tobytes()
    return image, words


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    _Handler.plan = plan
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed by the tests
    if "tls" in plan:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*plan["tls"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent.resolve()]
    os.environ.pop("PYTHONPATH", None)
    main()
