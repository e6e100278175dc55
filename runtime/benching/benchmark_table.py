"""A benchmark report -> a table to read, and a JSON record for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..host.machine_record import code_version, describe_machine
from ..reporting.tables.table import Column, Table
from .benchmark import BenchReport
from .measurement import Measurement
from .timing import percentiles

SCHEMA = 1
_COLUMNS = ("scenario", "subject", "by", "batch", "per second", "min", "max", "of the limit", "limit")


def report_table(report: BenchReport) -> Table:
    """One row per measurement and per rate, then what was not run."""
    rows = [row for one in report.measurements for row in _rows(one)]
    rows += [(one.scenario, one.subject, "-", "-", "not run", "-", "-", "-", one.reason) for one in report.not_run]
    columns = tuple(Column(title) for title in _COLUMNS)
    return Table("Benchmark", columns, tuple(rows), lead=2)


def report_facts(report: BenchReport) -> list[str]:
    """Lines below the table: latencies, ceilings, the state of the GPU, and last the verdict."""
    lines = [
        f"{one.subject}, one image at a time: "
        + ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in percentiles(one.latencies).items())
        for one in report.measurements
        if one.latencies
    ]
    for ceilings in report.ceilings.values():
        data = ceilings.to_json()
        products = ", ".join(f"{precision} {value} TFLOP/s" for precision, value in data["product_tflop_s"].items())
        lines.append(f"limits of {ceilings.device}: copy {data['copy_gb_s']} GB/s, matrix product {products}")
    lines += [f"GPU as found: {_state(state)}" for state in report.states[-1:]]
    lines += sorted({note for one in report.measurements for note in one.notes})
    reasons = report.reasons()
    return [*lines, *(f"not valid: {reason}" for reason in reasons), report.verdict()]


def to_record(report: BenchReport) -> dict[str, Any]:
    """The whole report, as JSON values."""
    plan = report.plan
    return {
        "schema": SCHEMA,
        "verdict": report.verdict(),
        "reasons": report.reasons(),
        "measurements": [measurement.to_json() for measurement in report.measurements],
        "not_run": [asdict(scenario) for scenario in report.not_run],
        "limits": {name: ceilings.to_json() for name, ceilings in report.ceilings.items()},
        "gpu_states": report.states,
        "plan": {
            **{name: value for name, value in asdict(plan).items() if name != "folder"},
            "own_files": plan.folder is not None,
        },
        "version": code_version(),
        "machine": describe_machine(),
    }


def _rows(one: Measurement) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for unit in one.counts:
        rate = one.rate(unit)
        first = unit == one.unit
        fraction = one.fraction if first else None
        rows.append(
            (
                one.scenario if first else "",
                one.subject if first else "",
                one.runner if first else "",
                ("-" if one.batch is None else str(one.batch)) if first else "",
                f"{_rounded(rate.median)} {unit}",
                _rounded(rate.least),
                _rounded(rate.greatest),
                "-" if fraction is None else f"{fraction:.3g}",
                "-" if one.limit is None or not first else one.limit.name,
            )
        )
    return rows


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _state(state: dict[str, Any]) -> str:
    named = {"clocks_sm": "SM {:g} MHz", "clocks_mem": "memory {:g} MHz", "power_draw": "{:g} W",
             "temperature_gpu": "{:g} degrees"}  # fmt: skip
    words = [form.format(state[name]) for name, form in named.items() if state.get(name) is not None]
    return ", ".join(words) or "nvidia-smi reports nothing"
