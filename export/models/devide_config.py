"""What is assumed about DeViDe, as a config with defaults (DeViDe specification, "Assumptions").

No code and no weights are public. Every default below is an assumption that only the authors can confirm; every
alternative the specification lists can be chosen in the config.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from ...engines.errors import ConfigError, MissingExtraError
from ...engines.geometry import Geometry

__all__ = ["CheckpointMap", "Decoder", "DevideConfig", "Head", "Image", "Preprocess", "Text", "read_config"]

PARTS = ("image_encoder", "text_encoder", "model")
Section = TypeVar("Section")


def _one_of(*choices: Any) -> Any:
    """A field that takes one of `choices`; the first is the default."""
    return field(default=choices[0], metadata={"choices": choices})


@dataclass(frozen=True)
class Image:
    """`width` is the patch features', of both; `eps`, `final_norm`, `patch`, `layers`, `heads` and `hidden` are the
    ViT's, `stages` is the ResNet's. `memory` is what the decoder looks at: a class token is left out of the map."""

    arch: str = _one_of("vit_b16", "resnet50")
    size: int = 224
    eps: float = 1e-6
    final_norm: bool = True
    memory: str = _one_of("patches", "class_and_patches")
    projection: str = _one_of("none", "linear")
    patch: int = 16
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    stages: int = _one_of(4, 3)


@dataclass(frozen=True)
class Text:
    """`descriptions` is the number of texts of a class; several are averaged, or asked apart and then projected."""

    hf_tokenizer: str = "xmcmic/Med-KEBERT"
    lower_case: bool = True
    max_length: int = 256
    pool: str = _one_of("pooler", "cls", "mean")
    head: str = _one_of("mlp_embed", "none")
    descriptions: int = 1
    combine: str = _one_of("average", "queries")
    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    positions: int = 512


@dataclass(frozen=True)
class Decoder:
    """`input_norm`: the LayerNorm on both inputs is the final one (shared), `decoder_norm` (separate), or absent.
    `map`: the layers whose attention is averaged, "last", "mean" or a list of their numbers from 0."""

    width: int = 768
    layers: int = 4
    heads: int = 4
    ffn: int = 1024
    activation: str = _one_of("relu")
    self_attention: bool = True
    input_norm: str = _one_of("shared", "separate", "none")
    map: str | tuple[int, ...] = "last"


@dataclass(frozen=True)
class Head:
    """`mlp` is linear, ReLU, linear. With two outputs the second means present; with one its sigmoid does."""

    kind: str = _one_of("linear", "mlp")
    outputs: int = _one_of(2, 1)
    probability: str = _one_of("softmax1", "sigmoid")


@dataclass(frozen=True)
class Preprocess:
    """`resize` [S, S] squashes; a single number is the shorter side, of which the middle `crop` is taken."""

    resize: int | tuple[int, ...] = (224, 224)
    crop: int | None = None
    interpolation: str = _one_of("bicubic", "bilinear")
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    @property
    def geometry(self) -> Geometry:
        """The same as the bundle states it. Raises ConfigError when the two numbers do not go together."""
        interpolation: Any = self.interpolation
        if isinstance(self.resize, tuple) and len(self.resize) == 2 and self.resize[0] == self.resize[1]:
            if self.crop in (None, self.resize[0]):
                return Geometry("squash", self.resize[0], self.resize[0], interpolation)
        elif isinstance(self.resize, int) and self.crop is not None and self.crop <= self.resize:
            return Geometry("crop", self.crop, self.resize, interpolation)
        raise ConfigError(
            f"The DeViDe config cannot resize to {self.resize} and crop {self.crop}: give resize: [S, S], or resize: R "
            "and crop: S with S not above R."
        )


@dataclass(frozen=True)
class CheckpointMap:
    """Which tensor of the file is which of the adapter's (names as in the DeViDe specification's manifest).

    parts: part -> its top-level key, or the beginning of its dotted names; rename: regular expressions and their
    replacements, applied in order to the name within the part; drop: tensors to leave out, searched in the name in the
    file and in the new one; stack_qkv: `attn.query`, `.key`, `.value` (or q, k, v) become rows of `attn.qkv`.
    """

    parts: Mapping[str, str]
    rename: tuple[tuple[re.Pattern[str], str], ...] = ()
    drop: tuple[re.Pattern[str], ...] = ()
    stack_qkv: bool = False


@dataclass(frozen=True)
class DevideConfig:
    """The assumed model. `prompts` maps classes to their texts; `checkpoint` is None only for stand-in weights."""

    image: Image = Image()
    text: Text = Text()
    decoder: Decoder = Decoder()
    head: Head = Head()
    preprocess: Preprocess = Preprocess()
    prompts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checkpoint: CheckpointMap | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for values that contradict each other."""
        size, decoder, text = self.preprocess.geometry.size, self.decoder, self.text
        side = self.image.width
        features = decoder.width if text.head == "mlp_embed" else text.width
        numbers = decoder.map if isinstance(decoder.map, tuple) else ()
        checks = {
            f"the image of {size} pixels is not the encoder's of {self.image.size}": size == self.image.size,
            f"patches of {self.image.patch} do not divide {size}": self.image.arch != "vit_b16"
            or size % self.image.patch == 0,
            "a ResNet has no class token": self.image.arch == "vit_b16" or self.image.memory == "patches",
            f"{side}-wide patches need image.projection: linear": self.image.projection == "linear"
            or side == decoder.width,
            f"{features}-wide text features do not fit the decoder's {decoder.width}": features == decoder.width,
            f"{decoder.heads} heads do not divide {decoder.width}": decoder.width % decoder.heads == 0,
            f"the decoder has no layer {numbers}": all(0 <= n < decoder.layers for n in numbers) and decoder.map != (),
            f"decoder.map '{decoder.map}' is neither last, mean nor a list": isinstance(decoder.map, tuple)
            or decoder.map in ("last", "mean"),
            f"{self.head.probability} does not belong to {self.head.outputs} outputs": (self.head.outputs == 2)
            == (self.head.probability == "softmax1"),
            f"max_length {text.max_length} exceeds the {text.positions} positions": text.max_length <= text.positions,
            "mean and std have three values": len(self.preprocess.mean) == len(self.preprocess.std) == 3,
            "every class needs as many prompts as text.descriptions": all(
                len(texts) == text.descriptions for texts in self.prompts.values()
            ),
        }
        for problem, fine in checks.items():
            if not fine:
                raise ConfigError(f"The DeViDe config contradicts itself: {problem}; correct it.")


def read_config(given: Path | str | Mapping[str, Any]) -> DevideConfig:
    """From a YAML or JSON file, or its content. Raises ConfigError with the key, MissingExtraError (no YAML reader)."""
    where = "The DeViDe config" if isinstance(given, Mapping) else f"The DeViDe config {given}"
    folder = Path() if isinstance(given, Mapping) else Path(given).parent
    content = dict(_mapping(given if isinstance(given, Mapping) else _parse(Path(given), where), where))
    if (model := content.pop("model", "devide")) != "devide":
        raise ConfigError(f"{where} is for the model '{model}', not for devide.")
    sections: dict[str, Any] = {"image": Image, "text": Text, "decoder": Decoder, "head": Head}
    sections["preprocess"] = Preprocess
    if unknown := sorted(set(content) - {*sections, "prompts", "checkpoint"}):
        raise ConfigError(f"{where} has an unknown key '{unknown[0]}'; it takes {', '.join(sections)}, checkpoint.")
    read = {key: _section(kind, content.get(key, {}), f"{where}, {key}") for key, kind in sections.items()}
    if "checkpoint" in content:
        read["checkpoint"] = _checkpoint_map(content["checkpoint"], f"{where}, checkpoint")
    if content.get("prompts") is not None:
        read["prompts"] = _prompts(content["prompts"], folder, f"{where}, prompts")
    return DevideConfig(**read)


def _section(kind: type[Section], value: Any, where: str) -> Section:
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for key, setting in _mapping(value, where).items():
        if key not in known:
            raise ConfigError(f"{where} has an unknown key '{key}'; it takes {', '.join(known)}.")
        item = known[key]
        plain = tuple(setting) if isinstance(setting, list) else setting
        choices = item.metadata.get("choices")
        if choices is not None and (plain not in choices or type(plain) is not type(choices[0])):
            raise ConfigError(f"{where}: {key} is {setting!r}; choose {' or '.join(map(str, choices))}.")
        if choices is None and not _fits(str(item.type), plain):
            raise ConfigError(f"{where}: {key} is {setting!r}; give {item.type}.")
        found[key] = plain
    return kind(**found)


def _fits(annotation: str, value: Any) -> bool:
    """Whether `value` is of the type a section's annotation names; sizes are above 0."""
    kinds = [kind.strip() for kind in annotation.split("|")]
    if value is None or isinstance(value, bool | str):
        return {type(None): "None", bool: "bool", str: "str"}[type(value)] in kinds
    if isinstance(value, tuple):
        inner = next((kind[6:-6] for kind in kinds if kind.startswith("tuple[")), None)
        return inner is not None and all(_number(item, inner == "float") for item in value)
    return _number(value, "float" in kinds) and value > 0 and ("int" in kinds or "float" in kinds)


def _number(value: Any, real: bool) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float) if real else int)


def _checkpoint_map(value: Any, where: str) -> CheckpointMap:
    content = _mapping(value, where)
    if unknown := sorted(set(content) - {"parts", "rename", "drop", "stack_qkv"}):
        raise ConfigError(f"{where} has an unknown key '{unknown[0]}'; it takes parts, rename, drop, stack_qkv.")
    parts = _mapping(content.get("parts", {}), f"{where}, parts")
    if sorted(parts) != sorted(PARTS) or not all(isinstance(prefix, str) for prefix in parts.values()):
        raise ConfigError(f"{where}: parts must say where {', '.join(PARTS)} are, as a key or the start of the names.")
    rename, drop = content.get("rename") or [], content.get("drop") or []
    if not isinstance(rename, list) or not all(isinstance(rule, list | tuple) and len(rule) == 2 for rule in rename):
        raise ConfigError(f"{where}: rename must be a list of pairs [regular expression, replacement].")
    if not isinstance(drop, list) or not isinstance(content.get("stack_qkv", False), bool):
        raise ConfigError(f"{where}: drop must be a list of regular expressions, stack_qkv true or false.")
    rules = tuple((_pattern(old, where), _replacement(old, new, where)) for old, new in rename)
    return CheckpointMap(parts, rules, tuple(_pattern(old, where) for old in drop), content.get("stack_qkv", False))


def _pattern(text: Any, where: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise ConfigError(f"{where}: {text!r} is not a regular expression ({error}); correct it.") from error


def _replacement(old: str, new: Any, where: str) -> str:
    """Tries the replacement once, so that a wrong group number is found here."""
    try:
        groups = _pattern(old, where).groups
        re.compile("()" * groups).sub(new, "")
    except (re.error, TypeError, IndexError) as error:
        raise ConfigError(f"{where}: {new!r} cannot replace {old!r} ({error}); correct it.") from error
    return str(new)


def _prompts(value: Any, folder: Path, where: str) -> dict[str, tuple[str, ...]]:
    content = _parse(folder / value, where) if isinstance(value, str) else value
    prompts = {name: (text,) if isinstance(text, str) else text for name, text in _mapping(content, where).items()}
    for name, texts in prompts.items():
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ConfigError(f"{where}: '{name}' must be a text or a list of texts.")
    return {name: tuple(texts) for name, texts in prompts.items()}


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where} must be a mapping of names to values, not {type(value).__name__}.")
    return value


def _parse(path: Path, where: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {path} cannot be read ({error}); give a YAML or JSON file.") from error
    if path.suffix.lower() == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{where}: {path} is not valid JSON ({error}); correct it.") from error
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("Reading a YAML config needs pyyaml: pip install 'xbench-fast[export]'.") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{where}: {path} is not valid YAML ({reason}); correct it.") from error
