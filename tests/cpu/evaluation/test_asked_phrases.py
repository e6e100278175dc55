"""Images that are asked their own phrases: rows against NumPy, runs phrase by phrase, live models, the cache."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scaling_world import ClusterWorld, InProcess
from synthetic import (
    TOKENIZER,
    BlockEngine,
    make_bundle,
    make_dataset,
    make_ms_cxr,
    model,
    phrase_features,
    reference_sweep,
    save_graph,
)
from xbench_fast import evaluate
from xbench_fast.engines.base import Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError, EngineError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.prompts.phrase_features import PHRASE_FEATURES, PhraseFeatures
from xbench_fast.metrics_gpu.grounding.phrases import PhraseScores, phrase_means, scores_on_grid
from xbench_fast.metrics_gpu.grounding.protocols import protocol
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model
from xbench_fast.runtime.evaluation.live_model import LiveEngine, LiveModel
from xbench_fast.runtime.evaluation.pairing import needed_geometries
from xbench_fast.runtime.evaluation.phrase_queries import PhraseQueries, first_phrases, most_queries, see_one_another
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.gallery.assembly import make_gallery
from xbench_fast.runtime.reporting.gallery.model import gallery_payload
from xbench_fast.runtime.results.cell_key import cases_digest
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.loaded_dataset import load_dataset
from xbench_fast.runtime.results.numbers.run_numbers import make_results

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TIMES = int(os.environ.get("XBENCH_FUZZ", "1"))
SIDE = Geometry("squash", 32, 32, "bilinear")
COUPLED = f"{__name__}:Coupled"


class Coupled(BlockEngine):
    """The NumPy engine with queries that see one another."""

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        return super()._run(pixels, (text + text.sum(0)).astype(np.float32))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phrases")
    (folder / "models").mkdir()
    make_bundle(folder / "models/blocks-32", graph=save_graph(folder / "blocks.onnx"), text=True)
    make_ms_cxr(make_dataset(folder / "data", 12))
    return folder


def run(world: Path, out: Path, *more: str, status: int = 0) -> None:
    line = ["eval", "--bundles", str(world / "models"), "--model", "blocks-32", "--data", f"mscxr={world / 'data'}"]
    line += ["--dataset", "mscxr", "--out", str(out), "--threads", "1", "--batch", "3", "--chunk", "8"]
    if "--engine" not in more:
        line += ["--engine", "onnxruntime-cpu"]
    with pytest.raises(SystemExit) as ended:
        main([*line, *more])
    assert (ended.value.code or 0) == status


def entry_of(out: Path, cell: str = "blocks-32--mscxr") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "run.json").read_text())["cells"][cell]
    return found


def rows_of(out: Path, cell: str = "blocks-32--mscxr") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out / entry_of(out, cell)["file"]).to_pylist()
    return found


def test_rows_are_those_of_a_loop_over_phrases(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases, order, logits, maps and counts; unasked findings have neither logit nor region; nothing tells a phrase."""
    run(world, tmp_path / "run")
    said = capsys.readouterr().out
    assert "mscxr: cases without a phrase that has a region: 1, not evaluated" in said and "alone" not in said
    rows = {(row["case_id"], row["finding"]): row for row in rows_of(tmp_path / "run")}
    cases = [case for case in MsCxr(world / "data").cases() if case.phrases]
    assert len(rows) == 8 * len(cases) and [case.case_id for case in cases[:3]] == [
        "case0000",
        "case0000~2",
        "case0001",
    ]
    for case in cases:
        pixels = to_model(read_grey(case.image), SIDE)[None, None]
        for finding in MsCxr.classes:
            row = rows[case.case_id, finding]
            phrase = case.phrases.get(finding)
            if phrase is None:
                assert row["label"] is None and row["logit"] is None and row["saliency"] is None and row["area"] is None
                continue
            logits, saliency = model(pixels, phrase_features([phrase]))
            assert row["label"] == 1 and row["logit"] == logits[0, 0]
            np.testing.assert_array_equal(np.array(row["saliency"], np.float32), saliency[0, 0].reshape(-1))
            mask = unpack_masks(np.frombuffer(row["region"], np.uint8).reshape(1, 224, 28), 224)
            counts = reference_sweep(saliency[0], mask)
            assert row["area"] == counts.area[0].tolist() and row["overlap"] == counts.overlap[0].tolist()
    entry = entry_of(tmp_path / "run")
    assert entry["ingredients"]["phrases"] == "together" and entry["dataset_cases"] == entry["cases"] == len(cases)
    distinct = {phrase for case in cases for phrase in case.phrases.values()}
    assert (
        set(entry["prompts"]["status"].values()) == {"report"}
        and entry["prompts"]["set"] == "report"
        and entry["prompts"]["queries"] == len(distinct) == 4
    )
    for place in (tmp_path / "run").rglob("*"):
        assert "dema" not in place.name
        if place.is_file():
            content = place.read_bytes().lower()
            assert b"mild edema" not in content and b"dense opacity" not in content, place
    assert "dense opacity" not in said.lower() and "mild" not in said.lower()


def test_the_report_has_the_numbers_of_biovil(world: Path, tmp_path: Path) -> None:
    """CNR and mIoU of each finding and their mean, from the maps that are stored, whatever protocol swept them."""
    run(world, tmp_path / "run", "--model", "baseline:ones")
    scores: dict[str, list[PhraseScores]] = {}
    for row in rows_of(tmp_path / "run"):
        if row["area"] is not None:
            saliency = np.array(row["saliency"], np.float32).reshape(4, 4)
            (mask,) = unpack_masks(np.frombuffer(row["region"], np.uint8).reshape(1, 224, 28), 224)
            scores.setdefault(row["finding"], []).append(scores_on_grid(saliency, mask, tuple(row["frame"])))
    found = [score for mine in scores.values() for score in mine]
    means = phrase_means(found, [name for name, mine in scores.items() for _ in mine])
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "run"), "--protocol", "biovil", "--no-page", "--quiet", "--replicates", "40"])
    assert not ended.value.code
    text = (tmp_path / "run/report/tables.md").read_text()
    (table,) = [part for part in text.split("\n## ") if part.startswith("MS-CXR: phrase grounding, protocol biovil")]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "blocks-32 |" in line
    ]
    assert [line[1] for line in cells] == [*sorted(scores), "Mean"]
    numbers = (f"{means.cnr:.3f}", f"{means.cnr_absolute:.3f}", f"{100 * means.miou:.2f}")
    plain = [cell.split("<br>")[0] for cell in cells[-1]]
    assert plain[2:6] == [str(len(found)), *numbers] and plain[-2:] == ["0", "0"]
    assert plain[6:11] == [f"{100 * value:.2f}" for value in means.iou]
    told = json.loads((tmp_path / "run/report/report.json").read_text())["phrases"]
    assert [item["finding"] for item in told] == [*sorted(scores), ""]
    whole = told[-1]
    assert (whole["pairs"], whole["cnr"], whole["miou"]) == (len(found), means.cnr, means.miou)
    assert [whole[f"iou@{step / 10}"] for step in range(1, 6)] == list(means.iou)
    assert {"cnr", "miou"} <= set(whole["intervals"]) and "[" in cells[-1][3]
    assert whole["intervals"]["cnr"][0] <= means.cnr <= whole["intervals"]["cnr"][1]
    assert "without stored maps, left out: baseline:ones" in table


def test_the_gallery_shows_the_phrase_of_a_case(world: Path, tmp_path: Path) -> None:
    run(world, tmp_path / "run")
    stored = load_run(tmp_path / "run")
    gallery, reason = make_gallery(stored, make_results(stored, Choices(replicates=0)))
    assert gallery is not None, reason
    asked = {(case.case_id, finding): text for case in MsCxr(world / "data").cases()
             for finding, text in case.phrases.items()}  # fmt: skip
    assert gallery.cases and all(case.phrase == asked[case.case_id, case.finding] for case in gallery.cases)
    shown = gallery_payload(gallery)["cases"]
    assert [case["phrase"] for case in shown] == [case.phrase for case in gallery.cases]
    plain = gallery_payload(replace(gallery, cases=tuple(replace(case, phrase="") for case in gallery.cases)))
    assert not any("phrase" in case for case in plain["cases"])


def test_a_model_whose_queries_see_one_another_is_asked_phrase_by_phrase(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(world, tmp_path / "run", "--engine", COUPLED)
    assert "its queries see one another, so each phrase is asked alone" in capsys.readouterr().out
    entry = entry_of(tmp_path / "run")
    assert entry["ingredients"]["phrases"] == "alone" and set(entry["prompts"]["status"].values()) == {"report_alone"}
    (case, *_) = MsCxr(world / "data").cases()
    pixels = to_model(read_grey(case.image), SIDE)[None, None]
    rows = {(row["case_id"], row["finding"]): row for row in rows_of(tmp_path / "run")}
    for finding, phrase in case.phrases.items():
        assert rows[case.case_id, finding]["logit"] == model(pixels, 2 * phrase_features([phrase]))[0][0, 0]


def test_a_prompt_set_and_a_bundle_without_text_graph_are_refused(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(world, tmp_path / "run", "--data-option", "mscxr.prompts=coco", status=2)
    assert (
        "asks each image its own phrases, so it takes no prompt set; leave prompts=coco out" in capsys.readouterr().err
    )
    (tmp_path / "models").mkdir()
    make_bundle(tmp_path / "models/blocks-32", graph=world / "blocks.onnx")
    run(tmp_path, tmp_path / "run", "--data", f"mscxr={world / 'data'}", status=1)
    assert "text graph" in capsys.readouterr().err


def test_features_are_kept_by_content_and_do_not_depend_on_the_company(world: Path, tmp_path: Path) -> None:
    bundle, file = Bundle.load(world / "models/blocks-32"), tmp_path / "cache" / PHRASE_FEATURES
    phrases = ["small left effusion", "a", "opacity of the right base", "b", "a"]
    first = PhraseFeatures(bundle, file)
    np.testing.assert_array_equal(first(phrases), phrase_features(phrases))
    first.close()
    store = sqlite3.connect(file)
    assert store.execute("SELECT count(*) FROM features").fetchone() == (4,), "each distinct phrase once"
    content = file.read_bytes()
    assert b"effusion" not in content and b"opacity" not in content
    again = PhraseFeatures(bundle, file)
    again._encoder = None  # type: ignore[assignment]
    np.testing.assert_array_equal(again(phrases[:2]), phrase_features(phrases[:2]))
    with pytest.raises(AttributeError):
        again(["never asked"])
    store.execute("UPDATE features SET content = x'00'")
    store.commit()
    np.testing.assert_array_equal(PhraseFeatures(bundle, file)(["a"]), phrase_features(["a"]))
    store.execute("SELECT count(*) FROM features")
    file.write_bytes(b"no database" * 100)
    np.testing.assert_array_equal(PhraseFeatures(bundle, file)(["a"]), phrase_features(["a"]))
    with pytest.raises(BundleError, match="text"):
        PhraseFeatures(make_bundle(tmp_path / "bundle"))


def case(name: str, **phrases: str) -> Case:
    return Case(name, Path(name), dict.fromkeys(phrases, 1), {}, "all", phrases=phrases)


def test_phrases_of_a_batch_are_asked_once_and_in_blocks() -> None:
    calls: list[tuple[int, list[str]]] = []

    def ask(pixels: NDArray[np.uint8], texts: list[str]) -> Scores:
        calls.append((len(pixels), list(texts)))
        return Scores(*model(pixels, phrase_features(texts)))

    cases = [case("1", x="a", y="b"), case("2", y="a"), case("3", x="c"), case("4", x="b", y="c")]
    pixels = np.random.default_rng(0).integers(0, 256, (4, 1, 32, 32), np.uint8)
    whole = PhraseQueries(("x", "y"), ask, alone=False).run(pixels, cases)
    assert calls == [(4, ["a", "b", "c"])]
    assert np.isnan(whole.logits).tolist() == [[False, False], [True, False], [False, True], [False, False]]
    for row, asked in enumerate(cases):
        for column, finding in enumerate(("x", "y")):
            if finding in asked.phrases:
                want = model(pixels[row : row + 1], phrase_features([asked.phrases[finding]]))
                assert whole.logits[row, column] == want[0][0, 0]
                np.testing.assert_array_equal(whole.saliency[row, column], want[1][0, 0])
    for how, wanted in (({"alone": True}, [(2, ["a"]), (2, ["b"]), (2, ["c"])]),
                        ({"alone": False, "most": 2}, [(3, ["a", "b"]), (2, ["c"])])):  # fmt: skip
        calls.clear()
        found = PhraseQueries(("x", "y"), ask, **how).run(pixels, cases)  # type: ignore[arg-type]
        assert calls == wanted
        np.testing.assert_array_equal(found.logits, whole.logits)
        np.testing.assert_array_equal(found.saliency, whole.saliency)


@pytest.mark.parametrize(("share", "precision", "seen"), [
    (0.0, "fp32", False), (1e-6, "fp32", False), (1e-3, "fp32", True), (1e-3, "fp16", False), (0.1, "fp16", True),
])  # fmt: skip
@pytest.mark.parametrize("output", ["logits", "saliency"])
def test_whether_queries_see_one_another_is_measured(output: str, share: float, precision: str, seen: bool) -> None:
    def ask(pixels: NDArray[np.uint8], texts: list[str]) -> Scores:
        logits, saliency = np.ones((1, len(texts)), np.float32), np.ones((1, len(texts), 2, 2), np.float32)
        change = np.float32(share * (len(texts) - 1))
        return Scores(logits + change, saliency) if output == "logits" else Scores(logits, saliency + change)

    assert see_one_another(ask, 32, ["a", "b"], precision) is seen
    assert not see_one_another(ask, 32, ["a"], precision)


def test_the_first_phrases_and_the_most(world: Path) -> None:
    assert first_phrases([case("1", x="a", y="a"), case("2", x="a"), case("3", x="b"), case("4", x="c")]) == ["a", "b"]
    assert first_phrases([case("1", x="a")]) == ["a"]
    assert most_queries(Bundle.load(world / "models/blocks-32")) == 3, "the largest prompt set"


def test_a_live_model_gets_phrases(world: Path, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def live(pixels: NDArray[np.uint8], texts: Sequence[str]) -> tuple[Any, Any]:
        asked.append(list(texts))
        return model(pixels, phrase_features(texts))

    evaluate(live, "mscxr", world / "data", geometry=SIDE, name="mine", out=tmp_path / "live", batch=3, chunk=8,
             threads=1, progress=False)  # fmt: skip
    run(world, tmp_path / "run")
    same = ("case_id", "finding", "logit", "saliency", "area", "overlap", "label")
    for row, want in zip(rows_of(tmp_path / "live", "mine--mscxr"), rows_of(tmp_path / "run"), strict=True):
        assert [row[name] for name in same] == [want[name] for name in same]
    assert {text for texts in asked for text in texts} == {
        "Mild edema", "dense opacity, left", "Another edema", "Dense opacity, left",
    }  # fmt: skip


def test_no_message_repeats_a_phrase() -> None:
    def bad(pixels: NDArray[np.uint8], texts: list[str]) -> tuple[Any, Any]:
        logits, saliency = model(pixels, phrase_features(texts))
        return logits * np.float32(np.nan), saliency

    with pytest.raises(EngineError) as error:
        LiveEngine(LiveModel(bad, SIDE, "mine"), ["secret words"], secret=True)
    assert "a phrase" in str(error.value) and "secret" not in str(error.value)
    with pytest.raises(EngineError, match="'Mass'"):
        LiveEngine(LiveModel(bad, SIDE, "mine"), ["Mass"])
    assert TOKENIZER(["secret words"]).ids.shape == (1, 4)


def test_a_text_tower_has_its_own_features_and_damaged_ones_are_made_again(world: Path, tmp_path: Path) -> None:
    bundle, file = Bundle.load(world / "models/blocks-32"), tmp_path / PHRASE_FEATURES
    PhraseFeatures(bundle, file)(["a", "b"])
    other = Bundle(bundle.path, replace(bundle.manifest, text={**bundle.manifest.text, "context": 7}), bundle.digest)
    store = sqlite3.connect(file)
    rows = dict(store.execute("SELECT phrase, content FROM features"))
    compared = replace(bundle.manifest, text={**bundle.manifest.text, "compared": {"texts": 30}})
    PhraseFeatures(Bundle(bundle.path, compared, bundle.digest), file)(["a", "b"])
    assert dict(store.execute("SELECT phrase, content FROM features")) == rows, "what was compared changes no feature"
    one, two = rows
    old, plain = rows[one], np.array([9, 9], np.float32).tobytes()
    changed = bytes([old[0] ^ 1]) + old[1:]
    # Other features, with the checksum of those before, of an older version without one, and of another phrase.
    for content in (plain + old[-32:], changed, plain, rows[two], old[:-1], b"", 7, "text", None):
        store.execute("UPDATE features SET content = ? WHERE phrase = ?", (content, one))
        store.commit()
        np.testing.assert_array_equal(PhraseFeatures(bundle, file)(["a", "b"]), phrase_features(["a", "b"]))
        np.testing.assert_array_equal(PhraseFeatures(other, file)(["a"]), phrase_features(["a"]))
        assert dict(store.execute("SELECT phrase, content FROM features"))[one] == old, "encoded once, and kept"


def test_a_flipped_bit_in_the_features_is_never_believed(world: Path, tmp_path: Path) -> None:
    """XBENCH_FUZZ multiplies the number of flips."""
    bundle, file = Bundle.load(world / "models/blocks-32"), tmp_path / PHRASE_FEATURES
    phrases = [f"a phrase of {number} words" for number in range(12)]
    want = phrase_features(phrases)
    with closing(PhraseFeatures(bundle, file)) as features:
        features(phrases)
    whole, random = file.read_bytes(), np.random.default_rng(3)
    # Everything that is not zero: headers, the schema, keys and features.
    used, left = np.flatnonzero(np.frombuffer(whole, np.uint8)), list[int]()
    for place in [*range(0, 100, 4), *random.choice(used, 30 * TIMES).tolist()]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(random.integers(8))
        file.write_bytes(flipped)
        with closing(PhraseFeatures(bundle, file)) as features:
            np.testing.assert_array_equal(features(phrases), want)
        with closing(PhraseFeatures(bundle, file)) as again:
            again._encoder = None  # type: ignore[assignment]
            try:
                np.testing.assert_array_equal(again(phrases), want)
            except AttributeError:
                left.append(place)
    assert all(place > 100 for place in left), "a database with a damaged header is begun again"
    assert len(left) < 15 * TIMES, "only a changed key can stay where it is not looked for"


def test_a_phrase_is_part_of_what_cases_are_told_apart_by() -> None:
    one, other, none = (
        [Case("1", Path("1"), {"x": 1}, {}, "all", phrases=texts)] for texts in ({"x": "a"}, {"x": "b"}, {})
    )
    assert len({cases_digest(cases, Path()) for cases in (one, other, none)}) == 3


def test_images_are_prepared_for_bundles_that_are_asked_phrases(world: Path) -> None:
    loaded = load_dataset(DatasetConfig("mscxr", world / "data", "mscxr"))
    assert needed_geometries([world / "models/blocks-32"], protocol("default"), loaded) == [SIDE]


def test_workers_are_refused(world: Path, tmp_path: Path) -> None:
    data, bundles = [DatasetConfig("mscxr", world / "data", "mscxr")], [world / "models/blocks-32"]
    ((_, _, why),) = ClusterWorld(tmp_path).on_workers(InProcess(), bundles, data, baselines=()).failed
    assert "leave --cluster out, or divide the evaluation with --shard" in why
