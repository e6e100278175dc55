"""Prompts, bodies and content keys of `ask` (docs/ask.md §2, §5), by the fixtures in tests/ask."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.asking.ask_options import AskOptions
from xbench_fast.runtime.asking.ask_rules import AskRequest, accepts_empty_list, check_model, request_rules
from xbench_fast.runtime.asking.asked_pairs import plain_words
from xbench_fast.runtime.asking.chat_body import RequestRules, content_key
from xbench_fast.runtime.asking.dialect_prompts import ASKED_DIALECTS
from xbench_fast.runtime.asking.sent_images import pixels_hash
from xbench_fast.runtime.data.answers.dialects.dialect_registry import DIALECTS

ASK = Path(__file__).parents[2] / "ask"
REQUESTS = json.loads((ASK / "requests.json").read_text())
KEYS = json.loads((ASK / "keys.json").read_text())["cases"]
URL = {"url": "data:image/png;base64,<IMAGE>"}
PHRASE = "Small left pleural effusion"


def rules(dialect: str, **given: Any) -> RequestRules:
    return RequestRules(dialect, REQUESTS["model"], "vllm", **given)


def test_every_dialect_that_is_read_can_be_asked() -> None:
    words = {name for name in DIALECTS.own if DIALECTS[name].words}
    assert set(ASKED_DIALECTS) == set(DIALECTS.own) == {*REQUESTS["requests"], *words}


@pytest.mark.parametrize("dialect", REQUESTS["requests"])
def test_the_body_for_a_finding_is_the_authors_word_for_word(dialect: str) -> None:
    assert rules(dialect).body(plain_words("Effusion"), URL) == REQUESTS["requests"][dialect]


@pytest.mark.parametrize("dialect", REQUESTS["requests"])
def test_the_body_for_a_phrase(dialect: str) -> None:
    body = rules(dialect).body(PHRASE, URL, phrase=True)
    expected = REQUESTS["phrases"].get(dialect)
    if expected is None:
        text = json.dumps(REQUESTS["requests"][dialect])
        expected = json.loads(text.replace("effusion", PHRASE).replace("Effusion", PHRASE))
    assert body == expected


@pytest.mark.parametrize("case", KEYS, ids=lambda case: case["dialect"])
def test_content_keys(case: dict[str, Any]) -> None:
    canonical = json.loads(case["canonical"])
    pixels = np.array(case["pixels"], np.uint8).reshape(case["height"], case["width"])
    assert pixels_hash(pixels) == case["pixels_sha256"]
    assert content_key(canonical["body"], case["attempt"]) == case["key"]
    # The seed of the body is that of the attempt, so the first one's is lower.
    first = canonical["body"]["seed"] - case["attempt"] + 1
    own = RequestRules(case["dialect"], canonical["body"]["model"], "vllm", seed=first)
    assert own.key(plain_words(case["finding"]), case["pixels_sha256"], attempt=case["attempt"]) == case["key"]


def test_keys_of_findings_and_phrases_are_made_alike() -> None:
    own = rules("qwen25vl", encoding="jpeg:95")
    for words, pixels, attempt in (
        ("mass", "0" * 64, 1),
        ("mass", "1" * 64, 1),
        ("mass", "1" * 64, 2),
        ("é", "2" * 64, 1),
    ):
        image = {"pixels": pixels, "encoding": "jpeg:95"}
        body = own.body(words, image, attempt=attempt)
        del body["stream"]
        for _ in range(2):
            assert own.key(words, pixels, attempt=attempt) == content_key(body, attempt)
        assert own.key(words, pixels, attempt=attempt, phrase=True) == content_key(body, attempt)


def test_a_key_depends_on_everything_that_decides_an_answer() -> None:
    plain = rules("json")
    others = [
        replace(plain, model="b"), replace(plain, server="openai"), replace(plain, temperature=0.5),
        replace(plain, seed=1), replace(plain, max_tokens=9), replace(plain, changed={"top_p": 1}),
        replace(plain, removed=("seed",)), replace(plain, guided={}), replace(plain, prompt="{words}?"),
        replace(plain, encoding="jpeg:95"), rules("qwen3vl"),
    ]  # fmt: skip
    keys = {each.key("mass", "0" * 64) for each in (plain, *others)}
    keys |= {plain.key("nodule", "0" * 64), plain.key("mass", "1" * 64), plain.key("mass", "0" * 64, attempt=2)}
    assert len(keys) == len(others) + 4
    assert replace(plain, temperature=0.0).key("mass", "0" * 64) == plain.key("mass", "0" * 64)


def test_servers_get_the_fields_that_they_take() -> None:
    bodies = {kind: replace(rules("qwen2vl"), server=kind).body("mass", URL) for kind in ("sglang", "openai", "plain")}
    kept = {"skip_special_tokens", "spaces_between_special_tokens", "chat_template_kwargs"}
    assert bodies["sglang"]["chat_template_kwargs"] == {"spaces_between_special_tokens": False}
    assert bodies["sglang"]["skip_special_tokens"] is False
    assert bodies["plain"].keys() & kept == set() and bodies["plain"]["max_tokens"] == 512
    openai = bodies["openai"]
    assert openai["max_completion_tokens"] == 512 and not openai.keys() & {"max_tokens", "temperature", "seed", *kept}


def test_official_sampling_set_and_unset() -> None:
    own = rules("qwen3vl", official=True).body("mass", URL)
    assert (own["temperature"], own["top_p"], own["top_k"], own["max_tokens"]) == (0.7, 0.8, 20, 32768)
    assert rules("qwen3vl", official=True, max_tokens=9).body("mass", URL)["max_tokens"] == 9
    assert rules("radvlm", official=True).body("mass", URL) == rules("radvlm").body("mass", URL)
    changed = rules("radvlm", changed={"stop": ["x"]}, removed=("seed",)).body("mass", URL)
    assert changed["stop"] == ["x"] and "seed" not in changed
    guided = rules("json", guided={"type": "array"}).body("mass", URL)["response_format"]
    assert guided["json_schema"]["schema"] == {"type": "array"}


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 1500),
        ({"max_tokens": 9}, 9),
        ({"server": "openai"}, 1500),
        ({"max_tokens": 9, "changed": {"max_tokens": 7}}, 7),
        ({"changed": {"max_completion_tokens": 70}}, 1500),
        ({"changed": {"max_completion_tokens": 7000}}, 7000),
        ({"changed": {"max_completion_tokens": 70}, "removed": ("max_tokens",)}, 70),
        ({"removed": ("max_tokens",)}, None),
        ({"removed": ("max_completion_tokens",), "server": "openai"}, None),
        ({"changed": {"max_tokens": None}}, None),
        ({"changed": {"max_tokens": -1}}, None),
    ],
)
def test_the_limit_of_an_answer_is_what_a_request_states(given: dict[str, Any], most: int | None) -> None:
    assert replace(rules("radvlm"), **given).most_tokens == most


def test_words_of_a_finding() -> None:
    assert [plain_words(name) for name in ("Pleural_Effusion", "COPD", "Nodule")] == [
        "pleural effusion",
        "COPD",
        "nodule",
    ]
    assert rules("radvlm").words("Left LUNG", phrase=True) == "left lung"
    assert rules("radvlm").words("COPD", phrase=True) == "COPD"


def request(tmp_path: Path, dialect: str = "qwen25vl", **options: Any) -> AskRequest:
    return AskRequest(tmp_path / "o.jsonl", "http://127.0.0.1/v1", dialect, "d", None, AskOptions(**options))


def test_a_prompt_of_the_user_takes_the_place_of_the_official_one(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Where is {words}?")
    own = request_rules(request(tmp_path, "radvlm", prompt_file=file))
    parts = own.body("mass", URL, phrase=True)["messages"][0]["content"]
    assert [part.get("text") for part in parts] == ["Where is mass?", None]
    medrega = request_rules(request(tmp_path, "medrega", prompt_file=file)).body("mass", URL)
    assert [part["type"] for part in medrega["messages"][0]["content"]] == ["image_url", "text"]


@pytest.mark.parametrize(
    ("dialect", "options", "message"),
    [
        ("qwen25v", {}, "There is no dialect 'qwen25v' to ask in: did you mean 'qwen25vl'"),
        ("json", {}, "The dialect json needs the frame"),
        ("json", {"frame": "promille"}, "--frame promille cannot be asked for: did you mean 'permille'"),
        ("radvlm", {"frame": "unit"}, "--frame, --order and --key are of the dialect json"),
        ("qwen25vl", {"view": "1000x990"}, "no multiple of 28.*the nearest is 1008x980"),
        ("qwen25vl", {"view": "squash500"}, "no multiple of 28.*the nearest is 504x504"),
        ("qwen25vl", {"view": "smart32"}, "no multiple of 28.*write smart28"),
        ("qwen3vl", {"view": "long1000"}, "no multiple of 32.*write smart32"),
        ("qwen25vl", {"view": "small"}, "--view small is neither WIDTHxHEIGHT nor"),
        ("medgemma15", {"view": "squash896"}, "changes the frame of medgemma15"),
        ("json", {"frame": "unit", "view": "pad896"}, "changes the frame of json"),
        ("radvlm", {"set": ("model=1",)}, "The field model of a request cannot be changed"),
        ("radvlm", {"unset": ("messages",)}, "The field messages of a request"),
        ("radvlm", {"set": ("top_p",)}, "--set top_p is not KEY=JSON"),
        ("radvlm", {"set": ("top_p=NaN",)}, "--set top_p=NaN is not KEY=JSON"),
        ("radvlm", {"set": ("top_p=1e999",)}, "--set top_p=1e999 is not KEY=JSON"),
        ("radvlm", {"set": ("x=" + "[" * 100_000,)}, "is not KEY=JSON"),
        ("radvlm", {"set": ("top_p=1", "top_p=2")}, "--set gives a field of the request twice"),
        ("radvlm", {"temperature": float("nan")}, "--temperature nan is no number from 0 to 2"),
        ("radvlm", {"timeout": float("inf")}, r"--timeout inf is no number from 0\.1 to 1000000"),
        ("radvlm", {"limit": 0}, "--limit 0 is no number of at least 1"),
        ("radvlm", {"concurrency": 257}, "--concurrency 257 is no number from 1 to 256"),
        ("radvlm", {"shuffle_seed": "1"}, "--shuffle-seed 1 is no number of at least 0"),
        ("json", {"frame": "unit", "key": ""}, "--key must be the name of a key"),
        ("json", {"frame": "unit", "key": "k" * 81}, "--key must be the name of a key, of at most 80"),
        ("radvlm", {"encoding": "jpeg:095"}, "--encoding jpeg:095 is neither"),
        ("radvlm", {"encoding": "jpeg:101"}, "--encoding jpeg:101 is neither"),
        ("radvlm", {"encoding": "jpeg"}, "--encoding jpeg is neither png nor jpeg:QUALITY"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, dialect: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        request_rules(request(tmp_path, dialect, **options))


@pytest.mark.parametrize(("text", "fine"), [("Find {words}.", True), ("Find it.", False), ("{words} {words}", False)])
def test_a_prompt_has_the_words_once(tmp_path: Path, text: str, fine: bool) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(text)
    if fine:
        assert request_rules(request(tmp_path, prompt_file=file)).prompt == text
    else:
        with pytest.raises(ConfigError, match=r"must have \{words\} once"):
            request_rules(request(tmp_path, prompt_file=file))


def test_a_model_named_by_its_side_gets_that_side() -> None:
    own = replace(rules("paligemma"), model="paligemma-3b-mix-896", preparation="squash448")
    with pytest.raises(ConfigError, match="write --view squash896"):
        check_model(own)
    check_model(replace(own, preparation="squash896"))
    check_model(replace(own, preparation="896x896"))
    with pytest.raises(ConfigError, match="write --view squash896"):
        check_model(replace(own, preparation="448x448"))
    check_model(replace(own, model="x-448"))
    check_model(replace(rules("qwen25vl"), model="x-448", preparation="980x980"))


@pytest.mark.parametrize(
    ("schema", "accepts"),
    [
        ({"type": "array"}, True),
        ({"type": ["array", "null"], "items": {"type": "object"}}, True),
        ({}, True),
        ({"type": "object"}, False),
        ({"type": "array", "minItems": 1}, False),
        ({"anyOf": [{"type": "object"}, {"type": "array"}]}, True),
        ({"anyOf": [{"type": "object"}]}, False),
        ({"allOf": [{"minItems": 1}]}, False),
        ({"oneOf": [{}, {}]}, False),
        ({"contains": {}}, False),
        ({"const": [1]}, False),
        ({"enum": [[], [1]]}, True),
        ({"$ref": "#/x"}, False),
        ({"not": {"type": "array"}}, False),
        ({"if": {}, "then": False}, False),
        ({"if": {"minItems": 1}, "then": False}, True),
        ({"if": {"minItems": 1}, "else": {"minItems": 1}}, False),
        ({"type": 3}, False),
        ({"allOf": 3}, False),
        ({"enum": 3}, False),
    ],
)
def test_a_schema_must_allow_silence(schema: Any, accepts: bool) -> None:
    assert accepts_empty_list(schema) is accepts
