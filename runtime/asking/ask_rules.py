"""Options -> the rules of the requests and the questions; faults of the options are found here (docs/ask.md §1)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ...engines.strict_json import parse_json
from ..data.answers.coordinate_frames import FRAMES, VIEWED
from ..data.answers.dialects.dialect_registry import DIALECTS, GRID, JSON
from ..data.answers.line_keys import LONGEST_KEY
from .ask_options import AskOptions
from .asked_pairs import PairSelection
from .chat_body import FIXED, RequestRules
from .dialect_prompts import ASKED_DIALECTS, WORDS
from .sent_images import GRID_SUFFIX, check_encoding, check_preparation, fixed_size

_SIDES: Final = ("224", "448", "896")


@dataclass(frozen=True)
class AskRequest:
    """A call of `ask`. dataset: its name; model: None for the only one of the server; options: all others."""

    out: Path
    endpoint: str = ""
    dialect: str = ""
    dataset: str = ""
    model: str | None = None
    options: AskOptions = field(default_factory=AskOptions)


def request_rules(request: AskRequest) -> RequestRules:
    """The rules without model and kind of the server. Raises ConfigError."""
    options, name = request.options, request.dialect
    if name not in ASKED_DIALECTS:
        raise ConfigError(f"There is no dialect '{name}' to ask in: {did_you_mean(name, ASKED_DIALECTS)}.")
    _check_numbers(options)
    _check_frame(request)
    prompt = None
    if options.prompt_file is not None:
        prompt = _text(options.prompt_file, "--prompt-file")
        if prompt.count(WORDS) != 1:
            raise ConfigError(f"--prompt-file {options.prompt_file} must have {WORDS} once, for the finding or phrase.")
    changed = dict(_setting(text) for text in options.set)
    if len(changed) < len(options.set):
        raise ConfigError("--set gives a field of the request twice; give each once.")
    for key in (*changed, *options.unset):
        if key in FIXED:
            raise ConfigError(f"The field {key} of a request cannot be changed; leave it out of --set and --unset.")
    return RequestRules(
        dialect=name,
        model=request.model or "",
        server="plain" if options.server == "auto" else options.server,
        temperature=options.temperature,
        seed=options.seed,
        max_tokens=options.max_tokens,
        official=options.sampling == "official",
        changed=changed,
        removed=tuple(options.unset),
        guided=None if options.guided is None else _schema(options.guided),
        prompt=prompt,
        preparation=_preparation(request),
        encoding=check_encoding(options.encoding),
    )


def selection(options: AskOptions) -> PairSelection:
    """Which pairs are asked. Raises ConfigError."""
    words: dict[str, str] = {}
    if options.words is not None:
        words = _json(options.words, "--words")
        if not isinstance(words, dict) or not all(isinstance(text, str) and text.strip() for text in words.values()):
            raise ConfigError(f"--words {options.words} must be a JSON object {{finding: words}}.")
    return PairSelection(options.findings, options.limit, options.shuffle_seed, options.negatives, words, options.seed)


def api_key(options: AskOptions) -> str | None:
    """The key in the named variable. Raises ConfigError."""
    if options.key_env is None:
        return None
    key = os.environ.get(options.key_env, "").strip()
    if not key:
        raise ConfigError(f"The variable {options.key_env} of --key-env is not set; set it to the API key.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"The key in {options.key_env} must be printable characters without spaces.")
    return key


def prices(given: str | None) -> tuple[float, float] | None:
    """The prices of a million prompt and answer tokens, as --prices gives them. Raises ConfigError."""
    if given is None:
        return None
    try:
        prompt, answer = map(float, given.split(","))
    except ValueError:
        prompt = answer = -1.0
    if not (0 <= prompt < 1e9 and 0 <= answer < 1e9):
        raise ConfigError(f"--prices {given} is not two numbers; write e.g. 2.5,10.")
    return prompt, answer


def check_model(rules: RequestRules) -> None:
    """A model whose name ends in the side of its images must get that side. Raises ConfigError."""
    for side in _SIDES:
        squashed = rules.asked.preparation.startswith("squash") and fixed_size(rules.preparation) is not None
        if squashed and rules.model.endswith(f"-{side}") and fixed_size(rules.preparation) != (int(side), int(side)):
            raise ConfigError(f"The model {rules.model} sees images of {side} x {side}; write --view squash{side}.")


def _check_numbers(options: AskOptions) -> None:
    """The limits that the options declare, which the command line checks but for NaN and infinity."""
    for name, kind in get_type_hints(AskOptions, include_extras=True).items():
        value = getattr(options, name)
        for limits in (limits for part in (kind, *get_args(kind)) for limits in getattr(part, "__metadata__", ())):
            most = math.inf if limits.le is None else limits.le
            if value is not None and not (
                isinstance(value, Real) and limits.ge <= value <= most and math.isfinite(value)
            ):
                valid = f"of at least {limits.ge}" if limits.le is None else f"from {limits.ge} to {limits.le}"
                raise ConfigError(f"--{name.replace('_', '-')} {value} is no number {valid}.")


def _check_frame(request: AskRequest) -> None:
    """Frame, order and key belong to the dialect json, which needs the frame."""
    options, default = request.options, AskOptions()
    if request.dialect == JSON:
        if options.frame is None:
            raise ConfigError("The dialect json needs the frame of the answers, e.g. --frame permille.")
        if options.frame not in FRAMES or options.frame in VIEWED:
            valid = [name for name in FRAMES if name not in VIEWED]
            raise ConfigError(f"--frame {options.frame} cannot be asked for: {did_you_mean(options.frame, valid)}.")
        if not 0 < len(options.key) <= LONGEST_KEY:
            raise ConfigError(f"--key must be the name of a key, of at most {LONGEST_KEY} characters.")
    elif (options.frame, options.order, options.key) != (None, default.order, default.key):
        raise ConfigError(f"--frame, --order and --key are of the dialect json; {request.dialect} has its own.")


def contradicts_prompt(rules: RequestRules, options: AskOptions) -> bool:
    """Whether the file would state other boxes than our own prompt of the dialect json asks for."""
    stated = (options.frame, options.order, options.key)
    return rules.dialect == JSON and rules.prompt is None and stated != ("permille", "xyxy", "bbox_2d")


def _preparation(request: AskRequest) -> str:
    """How images are prepared; only what keeps the frame of the dialect."""
    own, view = ASKED_DIALECTS[request.dialect], request.options.view
    name = own.preparation if view is None else check_preparation(view)
    if (DIALECTS[request.dialect].frame == "pad") != name.startswith("pad"):
        need = "pads the image to a square, e.g. pad896" if DIALECTS[request.dialect].frame == "pad" else "does not pad"
        raise ConfigError(f"--view {name} changes the frame of {request.dialect}; choose one that {need}.")
    if own.factor and name != f"smart{own.factor}":
        sides = fixed_size(name)
        nearest = [max(1, round(side / own.factor)) * own.factor for side in sides or ()]
        if sides is None or nearest != list(sides):
            problem = f"--view {name} is no multiple of {own.factor}, so the server would resize it"
            instead = f"the nearest is {nearest[0]}x{nearest[1]}" if sides else f"write smart{own.factor}"
            raise ConfigError(f"{problem}; {instead}.")
    return name + GRID_SUFFIX * (request.dialect == GRID and request.options.grid_lines)


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    try:
        if not equals or not key:
            raise ValueError
        return key, _strict(value)
    except (ValueError, RecursionError):
        raise ConfigError(
            f"--set {text[:80]} is not KEY=JSON; write e.g. --set top_p=0.9 or --set stop='[\"x\"]'."
        ) from None


def _schema(path: Path) -> Mapping[str, Any]:
    schema = _json(path, "--guided")
    if not isinstance(schema, dict):
        raise ConfigError(f"--guided {path} is no JSON schema; it must be an object.")
    if not accepts_empty_list(schema):
        raise ConfigError(f"--guided {path} does not accept an empty list, which would forbid silence; let it.")
    return schema


def accepts_empty_list(schema: Any) -> bool:
    """Whether a JSON schema accepts `[]`, as far as its own keywords say; a reference is not followed and says no."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict) or "$ref" in schema:
        return False
    kinds = schema.get("type", "array")
    lists = [schema.get(key, []) for key in ("enum", "allOf", "anyOf", "oneOf")]
    if not isinstance(kinds, str | list) or not all(isinstance(value, list) for value in lists):
        return False
    branch = "then" if accepts_empty_list(schema.get("if", True)) else "else"
    parts = [
        "array" in ([kinds] if isinstance(kinds, str) else kinds),
        not schema.get("minItems"),
        "const" not in schema or schema["const"] == [],
        "enum" not in schema or [] in schema["enum"],
        "contains" not in schema or schema.get("minContains") == 0,
        "not" not in schema or not accepts_empty_list(schema["not"]),
        all(map(accepts_empty_list, schema.get("allOf", []))),
        "anyOf" not in schema or any(map(accepts_empty_list, schema["anyOf"])),
        "oneOf" not in schema or sum(map(accepts_empty_list, schema["oneOf"])) == 1,
        "if" not in schema or accepts_empty_list(schema.get(branch, True)),
    ]
    return all(parts)


def _json(path: Path, option: str) -> Any:
    try:
        return _strict(_text(path, option))
    except (ValueError, RecursionError):
        raise ConfigError(f"{option} {path} is not a JSON file; correct it.") from None


def _strict(text: str) -> Any:
    """The value of a text of JSON without numbers that a request cannot hold. Raises ValueError, RecursionError."""
    value = parse_json(text)
    json.dumps(value, allow_nan=False)
    return value


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{option} {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}."
        ) from None


def schema_sha256(schema: Mapping[str, Any]) -> str:
    """The hash of a schema, for the note of the file."""
    import hashlib

    return hashlib.sha256(json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
