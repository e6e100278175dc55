"""The certificate and the key of a server with TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from ...engines.errors import ConfigError


@dataclass(frozen=True)
class Certificate:
    """Files in PEM form; `certfile` holds the server's certificate first, then those that signed it."""

    certfile: Path
    keyfile: Path


def read_certificate(certfile: Path | None, keyfile: Path | None) -> Certificate | None:
    """The certificate and key of these files, tried out; None without files.

    Raises ConfigError for one without the other, and for files that cannot be read or do not fit together.
    """
    if certfile is None and keyfile is None:
        return None
    if certfile is None or keyfile is None:
        raise ConfigError("TLS needs a certificate and its key; give both --certfile and --keyfile.")
    for file, option, label in ((certfile, "--certfile", "CERTIFICATE"), (keyfile, "--keyfile", "PRIVATE KEY")):
        try:
            text = file.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise ConfigError(f"{file} ({option}) cannot be read: {error.strerror or error}.") from error
        if f"{label}-----" not in text:
            raise ConfigError(f"{file} ({option}) holds no {label.lower()} in PEM form.")
    encrypted = False

    def password() -> str:
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password)
    except (ssl.SSLError, ValueError) as error:
        if encrypted:
            raise ConfigError(f"{keyfile} (--keyfile) is encrypted; give a key without a password.") from error
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"The key {keyfile} does not belong to the certificate {certfile}.") from error
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{certfile} and {keyfile} cannot be used for TLS: {reason}; they may be damaged.") from error
    return Certificate(certfile, keyfile)
