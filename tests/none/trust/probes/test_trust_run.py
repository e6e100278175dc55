"""The command trust and its directory: which images, what is kept, what is computed again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from synthetic import BlockEngine, make_bundle, make_dataset, make_ms_cxr, model
from trust_command import ENGINE, asked, entry, rows
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import open_engine
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.host.former_code import FORMER
from xbench_fast.runtime.trust.probes import running
from xbench_fast.runtime.trust.probes.asking import AskedModel
from xbench_fast.runtime.trust.probes.directory import TrustDirectory, rows_as_table
from xbench_fast.runtime.trust.probes.probe_images import choose_cases


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle and 20 images, of which 7 have a Mass and 5 an Effusion."""
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models" / "blocks-32")
    make_dataset(tmp_path / "data")
    return tmp_path


trust = partial(asked, "repeat")


def test_each_pair_has_a_row_and_the_cost_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    trust()
    said = capsys.readouterr().out
    assert "12 pairs of 10 images, at most 30 forward passes, 1.5 times as many as eval on 20 images" in said
    assert "30 passes in" in said and "the same image gave the same bits twice" in said
    found = rows().to_pylist()
    assert len(found) == 12 and {row["status"] for row in found} == {"ok"}
    assert [row["finding"] for row in found if row["case_id"] == "case0000"] == ["Mass", "Effusion"]
    assert {row["patient_id"] for row in found if row["case_id"] == "case0009"} == {"p4"}
    assert (
        entry()["state"] == "done"
        and entry()["made"] == 30
        and entry()["facts"]
        == {
            "logit_change": 0.0,
            "map_change": 0.0,
        }
    )
    assert not Path("trust/run.json").exists() and not Path("run").exists()
    assert "demo" not in Path("trust/trust.txt").read_text()


def test_finished_rows_are_reused_and_others_are_computed_again(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust()
    trust()
    assert "blocks-32 on coco, repeat: finished before, reused" in capsys.readouterr().out
    assert entry()["made"] == 30, "what was measured is kept"
    before = rows()
    picture = world / "data" / "images" / "case0003.png"
    Image.fromarray(255 - np.asarray(Image.open(picture))).save(picture)
    trust()
    assert "computed again, because this changed: the image of case0003" in capsys.readouterr().out
    changed = [row["case_id"] for row, old in zip(rows().to_pylist(), before.to_pylist(), strict=True) if row != old]
    assert changed == ["case0003"]
    make_bundle(world / "other" / "blocks-32", weights="demo")
    (world / "models").rename(world / "earlier")
    (world / "other").rename(world / "models")
    trust()
    said = capsys.readouterr().out
    assert "computed again, because this changed: bundle" in said
    assert "blocks-32: demo model trained on generated phantoms" in said and "texts were not compared" not in said


@pytest.mark.parametrize(("probe", "known"), [("repeat", True), ("region", False)])
def test_rows_with_a_known_hash_of_code_are_reused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], probe: str, known: bool
) -> None:
    """Earlier versions wrote a hash of the code; the hash of another probe is not one of this one."""
    with monkeypatch.context() as patch:
        patch.setattr(running, "code_number", lambda part: FORMER[f"trust {probe}-1"][0])
        patch.setattr(running, "reader_code", lambda dataset: FORMER["reading-1+reader coco-1"][0])
        trust()
    before = entry()
    assert len(before["ingredients"]["code"]) == len(before["ingredients"]["reader"]) == 64
    capsys.readouterr()
    trust()
    said = capsys.readouterr().out
    assert ("finished before, reused" in said, "this changed: code\n" in said) == (known, not known)
    assert (entry()["key"] == before["key"]) == known


def test_texts_that_were_not_compared_are_said(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(world / "models")
    manifest = make_bundle(world / "models" / "blocks-32", text=True).manifest
    text = {"context": 8, "tokenizer": {"kind": "tokenizer.json"}}
    (world / "models" / "blocks-32" / "bundle.json").write_bytes(replace(manifest, text=text).dump())
    trust()
    assert "blocks-32: texts were not compared with the tokenizer" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        (["--seed", 1, "--pairs", 1], "pairs, seed"),
        (["--limit", 12], "dataset, limit"),
        (["--finding", "Mass"], "findings"),
        (["--batch", 5], "batch"),
    ],
)
def test_other_options_are_computed_again(capsys: pytest.CaptureFixture[str], more: list[object], changed: str) -> None:
    trust()
    trust(*more)
    assert f"computed again, because this changed: {changed}\n" in capsys.readouterr().out


def test_an_interrupted_run_goes_on_with_equal_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trust("--out", "whole")
    calls = 0
    run = BlockEngine._run

    def stopping(self: BlockEngine, pixels: Any, text: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt
        return run(self, pixels, text)

    with monkeypatch.context() as patch:
        patch.setattr(BlockEngine, "_run", stopping)
        trust(status=130)
    assert "the same command continues" in capsys.readouterr().err
    assert entry()["state"] == "interrupted" and not Path("trust", entry()["file"]).exists()
    trust()
    assert entry()["made"] == 18, "two chunks of two images are kept"
    assert rows().equals(rows("whole"))


def test_a_part_of_another_image_is_not_kept(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(self: BlockEngine, pixels: Any, text: Any) -> Any:
        if (pixels == 255).mean() > 0.9:
            raise KeyboardInterrupt
        return run(self, pixels, text)

    run = BlockEngine._run
    picture = world / "data" / "images" / "case0018.png"
    Image.fromarray(np.full((40, 56), 255, np.uint8)).save(picture)
    with monkeypatch.context() as patch:
        patch.setattr(BlockEngine, "_run", stopping)
        trust(status=130)
    picture = world / "data" / "images" / "case0000.png"
    Image.fromarray(np.zeros((40, 56), np.uint8)).save(picture)
    trust()
    assert entry()["made"] == 12, "the parts of the first and of the last image"
    trust("--out", "whole")
    assert rows().equals(rows("whole"))


def test_a_missing_and_an_unreadable_image_are_counted(world: Path) -> None:
    (world / "data" / "images" / "case0004.png").unlink()
    (world / "data" / "images" / "case0006.png").write_bytes(b"no image")
    trust()
    assert entry()["skipped"] == {"missing": 1, "unreadable": 1}
    assert [row["status"] for row in rows().to_pylist()].count("ok") == 10


def test_a_region_without_a_pixel_is_no_pair(world: Path) -> None:
    path = world / "data" / "annotations.json"
    document = json.loads(path.read_text())
    next(each for each in document["annotations"] if each["image_id"] == "case0004")["bbox"] = [500, 500, 4, 4]
    path.write_text(json.dumps(document))
    trust()
    assert entry()["skipped"] == {"no region": 1}


def test_only_some_findings_and_the_first_cases() -> None:
    trust("--finding", "Effusion", "--limit", 9)
    assert {(row["finding"], row["case_id"]) for row in rows().to_pylist()} == {
        ("Effusion", "case0000"),
        ("Effusion", "case0004"),
        ("Effusion", "case0008"),
    }
    assert "coco: drawn from the first 9 cases" in Path("trust/trust.txt").read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--finding", "Efusion"], "is not asked for 'Efusion' on coco: did you mean 'Effusion'?"),
        (["--probe", "repaet"], "Unknown probe 'repaet': did you mean 'repeat'?"),
        (["--dataset", "ccoo"], "did you mean 'coco'?"),
        (["--tf32"], "--tf32 is for engines on a GPU"),
        (["--gpu", "99"], "There is no GPU 99"),
        (["--data-option", "coco.prompts=coca"], "did you mean 'coco'?"),
        (["--limit", "1", "--finding", "Mass", "--out", "data"], "data exists and is no trust directory"),
    ],
)
def test_a_mistake_is_named(capsys: pytest.CaptureFixture[str], more: list[str], words: str) -> None:
    if "--tf32" in more:
        more = [*more, "--engine", "onnxruntime-cpu"]
    trust(*more, status=2 if more[0] in ("--probe", "--dataset", "--tf32", "--gpu", "--finding") else 1)
    assert words in capsys.readouterr().err


def test_a_bundle_without_the_prompts_is_an_error(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(world / "models" / "deaf-32", sets=("else",))
    with pytest.raises(SystemExit):
        main(["trust", "--model", "deaf-32", "--bundles", "models", "--data", "coco=data", "--engine", ENGINE])
    assert "the bundle has no prompt set 'coco' (it has: else)" in capsys.readouterr().err


def test_a_run_and_a_trust_directory_are_not_mixed(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trust()
    line = ["eval", "--model", "blocks-32", "--bundles", "models", "--data", "coco=data", "--engine", ENGINE]
    with pytest.raises(SystemExit):
        main([*line, "--out", "trust"])
    assert "trust exists and is no run directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", "trust"])
    assert "trust is no run directory" in capsys.readouterr().err


def test_a_damaged_record_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    trust()
    path = Path("trust/trust.json")
    path.write_text(path.read_text().replace('"made": 30', '"made": 31'))
    trust(status=1)
    assert "its checksum does not match" in capsys.readouterr().err
    path.unlink()
    trust()
    assert "finished before, reused" in capsys.readouterr().out


def _case(place: int, regions: int) -> Case:
    return Case(f"c{place}", Path(f"{place}.png"), {}, dict.fromkeys("ab"[:regions]), "", None)  # type: ignore[arg-type]


def test_more_pairs_add_cases_and_the_seed_chooses_others() -> None:
    cases = [_case(place, place % 3) for place in range(60)]
    few, many = (choose_cases(cases, "ab", count, 0) for count in (10, 30))
    assert sum(len(case.regions) for case in few) in (10, 11) and all(case.regions for case in many)
    assert {case.case_id for case in few} < {case.case_id for case in many}
    assert [case.case_id for case in many] == sorted((case.case_id for case in many), key=lambda name: int(name[1:]))
    assert choose_cases(cases, "ab", 10, 1) != few
    assert len(choose_cases(cases, "ab", 1000, 0)) == 40


@pytest.mark.parametrize("several", [False, True])
def test_variants_are_answered_as_the_engine_does(tmp_path: Path, several: bool) -> None:
    bundle = make_bundle(tmp_path / "asked", several=several)
    prompts = Bundle.load(bundle.path).prompt_set("coco")
    pixels = np.random.default_rng(0).integers(0, 255, (7, 1, 32, 32), dtype=np.uint8)
    passes: list[int] = []
    with BlockEngine(bundle) as engine:
        asked = AskedModel(engine, prompts, {"Mass": "Mass", "Effusion": "Effusion"}, 3, passes.append)
        found = asked.ask(pixels, ["Effusion", "Mass"])
        assert engine.calls == passes == [3, 3, 1]
    logits, maps = model(pixels, prompts.features)
    if not several:
        assert np.array_equal(found.logits, logits[:, [1, 0]]) and np.array_equal(found.maps, maps[:, [1, 0]])
        assert np.allclose(found.probabilities, 1 / (1 + np.exp(-found.logits.astype(np.float64))))
        return
    assert np.array_equal(found.maps[:, 1], maps[:, :2].astype(np.float64).mean(axis=1).astype(np.float32))
    pair = found.logits[:, 0].astype(np.float64) - logits[:, 4]
    assert np.allclose(found.probabilities[:, 0], 1 / (1 + np.exp(-pair)))


@pytest.mark.parametrize("several", [False, True])
def test_logits_are_those_of_the_scores_and_variants_are_taken_batch_by_batch(tmp_path: Path, several: bool) -> None:
    bundle = make_bundle(tmp_path / "asked", several=several)
    prompts = Bundle.load(bundle.path).prompt_set("coco")
    pixels = np.random.default_rng(0).integers(0, 255, (11, 1, 32, 32), dtype=np.uint8)
    passes, taken = list[int](), list[int]()
    with BlockEngine(bundle) as engine:
        asked = AskedModel(engine, prompts, {"Mass": "Mass", "Effusion": "Effusion"}, 3, passes.append)

        def blocks() -> Iterator[NDArray[np.uint8]]:
            start = 0
            for length in (1, 0, 7, 2, 1):
                taken.append(sum(passes))
                yield pixels[start : start + length, 0]
                start += length

        found = asked.ask_logits(blocks(), ["Effusion", "Mass"])
        assert engine.calls == passes == [3, 3, 3, 2], "batches are full but for the last"
        assert taken[:3] == [0, 0, 0] and min(taken[3:]) >= 3, "what is not needed yet is not made"
        expected = asked.ask(pixels, ["Effusion", "Mass"])
    assert np.array_equal(found.logits, expected.logits)
    assert np.array_equal(found.probabilities, expected.probabilities)


def test_what_fails_while_variants_are_made_or_computed_is_raised(tmp_path: Path) -> None:
    prompts = Bundle.load(make_bundle(tmp_path / "asked").path).prompt_set("coco")
    with BlockEngine(Bundle.load(tmp_path / "asked")) as engine:
        asked = AskedModel(engine, prompts, {"Mass": "Mass"}, 3)

        def broken() -> Iterator[NDArray[np.uint8]]:
            yield np.zeros((4, 32, 32), np.uint8)
            raise ValueError("no more variants")

        with pytest.raises(ValueError, match="no more variants"):
            asked.ask_logits(broken(), ["Mass"])
        with pytest.raises(EngineError, match="takes pixels"):
            asked.ask_logits([np.zeros((9, 16, 16), np.uint8)], ["Mass"])


def test_an_engine_is_opened_for_each_way_that_probes_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[bool]()

    def recorded(*inputs: Any, options: EngineOptions, **more: Any) -> Any:
        opened.append(options.throughput)
        return open_engine(*inputs, options=options, **more)

    def chosen(probe: Any, engine: str, grid: Any, pairs: int, batch: int, threads: int) -> tuple[str, bool]:
        assert (grid, pairs, batch, threads) == ((4, 4), 3, 5, 1)
        return engine, probe.name != "repeat"

    monkeypatch.setattr(running, "open_engine", recorded)
    monkeypatch.setattr(running, "engine_for", chosen)
    trust("--probe", "deletion", "--probe", "region", "--pairs", 3, "--batch", 5)
    assert opened == [False, True]


def test_a_package_that_is_missing_stops_one_probe_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    trust("--probe", "randomisation", status=1)
    found = json.loads(Path("trust/trust.json").read_text())["cells"]
    assert {cell["probe"]: cell["state"] for cell in found.values()} == {"repeat": "done", "randomisation": "failed"}
    said = capsys.readouterr()
    assert (
        "blocks-32 on coco, randomisation: A change of weights needs onnx, which is not installed; install" in said.err
    )
    assert "the same image gave the same bits twice" in said.out


def test_an_error_of_foreign_code_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(self: BlockEngine, *inputs: Any) -> Any:
        raise ValueError("a fault of its own")

    trust()
    with monkeypatch.context() as patch:
        patch.setattr(BlockEngine, "_run", failing)
        trust("--seed", 1, status=1)
    said = capsys.readouterr().err
    assert "unexpected ValueError: a fault of its own (details in trust/errors/blocks-32--coco.txt)" in said
    assert "Traceback" in Path("trust/errors/blocks-32--coco.txt").read_text() and "Traceback" not in said
    trust()


def test_images_that_are_asked_their_own_phrases_are_refused(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_ms_cxr(world / "data")
    with pytest.raises(SystemExit):
        main(["trust", "--model", "blocks-32", "--bundles", "models", "--data", "mscxr=data", "--engine", ENGINE])
    assert "The dataset 'mscxr' asks each image its own phrases; trust takes datasets with" in capsys.readouterr().err


def test_a_finished_result_outlives_a_run_without_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trust()
    monkeypatch.setattr(running, "choose_cases", lambda *_: [])
    trust(status=1)
    assert "No case of coco has a region of Mass, Effusion; raise --limit or" in capsys.readouterr().err
    assert entry()["state"] == "done"
    trust("--out", "new", status=1)
    assert entry("new")["state"] == "failed"


def test_a_value_that_is_not_known_is_null() -> None:
    rows = [{"case_id": "a", "value": float("nan")}, {"case_id": "b", "value": np.float32(0.5)}, {"case_id": "c"}]
    table = rows_as_table({"value": "float64"}, rows, "key")
    assert table["value"].to_pylist() == [None, 0.5, None] and table["finding"].null_count == 3


def test_separators_in_names_do_not_mix_entries(tmp_path: Path) -> None:
    pairs = [("k", "x--y"), ("k--x", "y")]
    with TrustDirectory(tmp_path / "trust") as folder:
        folder.begin({})
        for model, dataset in pairs:
            folder.record({"model": model, "dataset": dataset, "probe": "repeat", "state": "failed", "reason": model})
        assert [folder.entry(*pair, "repeat")["reason"] for pair in pairs] == ["k", "k--x"]


def test_keys_of_earlier_versions_are_read(tmp_path: Path) -> None:
    with TrustDirectory(tmp_path / "trust") as folder:
        folder.begin({})
        folder.record({"model": "k--x", "dataset": "y", "probe": "repeat", "state": "failed", "reason": "it broke"})
    path = tmp_path / "trust" / "trust.json"
    data = json.loads(path.read_text())
    data["cells"] = {"k--x--y--repeat": next(iter(data["cells"].values()))}
    path.write_text(json.dumps(data | {CHECKSUM: checksum_of({k: v for k, v in data.items() if k != CHECKSUM})}))
    with TrustDirectory(tmp_path / "trust") as folder:
        assert folder.entry("k--x", "y", "repeat")["reason"] == "it broke"
