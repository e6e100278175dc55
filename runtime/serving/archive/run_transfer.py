"""A transfer from its options: addresses and tokens first, then the model, then the films (docs/pacs.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....engines.errors import ConfigError
from ...data.images.dicom.elements import valid_uid
from ...evaluation.progress import Progress
from ...host.http.http_client import Client
from ...host.http.server_address import Endpoint
from ...host.sizes import parse_bytes
from .archive import Archive, ArchiveError, Tries
from .archive_address import archive_endpoint, archive_token
from .film_maker import FilmMaker
from .pacs_options import PacsOptions
from .transfer import FilmChoice, Transfer
from .transfer_log import TransferLog, locked
from .transfer_summary import TransferSummary

_DAYS: Final = re.compile(r"\d{8}|\d{8}-\d{8}|\d{8}-|-\d{8}", re.ASCII)


@dataclass(frozen=True)
class Connection:
    """The two archives of a transfer, which are mostly one, and which of their films are asked. name: of `target`."""

    source: Archive
    target: Archive
    name: str
    choice: FilmChoice


def connect(source: str, target: str | None, options: PacsOptions, tries: Callable[..., Tries] = Tries) -> Connection:
    """The archives at two addresses; nothing is sent. Raises ConfigError for an address or an option that must not be
    used."""
    first = archive_endpoint(source, "--from", insecure=options.insecure_http)
    second = first if target is None else archive_endpoint(target, "--to", insecure=options.insecure_http)
    elsewhere = second.shown != first.shown
    if elsewhere and not options.other_archive:
        raise ConfigError(
            "--to is another archive than --from, and objects carry the name of the patient; leave --to out, or say "
            "--other-archive for films whose patient's identity was removed."
        )
    choice = _choice(options, elsewhere=elsewhere)
    token = archive_token(options.token_file, variable=True)
    there = archive_token(options.to_token_file, variable=False) if elsewhere else token
    one = _archive(first, token, options, tries)
    other = _archive(second, there, options, tries) if elsewhere else one
    return Connection(one, other, second.shown, choice)


def transfer(connection: Connection, maker: FilmMaker, out: Path, progress: Progress) -> TransferSummary:
    """Transfers the films, with the log in the folder `out`. A run that ends early says so in `stopped`.

    Raises RunError when another process has the folder, and what the maker raises.
    """
    identity = hashlib.sha256(f"{connection.name}\0{maker.identity}".encode()).hexdigest()
    with locked(out):
        log = TransferLog(out, identity)
        running = Transfer(connection.source, connection.target, maker, log, connection.choice, progress)
        try:
            running.run()
        except ArchiveError as error:
            running.summary.stopped = str(error)
        finally:
            log.close()
    return running.summary


def _archive(endpoint: Endpoint, token: str | None, options: PacsOptions, tries: Callable[..., Tries]) -> Archive:
    client = Client(endpoint, options.timeout, token, options.ca)
    most = parse_bytes(options.max_instance, "--max-instance")
    return Archive(client, tries(each=options.retries, left=options.max_retries), most)


def _choice(options: PacsOptions, *, elsewhere: bool) -> FilmChoice:
    if options.date is not None and not _DAYS.fullmatch(options.date):
        raise ConfigError(f"--date is no day or range of days; write e.g. 20260101-20260131, not '{options.date}'.")
    if not all(map(valid_uid, options.study)):
        raise ConfigError("--study is no UID; write digits and dots, as the archive states it.")
    return FilmChoice(
        modalities=tuple(dict.fromkeys(options.modality)) or FilmChoice.modalities,
        filters=() if options.date is None else (("StudyDate", options.date),),
        studies=options.study,
        limit=options.limit,
        instances=options.max_instances,
        study_bytes=parse_bytes(options.max_study, "--max-study"),
        elsewhere=elsewhere,
        dry_run=options.dry_run,
    )
