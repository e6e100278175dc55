"""The probe `prompts` on a model whose maps show where pixels have the grey level of the prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score
from synthetic import GRID, SIZE, BlockEngine, make_bundle, make_dataset
from xbench_fast.engines.base import Engine, EngineInfo, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.trust.probes.asking import AskedModel
from xbench_fast.runtime.trust.probes.directory import rows_as_table
from xbench_fast.runtime.trust.probes.judging import judged
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage
from xbench_fast.runtime.trust.probes.prompted import PromptsProbe

PROBE = PromptsProbe(ProbeOptions())
LEVELS = {"Mass": 150, "Effusion": 50, "Unicorn": 200}
BLOCK = SIZE // GRID


class Levels(Engine):
    """Shows in each cell how many pixels have the level 100 + 50 text[0]; `share`: of the other queries' maps that is
    added; `fixed`: the same map for every prompt; `dead`: none; `whole`: it does not fall apart."""

    share, fixed, dead, whole = 0.0, False, False, False

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.encoded: list[int] = []

    def _open(self) -> EngineInfo:
        return EngineInfo("numpy", "cpu", "fp32", "test")

    def _run(self, pixels: Any, text: Any) -> Scores:
        levels = np.full(len(text), 150) if self.fixed else 100 + 50 * text[:, 0]
        same = (pixels == levels[None, :, None, None]).astype(np.float32)
        maps = same.reshape(len(pixels), len(text), GRID, BLOCK, GRID, BLOCK).sum(axis=(3, 5))
        maps = maps + np.float32(self.share) * maps.mean(axis=1, keepdims=True) if self.share else maps
        maps = np.zeros_like(maps) if self.dead else maps + np.linspace(0, 0.1, GRID, dtype=np.float32)
        return Scores(maps.mean(axis=(2, 3)), maps)

    def _encode(self, pixels: Any) -> Any:
        self.encoded.append(len(pixels))
        return "it is told to" if self.whole else pixels

    def _ask(self, part: Any, text: Any) -> Scores:
        return self._run(part, text)

    def _close(self) -> None:
        pass


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "models" / "levels-32")


@pytest.fixture
def engine(bundle: Bundle) -> Iterator[Levels]:
    with Levels(bundle) as opened:
        yield opened


def asked(engine: Engine, *names: str, passes: list[int] | None = None, only: str = "") -> AskedModel:
    prompts = engine.bundle.prompt_set("coco")
    count = (lambda _: None) if passes is None else passes.append
    return AskedModel(
        engine, prompts.only(only) if only else prompts, {name: name for name in names or LEVELS}, 8, count
    )


def image(case: str, *findings: str, seed: int = 0) -> PreparedImage:
    """Noise, and a bright square for each finding at its level; regions are a little off the squares."""
    rng = np.random.default_rng([seed, len(case)])
    pixels = rng.integers(0, 256, (SIZE, SIZE), np.uint8)
    regions = np.zeros((len(findings), 224, 224), np.bool_)
    for place, name in enumerate(findings):
        top, left = rng.integers(0, 16, 2) + 16 * np.array(divmod(place, 2))
        pixels[top : top + 12, left : left + 12] = LEVELS[name]
        regions[place, 7 * top : 7 * top + 84, 7 * left : 7 * left + 70] = True
    return PreparedImage(case, f"p{case}", None, pixels[None], findings, regions, (0.0, 0.0, 1.0, 1.0))


def rows_of(model: AskedModel, images: list[PreparedImage]) -> list[dict[str, Any]]:
    return [row for one in images for row in PROBE.rows(one, model)]


def judgement(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    found = PROBE.judge(rows_as_table(PROBE.columns, rows, "key"), cast(Bundle, None))
    return judged(found.questions), found


def many(count: int, *findings: str) -> list[PreparedImage]:
    return [image("x" * (1 + at), *(findings or ("Mass", "Effusion"))) for at in range(count)]


def scores(saliency: Any, region: Any) -> tuple[float, float, float]:
    scaled = scaled_map(saliency).ravel()
    return (
        average_precision_score(region.ravel(), scaled),
        roc_auc_score(region.ravel(), scaled),
        float(region.ravel()[scaled.argmax()]),
    )


def test_every_other_finding_of_the_set_is_scored_in_one_pass(engine: Levels) -> None:
    """Also those that are absent, that are no class of the dataset, and that --finding leaves out."""
    passes: list[int] = []
    model, one = asked(engine, "Mass", passes=passes), image("a", "Mass")
    (row,) = PROBE.rows(one, model)
    assert passes == [1] and (row["others"], row["other_prompts"]) == (2, "coco")
    assert not engine.encoded, "for one question nothing is kept"
    maps = engine.run(one.pixels[None], model.prompts.features).saliency[0]
    own, *others = [scores(each, one.regions[0]) for each in maps]
    names = ("average_precision", "roc_auc", "pointing")
    assert [row[name] for name in names] == pytest.approx(own)
    assert [row[f"other_{name}"] for name in names] == pytest.approx(np.mean(others, axis=0))
    alike = [spearmanr(maps[0].ravel(), each.ravel()).statistic for each in maps[1:]]
    assert row["spearman"] == pytest.approx(np.mean(alike)) and not row["degenerate"]
    assert row["average_precision"] > 0.8 > row["other_average_precision"] and "alone_distance" not in row
    assert PROBE.passes(1, (4, 4), 3) == 2 and PROBE.passes(4, (4, 4), 3) == 5 and PROBE.passes(4, (4, 4), 1) == 2


def test_maps_are_scored_where_they_lie(engine: Levels) -> None:
    whole = image("a", "Mass")
    half = PreparedImage("a", "p", None, whole.pixels, ("Mass",), whole.regions, (0.0, 0.5, 1.0, 1.0))
    (seen,), (row,) = PROBE.rows(whole, asked(engine)), PROBE.rows(half, asked(engine))
    assert seen["average_precision"] != row["average_precision"] and seen["spearman"] == row["spearman"]


def test_maps_that_answer_pass_and_one_that_does_not_look_fails(engine: Levels) -> None:
    (record,), found = judgement(rows_of(asked(engine), many(12)))
    assert (record["question"], record["line"], record["verdict"]) == ("prompts_average_precision", 3, "pass")
    assert record["text"].startswith("answers the prompt") and record["family"] == 1 and record["value"] > 0.3
    facts = found.facts
    assert record["value"] == pytest.approx(facts["average_precision"]["own"] - facts["average_precision"]["other"])
    assert facts["roc_auc"]["p"] < 0.05 and facts["roc_auc"]["value"] > 0 and facts["others"] == 2
    assert facts["alone"] == {"pairs": 0, "moved": None, "distance": None, "spearman": None}
    told = [note.partition(":")[0] for note in found.notes]
    assert told == [
        "prompts, ROC AUC, own - other findings",
        "prompts, pointing, own - other findings",
        "prompts, rank correlation of the map with those of other findings",
    ]
    assert ", uncorrected p " in found.notes[0] and " p " not in found.notes[2]
    engine.fixed = True
    (record,), found = judgement(rows_of(asked(engine), many(12)))
    assert record["value"] == 0 and record["word"] == "fail" and found.facts["spearman"]["value"] == 1


def test_means_are_over_findings_first(engine: Levels) -> None:
    rows = rows_of(asked(engine), [*many(9, "Mass"), *many(3, "Effusion")])
    (record,), found = judgement(rows)
    gaps: dict[str, list[float]] = {"Mass": [], "Effusion": []}
    for row in rows:
        gaps[row["finding"]].append(row["average_precision"] - row["other_average_precision"])
    assert record["value"] == pytest.approx(np.mean([np.mean(each) for each in gaps.values()]))
    own = [np.mean([row["pointing"] for row in rows if row["finding"] == name]) for name in gaps]
    assert found.facts["pointing"]["own"] == pytest.approx(np.mean(own))


def test_queries_that_see_one_another_are_asked_alone_too(engine: Levels) -> None:
    assert not asked(engine).queries_meet
    engine.share = 3.0
    passes: list[int] = []
    model, two = asked(engine, passes=passes), image("a", "Mass", "Effusion")
    assert model.queries_meet and not passes
    rows = PROBE.rows(two, model)
    assert passes == [1, 1, 1] and engine.encoded == [1], "the image part runs once for three prompt sets"
    apart, engine.whole = rows, True
    assert PROBE.rows(two, model) == apart
    within = engine.run(two.pixels[None], model.prompts.features).saliency[0]
    moved = []
    for place, row in enumerate(rows):
        alone = engine.run(two.pixels[None], model.prompts.features[[place]]).saliency[0, 0]
        assert row["alone_spearman"] == pytest.approx(spearmanr(within[place].ravel(), alone.ravel()).statistic)
        first, second = (np.array(divmod(scaled_map(each).argmax(), 224)) for each in (within[place], alone))
        assert row["alone_distance"] == pytest.approx(np.hypot(*(first - second)))
        moved.append(row["alone_distance"])
    found = judgement(rows_of(model, many(12)))[1]
    rows = rows_of(model, many(12))
    moved = [row["alone_distance"] for row in rows]
    alone = found.facts["alone"]
    assert alone["pairs"] == 24 and 0 < alone["moved"] == np.mean(np.array(moved) > 0) < 1
    assert alone["distance"] == np.median([each for each in moved if each])
    assert "Queries see one another: maps are a property of the prompt set" in found.notes[-1]


def test_a_set_of_one_finding_takes_the_other_prompts_of_the_bundle(tmp_path: Path) -> None:
    both = make_bundle(tmp_path / "both", sets=("coco", "other"), findings=("mass", "Effusion"))
    passes: list[int] = []
    with Levels(both) as engine:
        engine.share = 3.0
        prompts = engine.bundle.prompt_set("coco").only("mass")
        model = AskedModel(engine, prompts, {"Mass": "mass"}, 8, passes.append)
        (row,) = PROBE.rows(image("a", "Mass"), model)
        assert passes == [1, 1] and (row["others"], row["other_prompts"]) == (2, "coco") and engine.encoded == [1]
        maps = engine.run(image("a", "Mass").pixels[None], engine.bundle.prompt_set("coco").features).saliency[0]
        region = image("a", "Mass").regions[0]
        wanted = np.mean([scores(each, region)[0] for each in maps[1:]])
        assert row["other_average_precision"] == pytest.approx(wanted), "without the own finding of that set"


def test_a_bundle_without_another_finding_says_so(tmp_path: Path) -> None:
    alone = make_bundle(tmp_path / "alone")
    record = alone.manifest.prompt_sets["coco"]
    object.__setattr__(record, "findings", ("Mass", "mass", "MASS"))
    with Levels(alone) as engine:
        model = AskedModel(engine, alone.prompt_set("coco").only("Mass"), {"Mass": "Mass"}, 8)
        records, found = judgement(rows_of(model, many(2, "Mass")))
    assert records == [] and found.notes == ["prompts: no prompt set of the bundle has another finding"]


def test_dead_maps_void_the_test_and_no_row_asks_nothing(engine: Levels) -> None:
    engine.dead = True
    (record,), found = judgement(rows_of(asked(engine), many(12, "Mass")))
    assert record["verdict"] == "void (12 of 12 maps are degenerate)"
    assert found.facts["spearman"]["left_out"] == {"undefined": 12} and "no pair can be compared" in found.notes[-1]
    assert PROBE.judge(rows_as_table(PROBE.columns, [], "key"), cast(Bundle, None)).questions == ()


def test_the_command_prints_and_keeps_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models" / "blocks-32")
    make_dataset(tmp_path / "data")
    line = [
        "trust",
        "--model",
        "blocks-32",
        "--bundles",
        "models",
        "--data",
        "coco=data",
        "--engine",
        "synthetic:BlockEngine",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*line, "--threads", "1", "--probe", "prompts"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "12 pairs of 10 images, at most 22 forward passes" in said and "10 passes in" in said
    (entry,) = json.loads(Path("trust/trust.json").read_text())["cells"].values()
    assert entry["questions"][0]["line"] == 3 and entry["made"] == 10 and BlockEngine.__name__
    assert "answers the prompt" in said and "prompts, ROC AUC" in said
