"""Figures that README and docs quote are those of the committed results, and no other figure claims to be measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest


@pytest.fixture(scope="module")
def results(root: Path) -> dict[str, Any]:
    """Name -> committed result."""
    files = (root / "benchmarks" / "results").glob("*-cpu.json")
    return {path.stem.removesuffix("-cpu"): json.loads(path.read_text(encoding="utf-8")) for path in files}


def rows_of_performance(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What begins each row of the table of speeds, and its last cell."""
    (grid,) = results["grid"]["rows"]
    whole = (f"{grid[kind]['seconds_if_all_cores_were_busy']:,} s" for kind in ("from_files", "prepared"))
    yield "the paper's whole grid", "{} from files, {} from prepared images".format(*whole)
    compared = results["grid-compared"]["rows"][-1]
    yield "the same grid in INT8", f"{compared['int8_times_less_cpu']} × less CPU time"
    yield f"the same grid with {compared['sets']} prompt sets", f"{compared['sets_times_the_cpu']} × the CPU time"
    sweep, ways = results["sweep"], results["sweep"]["us_per_pair"]
    floor = f"{100 * sweep['fraction_of_floor']:.0f} % of the stated floor of {sweep['floor_us']:.0f} µs"
    yield "sweep, 14 × 14", f"{ways['logical loop']['sweep_times_faster']:.0f} ×, {floor}"
    yield "sweep, the same", f"{ways['Numba loop']['sweep_times_faster']} ×"
    found = results["evaluate"]
    yield "`eval`, KAD-224, 10 findings,", f"{found['ratio_first_run']:.1f} ×"
    yield "the same with prepared images", f"{found['ratio_prepared']:.1f} ×"
    yield "`eval`, KAD-224 in INT8", f"{results['int8']['end_to_end']['ratio']:.2f} ×"
    found, locked = results["host-loop"], results["host-loop"]["under_the_lock_us"]
    speed = f"{found['wall_us']['times_faster']:.2f} ×; {found['cpu_us']['times_faster']:.2f} × less CPU time"
    lock = f"{locked['16']['median']:.0f} µs an image under the interpreter lock"
    yield "`eval` around an engine", f"{speed}; {lock}, {locked['256']['median']:.0f} µs in batches of 256"
    for name, title in (("png", "preparing 1024² PNG"), ("dicom", "preparing RSNA DICOM")):
        found = results["prepare"][name]
        yield title, f"{found['prepare_times_faster']:.1f} ×"
        ways = [way for way in ("opencv_pool", "pillow_pool") if f"{way}_ms" in found]
        faster = "; ".join(f"{found[f'prepare_times_faster_than_{way}']} ×" for way in ways)
        less = "; ".join(f"{found[f'prepare_times_less_cpu_than_{way}']} ×" for way in ways)
        yield "the same against careful code", f"{faster} (CPU time: {less})"
    yield "1,000 patient-level bootstrap replicates", f"{results['bootstrap']['together_s']:.1f} s"
    yield "`report`, 7 models", f"{results['report']['together_s']:.1f} s"
    added = results["own-metrics"]["ratio"]
    yield (
        "the same with a metric of one's own",
        "; ".join(f"{added[kind]:.2f} ×" for kind in ("counts", "levels", "maps")),
    )
    found, papers = results["calibration"]["14 findings"], results["calibration"]["7 datasets"]
    maps = 7 * papers["pairs_per_model"]
    yield "`study calibration`", f"{found['cpu_s']} s; the paper's 7 datasets, {maps:,} maps: {papers['cpu_s']} s"
    cost = results["box-lines"]["lines"]["100000"]["together"]
    spent = f"{cost['wall_s']} s, {cost['cpu_s']} s of CPU time, {cost['peak_mb'] / 1000:.2f} GB"
    yield "`eval` and `report` of 100,000 lines", spent
    found = results["serve-pytriton"]
    less = f"{found['ratio_of_server_cpu_per_request']} × less CPU time a request"
    yield "`serve`, a model that does nothing", f"{found['ratio_of_requests_per_s']} × the requests a second, {less}"
    ray = results["ray"]
    plain, its = (ray[f"{side}_seconds_per_1000_cases"] for side in ("plain", "ray"))
    start = ray["import_ray_seconds"] + ray["start_cluster_seconds"] + ray["seconds_to_the_first_chunk"]
    ratio = f"{its / plain:.2f} × its time: {its:.2f} s against {plain:.2f} s, after a start of {start:.0f} s"
    yield "`eval --cluster local`", ratio
    yield "`serve`, demo model", f"{results['serve-batching']['batching']['ratio']:.2f} ×"


def test_every_row_of_the_page(root: Path, results: dict[str, Any]) -> None:
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    table = text[text.index("| what | against | ratio |") :].split("\n\n")[0].splitlines()[2:]
    wanted = list(rows_of_performance(results))
    assert [(line.split(" | ")[0][2:][: len(start)], line.split(" | ")[-1].removesuffix(" |"))
            for line, (start, _) in zip(table, wanted, strict=True)] == wanted  # fmt: skip


def test_the_grid_by_model(root: Path, results: dict[str, Any]) -> None:
    compared = results["grid-compared"]["rows"][-1]
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    table = text[text.index("| model | float32 | INT8") :].split("\n\n")[0].splitlines()[2:]
    assert table == [
        f"| {model} | {found['cpu_seconds']['fp32']:,} s | {found['int8_times_less_cpu']:.2f} × "
        f"| {found['verdict']['hits_flipped']} of {found['verdict']['pairs']}, {found['verdict']['dice_change']:.3f} "
        f"| {found['sets_times_the_cpu']:.2f} × |"
        for model, found in compared["models"].items()
    ]
    assert f"load {compared['load_average_before']})" in text and f"and {compared['sets']} prompt sets compare" in text


def test_the_readme_repeats_five_rows(root: Path, results: dict[str, Any]) -> None:
    """The ratios of README are those of the committed results."""
    text = (root / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| measured on two cores") :].split("\n\n")[0].splitlines()[2:]
    ratios = {row.split(" | ")[0]: row.split(" | ")[-1].removesuffix(" |") for row in table}
    loop, pytriton = results["sweep"]["us_per_pair"]["Numba loop"], results["serve-pytriton"]
    first = results["evaluate"]
    assert ratios == {
        f"| `eval`, KAD-224, {first['images']} radiographs, first run": f"{first['ratio_first_run']:.1f} ×",
        "| sweep of 101 thresholds": f"{loop['sweep_times_faster']} ×",
        "| preparing 1024² PNG": f"{results['prepare']['png']['prepare_times_faster']:.1f} ×",
        "| `eval` with INT8, a CPU with AVX512-VNNI": f"{results['int8']['end_to_end']['ratio']:.2f} ×",
        "| `serve`, a model that does nothing": f"{pytriton['ratio_of_requests_per_s']} ×",
    }


def test_the_settings_of_the_rows(root: Path, results: dict[str, Any]) -> None:
    """What was asked, as the files say it."""
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    (grid,) = results["grid"]["rows"]
    models, cases = len(results["grid"]["models"]), results["grid"]["cases"]
    report, boxes, bootstrap = results["report"], results["box-lines"], results["bootstrap"]
    pytriton, batching = results["serve-pytriton"], results["serve-batching"]
    threads, int8 = results["evaluate"]["threads"], results["int8"]["end_to_end"]
    loop, load = results["host-loop"], results["prepare"]["load_average_before"]
    for words in (
        f"{int8['images']} prepared radiographs",
        f"{loop['cases']:,} prepared cases, {loop['findings']} findings",
        f"| version {loop['before']}, in turns |",
        f"{results['prepare']['threads']} threads (load {load}; `benchmarks/prepare.py`)",
        f"{models} models × {cases:,} cases",
        f"extrapolated from {grid['images']})",
        f"{results['evaluate']['images']} radiographs, first run",
        f"{threads} threads each |",
        f"`report`, {report['models']} models × {report['datasets']} datasets, {report['cases_per_model']:,} cases",
        f"{bootstrap['replicates']:,} patient-level bootstrap replicates, {bootstrap['cases']:,} cases, "
        f"{bootstrap['classes']} classes",
        f"{boxes['replicates']:,} replicates, every published scorer, page included (load "
        f"{boxes['load_average_before']};",
        f"{pytriton['connections']} connections (load {pytriton['load_average_before']};",
        f"{batching['connections']} connections, beside other work (load {batching['load_average_before']};",
        f"{len(batching['batching']['runs']) // 2} rounds in turns |",
    ):
        assert words in text, words


def test_what_a_further_question_costs(root: Path, results: dict[str, Any]) -> None:
    text = " ".join((root / "docs" / "performance.md").read_text(encoding="utf-8").split())
    found = results["serve-questions"]
    spent = found["cpu_ms_per_question"]
    for words in (
        f"{found['ratio_of_cpu']} × the CPU time of the first: {spent['further_kept']:.1f} ms instead of "
        f"{spent['first_kept']:.1f} ms, and {spent['further_not_kept']:.1f} ms with `--feature-cache 0`",
        f"turns, load {found['load_average_before']} before, answers equal",
    ):
        assert words in text, words


def test_where_the_time_of_an_evaluation_goes(root: Path, results: dict[str, Any]) -> None:
    text = " ".join((root / "docs" / "performance.md").read_text(encoding="utf-8").split())
    usual, alone = (results["evaluate"][name] for name in ("usual_seconds", "ours_stage_alone_seconds"))
    ours, total = sum(alone.values()), usual["total"]
    assert f"{alone['model']:.1f} s of {ours:.1f} s are ONNX Runtime" in text
    assert f"({usual['model']:.1f} s of {total:.1f} s in the usual pipeline are eager PyTorch)" in text
    names = ("maps and thresholds", "decode and resize")
    (one, low), (two, less) = ((usual[name], alone[name]) for name in names)
    assert f"thresholds fell from {one:.1f} s to {low:.2f} s, decoding from {two:.1f} s to {less:.1f} s" in text


def quoted_in_scale(results: dict[str, Any]) -> Iterator[str]:
    prepare, evaluate, ray = results["prepare"], results["evaluate"], results["ray"]
    yield f"PNG 1024² | {prepare['png']['prepare_cpu_ms']:.1f} ms of a core (`prepare-cpu.json`) | m |"
    yield f"DICOM of RSNA (JPEG, 1024²) | {prepare['dicom']['prepare_cpu_ms']:.1f} ms of a core (`prepare-cpu.json`)"
    yield f"| read a prepared image | {prepare['png']['read_ms']:.2f} ms (`prepare-cpu.json`) | m |"
    rate = evaluate["images"] / evaluate["ours_stage_alone_seconds"]["model"] / evaluate["threads"]
    yield f"ONNX Runtime, float32 | {rate:.0f} images/s (`evaluate-cpu.json`) | m |"
    pair = results["sweep"]["us_per_pair"]["fused sweep"]["median_us"] / 1000
    yield f"| sweep, a pair, one core | {pair:.2f} ms (`sweep-cpu.json`) | m |"
    chunk, first = ray["overhead_milliseconds_per_chunk"], ray["seconds_to_the_first_chunk"]
    start = f"{ray['import_ray_seconds']:.1f} + {ray['start_cluster_seconds']:.1f} s; {first:.1f} s"
    yield f"| {start} (`ray-cpu.json`) | m |"
    yield f"more than in the plain loop | {chunk:.0f} ms (`ray-cpu.json`) | m |"
    more = f"{ray['overhead_seconds_per_1000_cases']:.2f} s more, which is {chunk:.0f} ms a chunk of {ray['chunk']}"
    plain, its = (ray[f"{side}_seconds_per_1000_cases"] for side in ("plain", "ray"))
    yield f"1,000 cases take {plain:.2f} s in the plain loop and {its:.2f} s through one worker, {more}"
    served = results["serve-pytriton"]
    cpu = median(run["server_cpu_ms_per_request"] for run in served["runs"]["xbench-fast serve"])
    yield f"the {cpu:.2f} ms of CPU time that the plain server takes (`serve-pytriton-cpu.json`"
    yield f"does nothing, {served['connections']} connections)"


def quoted_in_detection(results: dict[str, Any]) -> Iterator[str]:
    boxes, lines = results["boxes"], results["box-lines"]
    both, whole = lines["lines"]["100000"]["together"], boxes["together"]
    yield f"Scoring {boxes['answers']:,} answers with {boxes['replicates']:,} replicates"
    yield f"takes {whole['cpu_s']} CPU seconds, {whole['wall_s']:.0f} s of wall time on two cores"
    yield "(`benchmarks/results/boxes-cpu.json`)"
    memory = f"{both['peak_mb'] / 1000:.2f} GB (`benchmarks/results/box-lines-cpu.json`)"
    yield f"take {both['cpu_s']} CPU seconds and {memory}"
    one = lines["of_one_dataset"]
    yield f"each line more takes about {one['bytes_per_line'] / 1000:.1f} kB of `eval`"
    few = lines["lines"][str(one["lines"])]["eval"]["peak_mb"]
    case = 1000 * (one["eval"]["peak_mb"] - few) / (one["images"] - one["lines"] // 2)
    yield f"the dataset's, {case:.1f} kB a case"


def quoted_in_benchmarks(results: dict[str, Any]) -> Iterator[str]:
    found = results["faithfulness"]
    range_ = f"({min(found['ratios']):.2f} to {max(found['ratios']):.2f})"
    kad, clip = (row["ratio_of_cpu"] for row in results["dicom-objects"]["models"])
    yield f"CPU time of one finding's objects {kad:.2f} × that of KAD-224 and {clip:.2f} × that of CLIP ViT-B/16"
    yield f"two threads, {found['pairs']} pairs, {found['ratio']:.2f} × the images a second of the loop {range_}"
    found = results["pacs"]
    whole, empty = found["whole_run"], found["with_an_empty_log"]
    spent = f"(load {found['load_average_before']:.1f}): {whole['cpu_s'] / found['films']:.2f} s of CPU time a film"
    yield f"{spent}, private memory {whole['mb_at_tenth']:.0f} MB after 100 films and {whole['mb']:.0f} MB after 1,000"
    yield f"after 1,000; {empty['mb_at_tenth']:.0f} MB and {empty['mb']:.0f} MB with an empty log"
    found = results["words-run"]
    spent = f"{found['reports']:,} reports of {found['words_per_report']:.0f} words in {found['cpu_s']:.1f} s of CPU"
    yield f"(load {found['load_average_before']}): {spent} time, and {found['twice_the_text']:.2f} × the time for twice"


def quoted_in_parity(results: dict[str, Any]) -> Iterator[str]:
    yield f"in batches of 16, is {results['int8']['end_to_end']['ratio']:.2f} × as fast"
    for name, entry in results["int8"]["models"].items():
        load = f" (load {entry['load_average'][0]:.0f})" if "cpu_ratio" not in entry else ""
        cpu = f"1/{entry['cpu_ratio']:.2f}" if "cpu_ratio" in entry else "-"
        speed = f"{entry['ratio']:.2f} ×{load} | {cpu}"
        products = entry["structure"]["in_bytes"]
        convolutions = products.get("Conv", 0)
        start = f"`{name.removesuffix('-int8')}` | {convolutions} + {sum(products.values()) - convolutions} |"
        yield f"{start} ... | {speed} | {entry['hits_flipped']} of {entry['pairs']} |"


def quoted_in_dicom(results: dict[str, Any]) -> Iterator[str]:
    found = results["dicom-objects"]
    kad, clip = (row["ratio_of_cpu"] for row in found["models"])
    yield f"of a film of {found['side']} x {found['side']} take {kad:.2f} × the CPU time of KAD-224 for this film, and"
    yield f"and {clip:.2f} × of CLIP ViT-B/16 (`benchmarks/results/dicom-objects-cpu.json`)"


PAGES = {
    "docs/dicom.md": quoted_in_dicom,
    "docs/scale.md": quoted_in_scale,
    "docs/detection.md": quoted_in_detection,
    "docs/parity.md": quoted_in_parity,
    "benchmarks/README.md": quoted_in_benchmarks,
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_quotes_its_results(root: Path, results: dict[str, Any], page: str) -> None:
    text = " ".join((root / page).read_text(encoding="utf-8").split())
    for words in PAGES[page](results):
        pattern = ".*?".join(re.escape(part.strip()) for part in words.split("..."))
        assert re.search(pattern, text), words


def test_no_other_figure_claims_a_file(root: Path, results: dict[str, Any]) -> None:
    """A page that names a result is compared above; a figure of scale.md that claims to be measured names its file."""
    for path in (root / "README.md", *(root / "docs").glob("*.md")):
        text, page = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        assert page in PAGES or page == "README.md" or not re.search(r"[a-z]-cpu\.json", text), page
        for name in re.findall(r"([a-z-]+)-cpu\.json", text):
            assert name in results
    rows = re.findall(r"^\|.*\| m \|$", (root / "docs" / "scale.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) > 5 and all("-cpu.json`" in row for row in rows)
