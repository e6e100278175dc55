"""`xbench-fast doctor`: what works here."""

from __future__ import annotations

from dataclasses import asdict

import click

from .options.shared_options import Output, json_option


@click.command()
@json_option
def doctor(output: Output) -> int:
    """Show which engines, decoders and extras are usable here, and why the others are not."""
    from ..data.images.decoder_checks import check_decoders, check_gpu_decoder
    from ..host.installation_checks import examine
    from ..host.machine_record import code_version, describe_machine

    checks = examine(check_decoders(), check_gpu_decoder())
    # Without an engine nothing can be evaluated, so the user has something to do.
    failed = not any(check.usable for check in checks if check.group == "engine") or any(
        not check.usable for check in checks if check.group in ("decoder", "metrics")
    )
    machine = describe_machine()
    data = {
        "version": code_version(),
        "machine": machine,
        "checks": [asdict(check) for check in checks],
        "ready": not failed,
    }
    output.write(data)
    if output.piped:
        return int(failed)

    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    console.print(
        shown(f"xbench-fast {code_version()}, Python {machine['python']}, {machine['cores']} cores, {machine['cpu']}")
    )
    table = Table()
    for title in ("what", "name", "usable", "version", "why not"):
        table.add_column(title, overflow="fold")
    for check in checks:
        table.add_row(
            *map(shown, (check.group, check.name, "yes" if check.usable else "no", check.version or "-", check.reason))
        )
    console.print(table)
    console.print(
        shown("ready to evaluate" if not failed else "not ready: an engine, a decoder or the sweep does not work here")
    )
    return int(failed)
