"""The options of `pacs`, each declared once: name, type, default and help (docs/pacs.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from ...host.declaring import Limits, described
from ...host.options import Count


@dataclass(frozen=True)
class PacsOptions:
    """Which films of an archive are asked, and how it is talked to. The help of each option says what it is."""

    modality: tuple[Literal["CR", "DX", "RG"], ...] = field(
        default=(), metadata=described("Modality of the series to ask about.", shown="CR and DX")
    )
    study: tuple[str, ...] = field(
        default=(),
        metadata=described("Study Instance UID of a study to ask about.", shown="all studies", metavar="UID"),
    )
    date: str | None = field(
        default=None,
        metadata=described(
            "Day or range of days of the studies: 20260131, 20260101-20260131, 20260101- or -20260131.",
            shown="all days",
            metavar="DAYS",
        ),
    )
    limit: Count | None = field(default=None, metadata=described("Largest number of studies.", shown="all"))
    dry_run: bool = field(
        default=False, metadata=described("Ask the model, list what would be stored, and store nothing.")
    )
    other_archive: bool = field(
        default=False,
        metadata=described(
            "Allow --to to be another archive than --from. Only answers about films that say "
            "PatientIdentityRemoved YES are sent then."
        ),
    )
    insecure_http: bool = field(
        default=False, metadata=described("Allow http to another machine. Names cross the network in the clear.")
    )
    ca: Path | None = field(
        default=None, metadata=described("Certificate file of one more authority for https.", metavar="FILE")
    )
    token_file: Path | None = field(
        default=None,
        metadata=described(
            "File with the bearer token of --from.",
            shown="the environment variable XBENCH_FAST_ARCHIVE_TOKEN, if there is one",
        ),
    )
    to_token_file: Path | None = field(
        default=None,
        metadata=described("File with the bearer token of another archive at --to.", shown="none"),
    )
    timeout: Annotated[float, Limits(0.1)] = field(
        default=60.0, metadata=described("Seconds for one try of a request.")
    )
    retries: Count = field(default=8, metadata=described("Tries of a request before it counts as failed."))
    max_retries: Count = field(default=1000, metadata=described("Failed tries of all requests before the run ends."))
    max_instance: str = field(default="256MB", metadata=described("Largest file of a film.", metavar="SIZE"))
    max_study: str = field(
        default="2GB", metadata=described("Largest study: its films, and its objects.", metavar="SIZE")
    )
    max_instances: Count = field(default=100, metadata=described("Most instances of a study."))
