"""`xbench-export --model all`, `everything` or a list: each model in its own process, which frees its memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..models.published_checkpoints import PUBLISHED

if TYPE_CHECKING:
    from .flags import Flags

_OWN_TEXT, _COMMON_TEXT = ("biovil", "biovil_t"), ("mavl", "medklip")
"""Models that take --text-encoder: with separate text weights, or with Bio_ClinicalBERT."""


@dataclass(frozen=True)
class Shared:
    """Options given with several models: `common` are passed on as they are; the rest goes to the models it is for."""

    common: Sequence[str]
    tokenizer: Path | None = None
    text_encoder: Path | None = None
    prompts: Sequence[Path] = ()

    def arguments(self, model: str) -> list[str]:
        """The arguments for `model`: of a folder its part for the model, if there is one, and files as they are."""
        arguments = [*self.common]
        if self.tokenizer is not None and (self.tokenizer / model).is_dir():
            arguments += ["--tokenizer", str(self.tokenizer / model)]
        if (text := self._text_encoder(model)) is not None:
            arguments += ["--text-encoder", str(text)]
        for path in self.prompts:
            if not path.is_dir():
                arguments += ["--prompts", str(path)]
            elif (path / model).is_dir():
                arguments += ["--prompts", str(path / model)]
        return arguments

    def _text_encoder(self, model: str) -> Path | None:
        if self.text_encoder is None or model not in (*_OWN_TEXT, *_COMMON_TEXT):
            return None
        folder = self.text_encoder / model
        if folder.exists():
            return folder
        return self.text_encoder if model in _COMMON_TEXT else None


@dataclass(frozen=True)
class Job:
    """One export: the command's arguments, or the reason why it cannot run."""

    name: str
    arguments: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended; `reason` is its last line on standard error, or empty."""

    name: str
    reason: str
    seconds: float


def plan(models: Sequence[str], checkpoints: Path | None, shared: Shared) -> list[Job]:
    """The jobs: every variant found in the folder `checkpoints`, or, without one, each model's first as a stand-in."""
    jobs = []
    for model in models:
        start = ("--model", model, *shared.arguments(model))
        if checkpoints is None:
            jobs.append(Job(model, (*start, "--weights", "stand-in")))
            continue
        variants = PUBLISHED[model].variants
        files = {variant: path for variant, facts in variants.items() if (path := facts.find(checkpoints))}
        for variant, path in files.items():
            size = ("--resolution", variant) if model == "kad" else ()
            jobs.append(Job(f"{model}-{variant}", (*start, "--checkpoint", str(path), *size)))
        if not files:
            jobs.append(Job(model, refusal=f"none of its files is in {checkpoints} (see --list --checkpoints DIR)"))
    return jobs


def export_all(models: Sequence[str], flags: Flags, say: Callable[[str], None]) -> int:
    """Exports these models as `flags` ask; returns the exit status."""
    flags.check_all()
    text = flags.text_encoder
    shared = Shared(flags.common(), flags.tokenizer, text, flags.prompts)
    for model in models:
        if text is not None and model in _OWN_TEXT and not (text / model).exists():
            say(f"{model}: there is no {text / model}; its text weights are taken from the folder of its image file")
    outcomes = run_all(plan(models, flags.checkpoints, shared), say)
    for line in summary(outcomes):
        say(line)
    return 1 if any(outcome.reason for outcome in outcomes) else 0


def run_all(jobs: Sequence[Job], say: Callable[[str], None]) -> list[JobOutcome]:
    """Runs the jobs one after another; one that fails does not stop the others."""
    outcomes = []
    for number, job in enumerate(jobs, 1):
        say(f"[{number}/{len(jobs)}] {job.name}")
        start = time.perf_counter()
        reason = job.refusal or _run(job, say)
        outcomes.append(JobOutcome(job.name, reason, time.perf_counter() - start))
    return outcomes


def _run(job: Job, say: Callable[[str], None]) -> str:
    """Empty when it went well, else the last line of the command's standard error."""
    command = [sys.executable, "-m", "xbench_fast.export.cli", *job.arguments]
    last = ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                last = line.strip() or last
                say(f"  {line.rstrip()}")
            status = process.wait()
        except BaseException:  # an interrupt ends the child as well, which then cleans up after itself
            process.terminate()
            raise
    if status == 0:
        return ""
    return last.removeprefix("xbench-export: ") or f"ended with status {status}"


def summary(outcomes: Sequence[JobOutcome]) -> list[str]:
    """One line a job, and a last one with the count."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines = [
        f"{outcome.name:<{width}}  " + (f"failed: {outcome.reason}" if outcome.reason else f"{outcome.seconds:.0f} s")
        for outcome in outcomes
    ]
    failed = sum(bool(outcome.reason) for outcome in outcomes)
    return [*lines, f"{len(outcomes) - failed} of {len(outcomes)} exported" + (f", {failed} failed" if failed else "")]
