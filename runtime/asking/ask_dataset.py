"""Asks a model behind an endpoint about a dataset, from the plan to the file of answers (docs/ask.md)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ...engines.errors import ConfigError, ImageError
from ...engines.visible_text import visible_text
from ..data.answers.coordinate_frames import Size
from ..data.answers.line_keys import VIEW_NOT_PROVED
from ..data.images.size import image_size
from ..evaluation.progress import Advance, Progress
from ..host.config import DatasetConfig
from ..host.http.http_client import Client
from ..host.paths import has_file
from ..results.loaded_dataset import load_dataset
from .answer_log import KEPT, LOG_FILE, AnswerLog, KeptAnswers
from .ask_jobs import AskSession, jobs, skipped, to_ask
from .ask_plan import AskPlan, check_plan, read_plan, same_questions, write_plan
from .ask_rules import (
    AskRequest,
    api_key,
    check_model,
    contradicts_prompt,
    prices,
    request_rules,
    schema_sha256,
    selection,
)
from .ask_summary import AskedRun, summary
from .asked_file import asked_folder, check_files, check_out, locked, write_answers
from .asked_pairs import AskedImage, select
from .endpoint import CREDENTIALED, allowed_endpoint
from .outcomes import Expected
from .plan_lines import Estimate, estimate, plan_lines
from .runner import AskRunner, RunState, Waiting
from .sent_images import fixed_size, sent_size
from .server_facts import ServerFacts, read_facts
from .view_proof import PROVED, prove_view, sizes_to_prove


def ask_dataset(
    request: AskRequest, config: DatasetConfig | None, progress: Progress, waiting: Waiting | None = None
) -> dict[str, Any]:
    """Asks, writes the file, and returns the counts of docs/ask.md §6.

    config: the dataset; None with `write`. Raises ConfigError for options that do not fit, DataError, and RunError for
    a server that cannot be asked at all. A run that stops early is no error here: `stopped` says why.
    """
    if request.options.write and request.options.dry_run:
        raise ConfigError("--write writes the file and --dry-run changes none; leave one of them out.")
    if request.options.write:
        return _write_only(request, progress)
    if config is None:
        raise ConfigError("--dataset is missing; name the dataset to ask about.")
    rules, chosen = request_rules(request), selection(request.options)
    check_model(rules)
    prices(request.options.prices)
    key = api_key(request.options)
    credentialed = is_credentialed(config)
    resolve = _literal if request.options.dry_run else None
    endpoint = allowed_endpoint(request.endpoint, request.options.allow_host, config.name, credentialed, resolve)
    if key is not None and endpoint.scheme == "http" and not endpoint.local:
        raise ConfigError(f"A key is not sent over http to {endpoint.host}; use https.")
    check_out(request)
    loaded = load_dataset(config)
    images = select(loaded.dataset, loaded.asked, chosen)
    if images and not any(has_file(image.path) for image in images):
        raise ConfigError(f"The dataset '{config.name}' has no image in {config.root}; correct its folder.")
    plan = AskPlan(config.name, rules, {}, request.options.attempts, tuple(images))
    try:
        check_plan(plan)
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"A text to send or write is no Unicode: it has {visible_text(error.object[error.start])}; correct the "
            "options, the file of --words, or the names of the dataset."
        ) from None
    session = AskSession(request, loaded, endpoint, plan)
    if request.options.dry_run:
        return _dry_run(session, progress)
    if not images:
        progress.say("Nothing to ask: no pair is selected.")
        return {"pairs": 0, "answers": 0, "stopped": "", "failed": 0}
    client = Client(endpoint, request.options.timeout, key, request.options.ca)
    facts = read_facts(client, request.model or None, request.options.server)
    session.plan = replace(plan, rules=replace(rules, model=facts.model, server=facts.kind))
    check_model(session.plan.rules)
    expected = Expected(facts.model, tuple(request.options.model_alias), client.secrets)
    with locked(asked_folder(request.out)):
        log = AnswerLog(asked_folder(request.out), request.dialect)
        try:
            options = request.options
            waits = waiting or Waiting(options.concurrency, options.retries, options.go_on)
            runner = AskRunner(client, session.plan.rules, log, expected, waits)
            return _run(session, facts, runner, log, progress)
        finally:
            log.close()


def _run(
    session: AskSession, facts: ServerFacts, runner: AskRunner, log: AnswerLog, progress: Progress
) -> dict[str, Any]:
    request, folder = session.request, asked_folder(session.request.out)
    earlier = read_plan(folder)
    if earlier is not None and earlier.dataset != session.plan.dataset:
        raise ConfigError(f"{folder} has answers about the dataset {earlier.dataset}; use another --out.")
    same = earlier is not None and same_questions(session.plan, earlier)
    todo = to_ask(session, log)
    _say_plan(session, todo, progress, sent=True)
    begun = time.monotonic()
    if todo or not same or earlier is None:
        before = _proof_before(session, earlier)
        proof = _proof(session, runner, log, progress) if todo else before or VIEW_NOT_PROVED
        if proof == PROVED and session.reused and before == VIEW_NOT_PROVED:
            progress.say(f"{before}: for the answers from before it is not; another --out asks for them again")
            proof = before
        header = _header(session, facts, proof)
        if same and earlier is not None:
            header["created"] = earlier.header.get("created", header["created"])
        session.plan = replace(session.plan, header=header)
        write_plan(folder, session.plan)
    else:
        session.plan = replace(session.plan, header=earlier.header)
    interrupted = False
    left = session.plan.pairs * session.plan.attempts - session.reused
    try:
        with progress.cell(f"ask {session.plan.dataset}", left, "pairs") as advance:
            count = _counting(advance)
            runner.run(jobs(session, todo, log, count, progress), lambda kind: _note(kind, runner, count, progress))
    except KeyboardInterrupt:
        interrupted = True
        runner.state.stopped = "interrupted"
    answers = write_answers(request.out, session.plan, log)
    asked = AskedRun(
        session.plan, session.loaded, log, runner.state, request, time.monotonic() - begun, len(session.unreadable),
        session.reused, answers, skipped(session, log),
    )  # fmt: skip
    counts = summary(asked, progress)
    if interrupted:
        raise KeyboardInterrupt
    return counts


def _proof_before(session: AskSession, earlier: AskPlan | None) -> str | None:
    """What was proved for the answers of the last plan; None without one that sends images alike to the same model."""
    if earlier is None:
        return None
    settings = ("dialect", "model", "server", "preparation", "encoding")
    if any(getattr(earlier.rules, name) != getattr(session.plan.rules, name) for name in settings):
        return None
    return PROVED if PROVED in str(earlier.header.get("note", "")).split("; ") else VIEW_NOT_PROVED


def _proof(session: AskSession, runner: AskRunner, log: AnswerLog, progress: Progress) -> str:
    plan = session.plan
    sizes = () if plan.rules.asked.factor is None else sizes_to_prove(_sizes(plan, log))
    if plan.rules.asked.factor is not None and not sizes:
        return VIEW_NOT_PROVED
    result, why = prove_view(runner.complete, plan.rules, sizes, unproved=session.request.options.view_unproved)
    progress.say(result if result == PROVED else f"{result}: {why}")
    return result


def _sizes(plan: AskPlan, log: AnswerLog) -> Iterator[Size]:
    """The sizes of the sent images, from headers of the files alone; of a fixed view without any file."""
    if (fixed := fixed_size(plan.preparation)) is not None:
        yield fixed
        return
    for image in plan.images:
        known = plan.known(log, image)
        with suppress(ImageError, OSError):
            yield known.size if known else sent_size(plan.preparation, image_size(image.path)[::-1])


def _header(session: AskSession, facts: ServerFacts, proof: str) -> dict[str, Any]:
    """The header of the file. The day and not the second: two runs of a day give the same bytes."""
    rules, options = session.plan.rules, session.request.options
    prompt = f"official:{rules.dialect} {rules.asked.prompt_sha256}" if rules.prompt is None else rules.prompt
    note = [
        f"server {facts.kind}{f' {facts.version}' if facts.version else ''}",
        f"words {'of a file' if options.words else 'of the dataset'}",
        f"view {rules.preparation} as {rules.encoding}",
        proof,
        *([f"guided {schema_sha256(rules.guided)}"] if rules.guided is not None else []),
        *([f"sampling {options.sampling}"] if rules.samples_officially else []),
        *([f"set {', '.join(sorted(rules.changed))}"] if rules.changed else []),
        *([f"unset {', '.join(rules.removed)}"] if rules.removed else []),
    ]
    settings = rules.settings(1)
    frame = {"frame": options.frame, "order": options.order, "key": options.key} if rules.dialect == "json" else {}
    return {
        "model": rules.model,
        "dataset": session.plan.dataset,
        "dialect": rules.dialect,
        **frame,
        "prompt": prompt,
        "created": datetime.now(UTC).strftime("%Y-%m-%d"),
        **{name: settings[name] for name in ("seed", "temperature") if settings.get(name) is not None},
        "attempts": session.plan.attempts,
        "note": "; ".join(note),
    }


def _counting(advance: Advance) -> Advance:
    """As `advance`, for several threads."""
    lock = threading.Lock()

    def counted(count: int, failed: int = 0) -> None:
        with lock:
            advance(count, failed)

    return counted


def _note(kind: str, runner: AskRunner, count: Advance, progress: Progress) -> None:
    """Counts a finished request; the first failure of a kind is said at once."""
    if kind == "left":
        return
    count(1, kind not in KEPT)
    if kind not in KEPT and runner.state.kinds[kind] == 1:
        reason = next(reversed(runner.state.reasons), "")
        progress.say(f"{kind}: {reason}")


def _say_plan(session: AskSession, sample: Sequence[AskedImage], progress: Progress, *, sent: bool) -> Estimate:
    counted = estimate(session.plan, sample, session.reused, prices(session.request.options.prices))
    credentialed = is_credentialed(session.loaded.config)
    lines = plan_lines(session.plan, session.endpoint, counted, session.reused, credentialed=credentialed, sent=sent)
    if contradicts_prompt(session.plan.rules, session.request.options):
        lines[-1:-1] = [
            "warning: the prompt of the dialect json asks for bbox_2d in thousandths with x first; --frame, --order "
            "or --key say something else; give a prompt that fits them: --prompt-file."
        ]
    for line in lines:
        progress.say(line)
    return counted


def is_credentialed(config: DatasetConfig) -> bool:
    """Whether the dataset is under a data use agreement, also one that is kept in another format under its name."""
    return config.credentialed or not {config.reader, config.name}.isdisjoint(CREDENTIALED)


def _dry_run(session: AskSession, progress: Progress) -> dict[str, Any]:
    """The plan alone: nothing is sent or written, and no socket is opened."""
    folder = asked_folder(session.request.out)
    earlier = read_plan(folder)
    if earlier is not None and has_file(folder / LOG_FILE):
        rules = session.plan.rules
        server = earlier.rules.server if session.request.options.server == "auto" else rules.server
        known = replace(rules, model=rules.model or earlier.rules.model, server=server)
        session.plan = replace(session.plan, rules=known)
        to_ask(session, KeptAnswers(folder, session.request.dialect))
    counted = _say_plan(session, session.plan.images, progress, sent=False)
    plan = session.plan
    return {
        "dataset": plan.dataset, "dialect": plan.rules.dialect, "pairs": plan.pairs, "images": len(plan.images),
        "attempts": plan.attempts, "answered_before": session.reused, "bytes": counted.bytes,
        "prompt_tokens": counted.prompt_tokens, "cost": counted.cost, "stopped": "", "failed": 0,
    }  # fmt: skip


def _write_only(request: AskRequest, progress: Progress) -> dict[str, Any]:
    """The file and the counts from plan and log: neither a server nor the dataset is needed."""
    folder = asked_folder(request.out)
    plan = read_plan(folder)
    if plan is None:
        raise ConfigError(f"{folder} has no plan, so there is nothing to write; ask first.")
    check_files(request.out, plan.attempts, plan)
    with locked(folder):
        log = AnswerLog(folder, plan.rules.dialect)
        answers = write_answers(request.out, plan, log)
        asked = AskedRun(plan, None, log, RunState(), request, 0.0, 0, sum(answers), answers)
        log.close()
    return summary(asked, progress)


def _literal(host: str, port: int) -> list[str]:
    """The address of a host that is one; any other name but localhost is taken for another machine."""
    with suppress(OSError):  # as the system reads 127.1 and 2130706433
        return [socket.inet_ntoa(socket.inet_aton("127.0.0.1" if host == "localhost" else host))]
    return [host]
