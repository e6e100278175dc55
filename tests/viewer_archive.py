"""A real archive (Orthanc) and a real viewer (OHIF) for tests, each on a free port of this machine.

The viewer's finished site is the folder `dist` of its package `@ohif/app`; XBENCH_OHIF names it. Nothing is downloaded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from orthanc_process import Orthanc, orthanc_program

CONFIGURATION = """window.config = {routerBasename: null, extensions: [], modes: [], customizationService: {},
  showStudyList: true, maxNumberOfWebWorkers: 1, investigationalUseDialog: {option: 'never'},
  defaultDataSourceName: 'archive', dataSources: [{sourceName: 'archive',
    namespace: '@ohif/extension-default.dataSourcesModule.dicomweb', configuration: {friendlyName: 'archive',
      name: 'archive', qidoRoot: '/dicom-web', wadoRoot: '/dicom-web', wadoUriRoot: '/dicom-web',
      qidoSupportsIncludeField: false, supportsReject: false, supportsStow: true, imageRendering: 'wadors',
      thumbnailRendering: 'wadors', enableStudyLazyLoad: true, supportsWildcard: true, bulkDataURI: {enabled: true}}}]};
"""


def viewer_site() -> Path:
    """The folder of the viewer's site; the test is skipped where none is named."""
    given = os.environ.get("XBENCH_OHIF")
    if not given:
        pytest.skip("set XBENCH_OHIF to package/dist of npm pack @ohif/app@3.12.10 to use the viewer")
    folder = Path(given)
    assert (folder / "index.html").is_file(), "XBENCH_OHIF names no folder with the site of OHIF"
    return folder


@contextmanager
def orthanc(folder: Path) -> Iterator[Orthanc]:
    """The archive, with its database in `folder`. Skipped where it is not installed, unless XBENCH_PACS says it is."""
    program = orthanc_program()
    if program is None:
        absent = pytest.fail if os.environ.get("XBENCH_PACS") else pytest.skip
        absent("no Orthanc with DICOMweb here (Debian: orthanc, orthanc-dicomweb)")
    with Orthanc(str(program), folder) as process:
        yield process


@contextmanager
def served(site: Path, archive: Orthanc) -> Iterator[str]:
    """The viewer's site, with the DICOMweb of the archive behind the same origin (the archive allows no other); URL."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    client = httpx.AsyncClient(trust_env=False, timeout=60)

    async def passed_on(request: Request) -> Response:
        kept = {name: value for name, value in request.headers.items() if name in ("accept", "content-type")}
        address = f"http://127.0.0.1:{archive.port}{request.url.path}?{request.url.query}"
        answer = await client.request(request.method, address, headers=kept, content=await request.body())
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def file(request: Request) -> Response:
        if request.url.path == "/app-config.js":
            return Response(CONFIGURATION, media_type="text/javascript")
        wanted = site / request.url.path.lstrip("/")
        return FileResponse(wanted if wanted.is_file() else site / "index.html")

    routes = [Route("/dicom-web/{rest:path}", passed_on, methods=["GET", "POST"]), Route("/{rest:path}", file)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def upload(archive: Orthanc, *contents: bytes) -> None:
    for content in contents:
        archive.upload(content)


def fetch(archive: Orthanc, modality: str, study: str) -> list[tuple[str, bytes]]:
    """Series description and file of a study's instances of a modality, each retrieved whole by WADO-RS."""
    found: list[dict[str, Any]] = httpx.get(
        f"{archive.url}/studies/{study}/instances",
        params={"Modality": modality, "includefield": "SeriesDescription"},
        trust_env=False,
    ).json()
    files = []
    for entry in found:
        series, one = (entry[tag]["Value"][0] for tag in ("0020000E", "00080018"))
        described = entry.get("0008103E", {}).get("Value", [""])[0]
        accept = 'multipart/related; type="application/dicom"; transfer-syntax=*'
        path = f"{archive.url}/studies/{study}/series/{series}/instances/{one}"
        answer = httpx.get(path, headers={"Accept": accept}, trust_env=False)
        boundary = answer.headers["content-type"].partition("boundary=")[2].split(";")[0].strip('"')
        part = answer.content.split(f"--{boundary}".encode())[1]
        files.append((described, part.partition(b"\r\n\r\n")[2][:-2]))
    return files
