"""A dataset's audit on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..data.datasets.checking.audit import Audit
    from .shared_options import Output


def show_audit(audit: Audit, output: Output) -> int:
    """Prints the audit and returns the exit status: 0 when it passed, 1 when there is something to act on."""
    output.write(audit.to_json())
    if not output.piped:
        _print(audit)
    return 0 if audit.passed else 1


def _print(audit: Audit) -> None:
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    console.print(shown(f"{audit.title} ({audit.dataset})", style="bold"))
    if audit.card:
        console.print(shown(audit.card), soft_wrap=True)
    counts = Table("what", "number")
    for name, value in _counts(audit):
        counts.add_row(name, str(value))
    console.print(counts)
    classes = Table("class", "positive", "negative", "unknown", "pairs with a region", "boxes")
    for name in audit.pairs_per_class:
        numbers = (audit.positives, audit.negatives, audit.unknown, audit.pairs_per_class, audit.boxes_per_class)
        classes.add_row(shown(name), *(str(column.get(name, 0)) for column in numbers))
    console.print(classes)
    if audit.checks:
        checks = Table("official count", "expected", "found", "")
        for check in audit.checks:
            state = "equal" if check.passed else "differs" if audit.is_official else "not the complete set"
            checks.add_row(shown(check.name), str(check.expected), str(check.found), state)
        console.print(checks)
    for title, lines in (
        ("warnings", audit.warnings),
        ("missing images", audit.missing),
        ("unreadable images", audit.unreadable_reasons),
        ("files without annotation", audit.unannotated),
        ("images of one content", audit.same_content_images),
        ("degenerate regions", audit.degenerate_regions),
        ("regions outside their image", audit.outside_regions),
        ("regions partly outside their image", audit.clipped_regions),
        ("boxes that probably belong to an image of another size", audit.misfit_regions),
        ("unknown classes", tuple(f"{name}: {count} times" for name, count in audit.unknown_classes.items())),
        ("notes", audit.note_texts),
    ):
        if lines:
            console.print(shown(f"{title}:", style="bold"))
            for line in lines:
                console.print(shown(f"  {line}"), soft_wrap=True)
    console.print(shown("passed" if audit.passed else "not passed", style="bold"))


def _counts(audit: Audit) -> list[tuple[str, int | str]]:
    seen: list[tuple[str, int | None]] = [
        ("cases", audit.images_expected),
        *((f"cases of the split {name}", count) for name, count in audit.splits.items() if len(audit.splits) > 1),
        ("patients", audit.patients),
        ("images without a named patient", audit.images_without_patient),
        *(
            [(f"images of the patient with most, {audit.largest_patient}", audit.largest_patient_images)]
            if audit.largest_patient_images > 1
            else []
        ),
        ("images present", audit.images_present),
        ("images missing", audit.images_missing),
        ("images unreadable", audit.unreadable),
        ("constant images", audit.constant),
        ("images of another size than their annotation", audit.size_differs),
        ("files without annotation", audit.unannotated_files),
        ("copies of an image under another name", audit.same_content),
        *(
            [(f"uncertain labels (uncertain={audit.uncertain})", audit.uncertain_labels)]
            if audit.uncertain_labels
            else []
        ),
        ("cases with a region", audit.with_region),
        ("cases without finding", audit.without_finding),
        ("pairs with a region", audit.pairs),
        *([("distinct phrases", audit.phrases)] if audit.phrases else []),
        ("boxes", audit.boxes),
        ("degenerate regions", audit.degenerate),
        ("sub-pixel regions on the 224 grid", audit.sub_pixel),
        ("regions outside their image", audit.outside),
        ("regions partly outside their image", audit.clipped),
        ("boxes that probably belong to an image of another size", audit.misfits),
        ("regions of unknown image size", audit.regions_unchecked),
    ]
    return [(name, "not decoded (--decode)" if value is None else value) for name, value in seen]
