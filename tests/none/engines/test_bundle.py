"""The bundle format: written whole, read with suspicion."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.engines.bundle import Bundle, find_bundles, sha256_of, write_bundle
from xbench_fast.engines.errors import BundleError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec, parity_summary
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.engines.prompts.prompt_encoding import texts_per_query
from xbench_fast.engines.prompts.prompt_set import PromptSet


def prompt_set() -> PromptSet:
    return PromptSet(
        name="rsna",
        findings=("Pneumonia",),
        texts=("pneumonia", "no pneumonia"),
        finding_of=np.array([0, 0], np.int32),
        polarity=np.array([1, -1], np.int8),
        features=np.arange(8, dtype=np.float32).reshape(2, 4),
        status=("official",),
    )


def manifest() -> Manifest:
    image = GraphSpec(
        "image.onnx",
        (TensorSpec("pixels", "uint8", ("batch", 1, 32, 32)), TensorSpec("text", "float32", ("findings", 4))),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", 2, 2)),
        ),
    )
    return Manifest(
        model="tiny",
        variant="32",
        weights="stand-in",
        checkpoint=None,
        geometry=Geometry("squash", 32, 32, "bicubic"),
        grid=(2, 2),
        saliency={"kind": "attention", "description": "test"},
        logit_scale=1.0,
        text={"context": 8},
        graphs={"image": image},
        prompt_sets={"rsna": prompt_set().record()},
        opset=20,
        exporter={"torch": "0"},
        parity={"passed": True},
    )


def make(folder: Path, name: str = "tiny-32") -> Path:
    source = folder / "source"
    source.mkdir(exist_ok=True)
    (source / "image.onnx").write_bytes(b"not a graph, but a file")
    prompt_set().save(source / "rsna.npz")
    files = {"image.onnx": source / "image.onnx", "prompts/rsna.npz": source / "rsna.npz"}
    return write_bundle(folder / name, manifest(), files).path


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes bundle.json and takes its checksum away, as in a bundle of an older version."""
    file = path / "bundle.json"
    data = json.loads(file.read_text())
    data.pop("checksum", None)
    change(data)
    file.write_text(json.dumps(data))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    bundle = Bundle.load(make(tmp_path))
    assert dataclasses.replace(bundle.manifest, files={}) == manifest()
    loaded = bundle.prompt_set("rsna")
    np.testing.assert_array_equal(loaded.features, prompt_set().features)
    np.testing.assert_array_equal(loaded.polarity, [1, -1])
    assert bundle.name == "tiny-32" and bundle.digest == sha256_of(bundle.path / "bundle.json")
    for hidden in (".Trash-1000", "@eaDir"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "bundle.json").touch()
    assert find_bundles(tmp_path) == [bundle.path] == find_bundles(bundle.path)


def test_fixed_findings_are_another_schema(tmp_path: Path) -> None:
    """Versions that expect texts refuse such a bundle; others are written as before."""
    path = make(tmp_path)
    assert '"schema": 1,' in (path / "bundle.json").read_text() and "findings" not in json.loads(
        (path / "bundle.json").read_text()
    )
    known = ("A", "B", "C", "D")
    fixed = write_bundle(
        tmp_path / "fixed-32",
        dataclasses.replace(manifest(), findings=known),
        {name: path / name for name in ("image.onnx", "prompts/rsna.npz")},
    )
    assert '"schema": 2,' in (fixed.path / "bundle.json").read_text()
    assert Bundle.load(fixed.path).manifest.findings == known
    with pytest.raises(BundleError, match=r"reads no text: .* supervised and knows 4 findings \(A, B, C, D\)"):
        fixed.graph("text")


def test_a_bundle_states_how_its_map_is_smoothed_or_is_known_by_its_model(tmp_path: Path) -> None:
    path = make(tmp_path)

    def smoothing(model: str, **facts: Any) -> float:
        edit(path, lambda data: data.update(model=model, saliency={"kind": "similarity", **facts}))
        return Bundle.load(path).manifest.smoothing

    assert smoothing("tiny") == smoothing("biovil", choice="patch-text") == smoothing("afloc", smoothing=0.0) == 0
    assert smoothing("biovil", choice="official") == smoothing("biovil_t") == smoothing("afloc") == 1.5
    assert smoothing("tiny", smoothing=3) == 3
    for wrong in (-1.0, "1.5"):
        with pytest.raises(BundleError, match=r"saliency\.smoothing"):
            smoothing("tiny", smoothing=wrong)


def test_equal_content_has_an_equal_digest(tmp_path: Path) -> None:
    assert Bundle.load(make(tmp_path, "a")).digest == Bundle.load(make(tmp_path, "b")).digest


def test_an_existing_bundle_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(BundleError, match="already exists"):
        make(tmp_path)
    write_bundle(path, manifest(), {n: path / n for n in ("image.onnx", "prompts/rsna.npz")}, replace=True)
    assert Bundle.load(path).manifest.model == "tiny"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], "temporary directories were left"


def test_a_folder_that_is_no_bundle_is_never_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "tiny-32"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    path = make(tmp_path, "other")
    with pytest.raises(BundleError, match="no bundle"):
        write_bundle(precious, manifest(), {n: path / n for n in ("image.onnx", "prompts/rsna.npz")}, replace=True)
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        write_bundle(tmp_path / "half", manifest(), {"image.onnx": tmp_path / "absent.onnx"})
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    path = make(tmp_path)
    data = bytearray((path / "image.onnx").read_bytes())
    data[3] ^= 1
    (path / "image.onnx").write_bytes(data)
    with pytest.raises(BundleError, match="sha256"):
        Bundle.load(path)


def test_a_flipped_bit_of_the_manifest_is_found(tmp_path: Path) -> None:
    """A bit in the checksum's name leaves a file without one, and all values as they were."""
    file = make(tmp_path) / "bundle.json"
    content, before, refused = file.read_bytes(), Bundle.load(file.parent).manifest, 0
    for bit in np.random.default_rng(7).choice(8 * len(content), 100, replace=False).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        try:
            assert Bundle.load(file.parent).manifest == before
        except BundleError as error:
            refused += 1
            assert "bundle.json" in str(error) or "schema" in str(error)
    assert refused > 90


def test_a_manifest_without_a_checksum_is_read_and_an_edited_one_is_not(tmp_path: Path) -> None:
    path = make(tmp_path)
    data = json.loads((path / "bundle.json").read_text())
    (path / "bundle.json").write_text(json.dumps({**data, "logit_scale": 2.0}))
    with pytest.raises(BundleError, match=r"bundle\.json does not match its checksum"):
        Bundle.load(path)
    edit(path, lambda data: None)
    assert Bundle.load(path).manifest.logit_scale == 2.0


@pytest.mark.parametrize(
    "name",
    ["weights.bin", "prompts/other.npz", ".hidden", "new/image.onnx.data", "plans/w.bin", "plans/a/b.plan", "w.json"],
)
def test_a_file_that_is_not_listed_is_refused(tmp_path: Path, name: str) -> None:
    """A graph could read it as external data."""
    path = make(tmp_path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(b"weights")
    for check in (True, False):
        with pytest.raises(BundleError, match=f"{path}: bundle.json does not list the file '{name}'"):
            Bundle.load(path, check_hashes=check)
    (path / name).unlink()
    (path / name).symlink_to(tmp_path)
    with pytest.raises(BundleError, match=f"does not list the file '{name}'"):
        Bundle.load(path)


def test_a_truncated_or_missing_file_is_found(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "image.onnx").write_bytes(b"short")
    with pytest.raises(BundleError, match="bytes instead of"):
        Bundle.load(path, check_hashes=False)
    (path / "image.onnx").unlink()
    with pytest.raises(BundleError, match="missing"):
        Bundle.load(path)


def _rename_file(data: dict[str, Any], name: str) -> None:
    data["files"][name] = data["files"].pop("image.onnx")
    data["graphs"]["image"]["file"] = name


def _set(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        target: Any = data
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


IDS = {"name": "input_ids", "dtype": "int64", "shape": ["texts", "tokens"]}
FEATURES = {"name": "features", "dtype": "float32", "shape": ["texts", 4]}


def _text_graph(data: dict[str, Any], **changed: Any) -> None:
    # Copies: a test that changes one place of a bundle must not change the next test's bundle.
    graph = {"file": "image.onnx", "inputs": [IDS], "outputs": [FEATURES], **changed}
    data["graphs"]["text"] = copy.deepcopy(graph)


def test_a_text_graph_with_or_without_a_mask_is_read(tmp_path: Path) -> None:
    path = make(tmp_path)
    for inputs in ([IDS], [IDS, {**IDS, "name": "attention_mask"}]):
        edit(path, lambda data, inputs=inputs: _text_graph(data, inputs=inputs))  # type: ignore[misc]
        assert [t.name for t in Bundle.load(path).graph("text").inputs] == [t["name"] for t in inputs]


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "parent path": (lambda d: _rename_file(d, "../image.onnx"), "plain path"),
    "absolute path": (lambda d: _rename_file(d, "/etc/hostname"), "plain path"),
    "hidden path": (lambda d: _rename_file(d, ".ssh/key"), "plain path"),
    "windows path": (lambda d: _rename_file(d, "..\\image.onnx"), "plain path"),
    "empty part": (lambda d: _rename_file(d, "a//image.onnx"), "plain path"),
    "new line": (lambda d: _rename_file(d, "image.onnx\n"), "plain path"),
    "other schema": (_set("schema", value=3), "schema 3 is not 1 or 2"),
    "schema 2 without findings": (_set("schema", value=2), "'findings' has 0 names"),
    "too few findings": (_set("findings", value=["A", "B", "C"]), "'findings' has 3 names"),
    "a finding twice": (_set("findings", value=["A", "B", "C", "A"]), "'findings' has 4 names"),
    "an empty finding": (_set("findings", value=["A", "B", "C", ""]), "'findings"),
    "findings and a text graph": (
        lambda d: (_text_graph(d), d.update(findings=["A", "B", "C", "D"])),  # type: ignore[func-returns-value]
        "reads no text, and graphs.text is there",
    ),
    "schema as text": (_set("schema", value="1"), "schema '1'"),
    "schema true": (_set("schema", value=True), "schema True"),
    "unknown weights": (_set("weights", value="real"), "weights"),
    "unlisted file": (lambda d: d["files"].pop("image.onnx"), "not listed"),
    "short hash": (_set("files", "image.onnx", "sha256", value="00"), "sha256"),
    "hash of another file": (_set("files", "image.onnx", "sha256", value="0" * 64), "sha256"),
    "negative size": (_set("files", "image.onnx", "bytes", value=-1), "'files.image.onnx.bytes'"),
    "float pixels": (_set("graphs", "image", "inputs", 0, "dtype", value="float32"), "do not fit"),
    "unknown dtype": (
        _set("graphs", "image", "inputs", 0, "dtype", value="object"),
        r"graphs\.image\.inputs\[0\]\.dtype",
    ),
    "wrong grid": (_set("grid", value=[7, 7]), "grid"),
    "huge grid": (_set("grid", value=[10**9, 2]), "grid"),
    "no logits": (lambda d: d["graphs"]["image"]["outputs"].pop(0), "logits"),
    "no image graph": (lambda d: d["graphs"].pop("image"), "graphs.image"),
    "geometry of two sizes": (_set("geometry", "size", value=31), "Geometry"),
    "finding index out of range": (_set("prompt_sets", "rsna", "finding_of", value=[0, 5]), "finding_of"),
    "only negative prompts": (_set("prompt_sets", "rsna", "polarity", value=[-1, -1]), "positive prompt"),
    "polarity zero": (_set("prompt_sets", "rsna", "polarity", value=[1, 0]), "polarity"),
    "a set named like a path": (
        lambda d: d["prompt_sets"].update({"../x": d["prompt_sets"].pop("rsna")}),
        "plain path",
    ),
    "prompts without texts": (
        lambda d: d["prompt_sets"]["rsna"].update(texts=[], finding_of=[], polarity=[]),
        "positive prompt",
    ),
    "empty text": (_set("prompt_sets", "rsna", "texts", 1, value=""), r"'prompt_sets\.rsna\.texts\[1\]'"),
    "polarity too large": (_set("prompt_sets", "rsna", "polarity", value=[1, -2]), "polarity"),
    "index below zero": (_set("prompt_sets", "rsna", "finding_of", value=[-1, 0]), "finding_of"),
    "one index too few": (_set("prompt_sets", "rsna", "finding_of", value=[0]), "one entry a query"),
    "no finding": (
        lambda d: d["prompt_sets"]["rsna"].update(findings=[], texts=[], finding_of=[], polarity=[], status=[]),
        "at least one",
    ),
    "axis of zero": (_set("graphs", "image", "inputs", 0, "shape", 2, value=0), r"inputs\[0\]\.shape\[2\]"),
    "opset true": (_set("opset", value=True), "opset"),
    "unknown precision": (_set("precision", value="fp8"), "precision"),
    "exporter with a number": (_set("exporter", "torch", value=2), "exporter"),
    "half of a surrogate pair": (_set("weights", value="\ud800"), "bundle.json"),
    "missing key": (lambda d: d.pop("parity"), "parity"),
    "logit scale of zero": (_set("logit_scale", value=0), "'logit_scale': .* > 0"),
    "logit scale without end": (_set("logit_scale", value=1e999), "not valid JSON"),
    "logit scale as text": (_set("logit_scale", value="1"), "'logit_scale': .*`float`, got `str`"),
    "graphs as list": (_set("graphs", value=[]), "'graphs'"),
    "size as text": (_set("geometry", "size", value="32"), "geometry.size"),
    "size between two": (_set("geometry", "size", value=32.9), "geometry.size"),
    "resize true": (_set("geometry", "resize", value=True), "geometry.resize"),
    "mode as list": (_set("geometry", "mode", value=["squash"]), "geometry.mode"),
    "geometry as list": (_set("geometry", value=[]), "geometry"),
    "error as text": (_set("parity", "needed", value="inf"), "parity.needed"),
    "error below zero": (_set("parity", "needed", value=-1e-6), "parity.needed"),
    "error without a float": (_set("parity", "needed", value=10**400), "parity.needed"),
    "tolerance as list": (_set("parity", "tolerance", value=[1e-4]), "parity.tolerance"),
    "compared as text": (_set("parity", "compared", value="all"), "parity.compared"),
    "passed as text": (_set("parity", "passed", value="yes"), "parity.passed"),
    "parity as pairs": (_set("parity", value=[["passed", True]]), "parity"),
    "text features without axes": (lambda d: _text_graph(d, outputs=[{**FEATURES, "shape": []}]), "graphs.text"),
    "text graph without outputs": (lambda d: _text_graph(d, outputs=[]), "graphs.text"),
    "text graph with two outputs": (lambda d: _text_graph(d, outputs=[FEATURES, FEATURES]), "graphs.text"),
    "text graph without inputs": (lambda d: _text_graph(d, inputs=[]), "graphs.text"),
    "text graph with a mask only": (lambda d: _text_graph(d, inputs=[{**IDS, "name": "mask"}]), "graphs.text"),
    "text features of unknown size": (
        lambda d: _text_graph(d, outputs=[{**FEATURES, "shape": ["texts", "width"]}]),
        "graphs.text do not fit",
    ),
    "text features without size": (
        lambda d: _text_graph(d, outputs=[{**FEATURES, "shape": ["texts"]}]),
        "graphs.text do not fit",
    ),
    "token ids as floats": (lambda d: _text_graph(d, inputs=[{**IDS, "dtype": "float32"}]), "graphs.text do not fit"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests_are_refused(tmp_path: Path, name: str) -> None:
    change, words = HOSTILE[name]
    path = make(tmp_path)
    edit(path, change)
    with pytest.raises(BundleError, match=words):
        Bundle.load(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"schema": NaN}', '{"schema": 1, "schema": 1}', "[" * 100_000]
)
def test_json_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    path = make(tmp_path)
    (path / "bundle.json").write_text(text)
    with pytest.raises(BundleError):
        Bundle.load(path)


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    path = make(tmp_path)
    outside = tmp_path / "outside.onnx"
    (path / "image.onnx").rename(outside)
    (path / "image.onnx").symlink_to(outside)
    with pytest.raises(BundleError, match="symbolic link"):
        Bundle.load(path)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "prompts").rename(tmp_path / "elsewhere")
    (path / "prompts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="symbolic link"):
        Bundle.load(path)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "image.onnx").unlink()
    os.mkfifo(path / "image.onnx")
    with pytest.raises(BundleError):
        Bundle.load(path)


def relist(path: Path, name: str) -> None:
    file = path / name
    edit(path, _set("files", name, value={"sha256": sha256_of(file), "bytes": file.stat().st_size}))


@pytest.mark.parametrize("kind", ["pickle", "shape", "dtype", "nan", "text", "bomb"])
def test_prompt_features_that_do_not_fit_are_refused(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path)
    target = path / "prompts" / "rsna.npz"
    features: Any = {
        "pickle": np.array([[object()] * 4] * 2, dtype=object),
        "shape": np.zeros((3, 4), np.float32),
        "dtype": np.zeros((2, 4), np.float64),
        "nan": np.full((2, 4), np.nan, np.float32),
    }.get(kind)
    if kind == "text":
        target.write_text("no archive")
    elif kind == "bomb":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("features.npy", b"\0" * 50_000_000)
    else:
        np.savez(target, features=features)
    relist(path, "prompts/rsna.npz")
    bundle = Bundle.load(path)
    with pytest.raises(BundleError):
        bundle.prompt_set("rsna")


def test_an_unknown_prompt_set_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="rsna"):
        Bundle.load(make(tmp_path)).prompt_set("siim")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def any_manifest() -> Any:
    """The plain data of a bundle.json with every optional part."""
    raw: Any = json.loads(dataclasses.replace(manifest(), files={}).dump())
    del raw["checksum"]
    raw["files"] = {
        "image.onnx": {"sha256": "0" * 64, "bytes": 1},
        "prompts/rsna.npz": {"sha256": "0" * 64, "bytes": 1},
    }
    raw["parity"] = {"passed": True, "compared": 3, "needed": 1e-6, "tolerance": 1e-4}
    _text_graph(raw)
    return raw


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in plain data."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*above, key)
        if isinstance(value[key], dict | list):
            yield from places(value[key], (*above, key))


@settings(max_examples=300)
@given(place=st.deferred(lambda: st.sampled_from(sorted(places(any_manifest()), key=str))), value=json_values)
def test_any_value_anywhere_is_accepted_or_refused_with_a_sentence(place: tuple[Any, ...], value: Any) -> None:
    raw = target = any_manifest()
    *above, key = place
    for each in above:
        target = target[each]
    target[key] = value
    try:
        found = parse_manifest(json.dumps(raw).encode(), "test")
    except BundleError as error:
        assert str(error).startswith("test: ")
        return
    assert parity_summary(found.parity)
    if "text" in found.graphs:
        with suppress(ConfigError):
            texts_per_query(found.graphs["image"], found.graphs["text"])


CASE = Path(__file__).parents[2] / "cases" / "bundle-weights-under-plans" / "bundles" / "k-tiny"


def listed(bundle: Path, name: str) -> None:
    """Enters a file in bundle.json."""
    data = json.loads((bundle / "bundle.json").read_text())
    data["files"][name] = {"sha256": sha256_of(bundle / name), "bytes": (bundle / name).stat().st_size}
    data.pop("checksum", None)
    (bundle / "bundle.json").write_text(json.dumps(data))


def test_weights_among_the_plans_are_refused_unless_they_are_listed(tmp_path: Path) -> None:
    bundle = tmp_path / "k-tiny"
    shutil.copytree(CASE, bundle)
    with pytest.raises(
        BundleError, match=r"the graph .image\.onnx. reads weights from .plans/w\.plan., which bundle\.json"
    ):
        Bundle.load(bundle)
    listed(bundle, "plans/w.plan")
    before = Bundle.load(bundle).digest
    weights = bytearray((bundle / "plans" / "w.plan").read_bytes())
    weights[0] ^= 1
    (bundle / "plans" / "w.plan").write_bytes(weights)
    with pytest.raises(BundleError, match=r"plans/w\.plan. does not match its sha256"):
        Bundle.load(bundle)
    listed(bundle, "plans/w.plan")
    assert Bundle.load(bundle).digest != before


def test_graphs_of_other_endings_are_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "k-tiny"
    shutil.copytree(CASE, bundle)
    (bundle / "image.onnx").rename(bundle / "image.ort")
    text = (bundle / "bundle.json").read_text().replace('"image.onnx"', '"image.ort"')
    data = json.loads(text)
    data.pop("checksum", None)
    (bundle / "bundle.json").write_text(json.dumps(data))
    with pytest.raises(BundleError, match=r"image\.ort. is no \.onnx file"):
        Bundle.load(bundle)
