"""Evaluations and runs from Python: live models, tables, comparisons, and the errors of the command line."""

from __future__ import annotations

import csv
import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xbench_fast as xb
from rich.console import Console
from synthetic import CLASSES, SIZE, make_bundle, make_dataset, model, prompt_set
from xbench_fast.options import ReportOptions
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.evaluation.progress import NotebookProgress, progress_for
from xbench_fast.runtime.results.choices import Choices

GEOMETRY = xb.Geometry("squash", SIZE, SIZE, "bilinear")
QUICK: Any = {"replicates": 40}


def student(pixels: Any, findings: list[str]) -> tuple[Any, Any]:
    return model(pixels, prompt_set().features[[prompt_set().findings.index(name) for name in findings]])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("api") / "data", 20, missing=(4,))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> xb.Run:
    models = [student, "baseline:ones", "baseline:chance"]
    out = tmp_path_factory.mktemp("api") / "run"
    return xb.evaluate(models, "coco", data, out=out, geometry=GEOMETRY, batch=4, progress=False)


def test_a_live_model_says_that_no_bundle_stands_behind_it(run: xb.Run) -> None:
    assert run.models == ("student", "baseline:ones", "baseline:chance") and run.datasets == ("coco",)
    assert "student: a model called from Python: no bundle stands behind these numbers" in run.notes


def test_rows_are_one_per_image_and_finding(run: xb.Run) -> None:
    rows = run.rows()
    assert len(rows) == 3 * 20 * 2
    mine = rows[rows.model == "student"].reset_index(drop=True)
    assert list(mine.finding[:2]) == list(CLASSES) and mine.status.value_counts().to_dict() == {"ok": 38, "missing": 2}
    first = mine.iloc[0]
    assert (first.case_id, first.label, first.region_area > 0) == ("case0000", 1, True)
    assert first.area.shape == first.overlap.shape == (101,) and first.area[0] == 224 * 224
    assert mine.logit.notna().sum() == 38 and mine.area.notna().sum() == mine.hit.notna().sum()


def test_tables_have_the_numbers_of_the_report(run: xb.Run, tmp_path: Path) -> None:
    table = run.table("grounding", **QUICK)
    assert list(table.columns) == ["model", "dataset", "finding", "metric", "value", "low", "high", "n", "protocol"]
    folder = xb.report(run, tmp_path / "report", page=False, **QUICK)
    assert folder == tmp_path / "report" and not (run.path / "report").exists()
    with (folder / "table1.csv").open() as file:
        written = {row["model"]: row for row in csv.DictReader(file)}
    for row in table.itertuples():
        if row.metric in ("pointing", "dice_best", "iou_fixed"):
            for column in ("value", "low", "high"):
                text = written[row.model][f"{row.metric}_{'percent' if column == 'value' else column}"]
                value = float(text) if text else math.nan
                assert 100 * getattr(row, column) == pytest.approx(value, abs=1e-12, nan_ok=True)
            assert row.n == int(written[row.model]["n"])
    gain = table[table.metric == "delta_dice"].set_index("model").value
    assert 100 * gain["student"] == pytest.approx(float(written["student"]["delta_dice_points"]))


def test_every_table_is_tidy(run: xb.Run) -> None:
    numbers = ["value", "low", "high", "n"]
    for name in ("grounding", "classes", "recognition", "differences", "coverage"):
        table = run.table(name, **QUICK)
        assert isinstance(table, pd.DataFrame) and set(numbers) <= set(table.columns), name
        assert table[numbers[:3]].dtypes.eq("float64").all() and table.n.dtype == "int64", name
    classes = run.table("classes", **QUICK)
    assert set(classes.finding) == set(CLASSES) and "best_threshold" in set(classes.metric)
    whole = run.table("recognition", **QUICK).set_index("metric")
    auc = classes[(classes.model == "student") & (classes.metric == "auc")]
    assert whole.value["auc"] == pytest.approx(auc.value.mean()) and set(whole.model) == {"student"}
    coverage = run.table("coverage").set_index(["model", "metric"])
    assert coverage.value["student", "missing"] == 1 and coverage.state["student", "missing"] == "done"
    inside = table_row(run.table(**QUICK), "student", "dice_cross_fitted")
    assert inside.value <= table_row(run.table(**QUICK), "student", "dice_best").value
    assert run.table(replicates=0).low.isna().all()


def table_row(table: pd.DataFrame, model: str, metric: str) -> Any:
    return table[(table.model == model) & (table.metric == metric)].iloc[0]


def test_a_training_loop(data: Path, tmp_path: Path) -> None:
    """One run for all epochs: earlier ones are kept, differences between them are tested, a version is reused."""
    gains = [1.0, 2.0]
    radiographs, calls = xb.load_dataset("mine", data, reader="coco", title="Mine"), []

    def epoch(gain: float) -> Callable[..., Any]:
        def function(pixels: Any, findings: list[str]) -> tuple[Any, Any]:
            calls.append(len(pixels))
            logits, saliency = student(pixels, findings)
            return gain * logits, saliency ** np.float32(gain)

        return function

    common: Any = {"out": tmp_path / "run", "geometry": GEOMETRY, "cache": tmp_path / "prepared", "progress": False}
    for number, gain in enumerate(gains):
        run = xb.evaluate(epoch(gain), radiographs, name=f"epoch-{number}", version="1", **common)
    assert run.models == ("epoch-1", "epoch-0") and len(run.rows()) == 2 * 40
    table = run.table("differences", **QUICK)
    assert {"model", "other", "p", "p_bound", "p_holm", "family"} <= set(table.columns) and len(
        table[table.metric == "pointing"]
    ) == 1
    calls.clear()
    xb.evaluate(epoch(1.0), radiographs, name="epoch-0", version="1", **common)
    assert calls == [1]  # only the black image that tells the grid
    changes = xb.compare(run, models=("epoch-0", "epoch-1"), replicates=40).table()
    dice = changes[(changes.metric == "dice_fixed") & (changes.finding == "")].iloc[0]
    assert dice.value == pytest.approx(dice.b - dice.a) and dice.low <= dice.value <= dice.high and dice.p is not None


def test_two_runs_are_compared(run: xb.Run, data: Path, tmp_path: Path) -> None:
    again = xb.evaluate("baseline:ones", "coco", data, out=tmp_path / "again", progress=False)
    found = xb.compare(run.path, again, datasets=["coco"], replicates=20)
    assert (found.table().value == 0).all() and found.missing_rows == 38 + 40  # of the other two models
    with pytest.raises(xb.XBenchError, match="Give a second run, or models="):
        xb.compare(run)


def sentence(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line prints as its error."""
    with pytest.raises(SystemExit):
        main(arguments)
    text = capsys.readouterr().err
    return text[text.index("Error: ") + len("Error: ") :].strip()


def test_errors_are_those_of_the_command_line(
    run: xb.Run, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toml, coco = tmp_path / "wrong.toml", ("coco", data)
    toml.write_text("batch = 3\n")
    empty = make_dataset(tmp_path / "empty", 2, missing=(0, 1))
    bundle = make_bundle(tmp_path / "blocks-32").path
    cpu: Any = {"engine": "onnxruntime-cpu"}
    here, ones = f"eval --data coco={data} --dataset coco", "--model baseline:ones"
    with_cpu = f"--model {bundle} --engine onnxruntime-cpu"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: xb.evaluate("baseline:zeros", *coco), f"{here} --model baseline:zeros"),
        (lambda: xb.evaluate("kad-224", *coco), f"{here} --model kad-224"),
        (lambda: xb.evaluate("maps:none", *coco), f"{here} --model maps:none"),
        (lambda: xb.evaluate("baseline:ones", "rsna"), f"eval --dataset rsna {ones}"),
        (lambda: xb.evaluate("baseline:ones"), f"eval {ones}"),
        (lambda: xb.evaluate("baseline:ones", *coco, protocol="mine"), f"{here} {ones} --protocol mine"),
        (lambda: xb.evaluate(bundle, *coco, engine="tensor"), f"{here} --model {bundle} --engine tensor"),
        (lambda: xb.evaluate(bundle, *coco, tf32=True, **cpu), f"{here} {with_cpu} --tf32"),
        (lambda: xb.evaluate(bundle, *coco, gpu=99), f"{here} --model {bundle} --gpu 99"),
        (lambda: xb.evaluate("baseline:ones", *coco, out=data), f"{here} {ones} --out {data}"),
        (lambda: xb.evaluate(config=toml), f"eval --all --config {toml}"),
        (lambda: xb.evaluate(config="absent.toml"), "eval --all --config absent.toml"),
        (
            lambda: xb.evaluate(bundle, "coco", empty, out="a", **cpu),
            f"eval --data coco={empty} --dataset coco {with_cpu} --out b",
        ),
        (
            lambda: xb.evaluate("baseline:ones", *coco, out="c", data_options={"coco": {"titel": "x"}}),
            f"{here} {ones} --out d --data-option coco.titel=x",
        ),
        (lambda: xb.load_run("absent"), "report absent"),
        (lambda: run.table(tolerance_px=-1.0), f"report {run.path} --tolerance-px -1"),
        (lambda: xb.report(run, ties="any", tolerance_px=3), f"report {run.path} --ties any --tolerance-px 3"),
        (lambda: xb.compare(run, run, models=("a", "b")), f"compare {run.path} {run.path} --model a --model b"),
        (lambda: xb.compare(run, run, datasets=["x"]), f"compare {run.path} {run.path} --dataset x"),
    ]
    for call, arguments in cases:
        with pytest.raises(xb.XBenchError) as told:
            call()
        assert str(told.value) == sentence(capsys, *shlex.split(arguments)), arguments


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bacth": 3}, "evaluate has no option 'bacth': did you mean 'batch'"),
        ({"batch": 0}, "'batch' of evaluate must be at least 1, not 0"),
        ({"batch": "many"}, "The option 'batch' of evaluate is a whole number or None, not 'many'"),
        ({"threads": True}, "'threads' of evaluate is a whole number or None, not True"),
        ({"gpu": -1}, "'gpu' of evaluate must be at least 0, not -1"),
        ({"cache": True}, "'cache' of evaluate is a text or a path or False or None, not True"),
        ({"cache_limit": "much"}, "cache_limit must be an amount of data"),
        ({"data_options": {"rsna": {}}}, "there is no dataset 'rsna'"),
        ({"prompts": ["a", 3]}, r"'prompts' of evaluate is a text or a list of texts or None, not \['a', 3\]"),
        ({"bundles": [3]}, r"'bundles' of evaluate is a text or a path or a list of paths or None, not \[3\]"),
        ({"data_options": {"coco": {"prompts": [None]}}}, "'coco' must be a text or a list of texts, not"),
        ({"data_options": {"coco": {"augment": []}}}, "'coco' must be a text or a list of texts, not"),
        ({"version": "1"}, "'version' is for a live model, and no callable was given"),
    ],
)
def test_options_are_checked(data: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(xb.XBenchError, match=message):
        xb.evaluate("baseline:ones", "coco", data, **given)


def test_what_contradicts_itself_is_refused(data: Path, run: xb.Run, tmp_path: Path) -> None:
    for arguments, options, message in (
        ((student, "coco", data), {}, "needs the option geometry"),
        (([student, student], "coco", data), {"geometry": GEOMETRY}, "Two callables were given"),
        (
            ([student, "baseline:ones"], "coco", data),
            {"geometry": GEOMETRY, "name": "baseline:ones"},
            "cannot be called",
        ),
        ((("baseline:ones"), ["coco"], [data, data]), {}, "1 datasets and 2 folders were given"),
        (([], "coco", data), {}, "The list of models is empty"),
    ):
        with pytest.raises(xb.XBenchError, match=message):
            xb.evaluate(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(xb.XBenchError, match="--decoder dali decodes into the cache, once for all models"):
        xb.evaluate(student, "coco", data, geometry=GEOMETRY, out=tmp_path, cache=False, decoder="dali")
    with pytest.raises(xb.XBenchError, match="There is no table 'grouding': did you mean 'grounding'"):
        run.table("grouding")  # type: ignore[arg-type]
    with pytest.raises(xb.XBenchError, match="table has no option 'replicate': did you mean 'replicates'"):
        run.table(replicate=3)  # type: ignore[call-arg]


def test_a_run_without_a_result_says_why(data: Path, tmp_path: Path) -> None:
    def broken(pixels: Any, findings: list[str]) -> tuple[Any, Any]:
        raise RuntimeError("no memory")

    with pytest.raises(xb.XBenchError, match=r"broken on coco: unexpected RuntimeError: no memory \(details in "):
        xb.evaluate(broken, "coco", data, out=tmp_path, geometry=GEOMETRY, progress=False)
    run = xb.load_run(tmp_path)
    assert run.table("coverage").state[0].startswith("failed: unexpected RuntimeError")
    assert run.table("grounding").empty and list(run.table("classes").columns)[-2:] == ["n", "protocol"]
    with pytest.raises(xb.XBenchError, match="has no finished result"):
        run.rows()


def test_a_mistake_of_the_callable_is_one_sentence(data: Path, tmp_path: Path) -> None:
    def wrong(pixels: Any, findings: list[str]) -> tuple[Any, Any]:
        return student(pixels, findings)[0], np.zeros((len(pixels), 4, 4), np.float32)

    with pytest.raises(xb.XBenchError) as told:
        xb.evaluate(wrong, "coco", data, out=tmp_path, geometry=GEOMETRY, progress=False)
    assert str(told.value) == (
        "wrong on coco: wrong returned logits [1, 2] and saliency [1, 4, 4] for 1 image and 2 findings; they must be "
        "[1, 2] and [1, 2, h, w]."
    )


def test_choices_of_tables_are_those_of_the_report() -> None:
    assert set(ReportOptions.__annotations__) == set(Choices.__dataclass_fields__)


def test_progress_in_a_notebook_needs_no_widgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        shown.append(html)
        return Handle()

    fake: Any = ModuleType("IPython.display")
    fake.display, fake.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    times = iter(range(100))
    progress = NotebookProgress(clock=lambda: float(next(times)))
    progress.say("a line")
    with progress.cell("student & co on coco", 20) as advance:
        advance(16)
        advance(4, 3)
    assert capsys.readouterr().out == "a line\n"
    assert isinstance(progress_for(Console(force_jupyter=True)), NotebookProgress)
    assert shown[0].startswith("student &amp; co on coco <progress value=0 max=20>")
    assert shown[1].endswith("16 of 20 4.0/s, 1 s to go") and "20 of 20, 3 failed" in shown[2] and shown[-1] == ""
