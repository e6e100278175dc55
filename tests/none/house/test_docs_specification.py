"""The pages of docs/ that specify: columns, keys, options, counts and protocols stand there as the code has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import get_args

import click
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.export import prompts
from xbench_fast.export.cli.export_command import command as export
from xbench_fast.export.parity.checks import LOW_TOLERANCE, TOLERANCE, ParityReport, TensorCheck
from xbench_fast.export.prompts.builtin import builtin_sets, prompt_styles
from xbench_fast.metrics_gpu.grounding.calibration import METHODS
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS, Protocol, Ties, Unit, protocol
from xbench_fast.metrics_gpu.grounding.strata import EDGES, STRATA
from xbench_fast.metrics_gpu.statistics.bootstrap import SEED
from xbench_fast.metrics_gpu.sweep.sweep_options import MODES
from xbench_fast.runtime.cli.app import app as fast
from xbench_fast.runtime.data.cache.locks import STORE_FILES
from xbench_fast.runtime.data.cache.store_files import RECORD
from xbench_fast.runtime.data.cache.store_layout import FORMAT
from xbench_fast.runtime.data.datasets.dataset import OfficialCounts
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_json import RUN_SCHEMA, read_run
from xbench_fast.runtime.results.schema import RESULT_VERSION, result_schema

TYPES = {
    "fixed_size_list<item: int32>[101]": "int32 [101]",
    "fixed_size_list<item: double>[4]": "float64 [4]",
    "list<item: float>": "float32 [n]",
    "list<item: int32>": "int32 [n]",
    "float": "float32",
}


@pytest.fixture
def docs(root: Path) -> Path:
    return root / "docs"


def sections(page: Path) -> dict[str, str]:
    """Number -> text of a section, up to the next heading."""
    parts = re.split(r"^#{2,4} §(\d+(?:\.\d+)*) ", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(text: str, header: str) -> list[list[str]]:
    """The cells of the rows of the table whose first column has this header, without marks of code."""
    found = re.search(rf"^\| {re.escape(header)} \|.*\n\|[-|]+\|\n((?:\|.*\n?)*)", text, re.MULTILINE)
    assert found is not None, header
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in found[1].splitlines()]


def first_column(text: str, header: str) -> list[str]:
    """What stands in the first column, names that share a row apart."""
    return [name.strip() for row in table(text, header) for name in row[0].split(",")]


def test_every_column_of_a_result_and_no_other(docs: Path) -> None:
    text = sections(docs / "run-directory.md")["4"]
    fields = list(result_schema())
    native = [field for field in fields if str(field.type).startswith("struct")]
    wanted = [(field.name, TYPES.get(str(field.type), str(field.type))) for field in fields if field not in native]
    wanted += [(field.name, "struct") for field in native]
    assert sorted((row[0], row[1]) for row in table(text, "column")) == sorted(wanted)
    assert [row[3] == "never" for row in table(text, "column")] == [not field.nullable for field in fields]
    inner = [(f"{field.name}.{part.name}", part.type) for field in native for part in field.type]
    told = sorted((name, TYPES.get(str(kind), str(kind))) for name, kind in inner)
    assert sorted((row[0], row[1]) for row in table(text, "field")) == told


def test_versions_and_files(docs: Path) -> None:
    page = sections(docs / "run-directory.md")
    told = {row[0]: row[1] for row in table(page["8"], "what")}
    assert (told["run.json"], told["rows of a cell"]) == (str(RUN_SCHEMA), str(RESULT_VERSION))
    assert told["prepared images"] == str(FORMAT) and f"{RECORD.itemsize} bytes" in page["6"]
    assert {*first_column(page["6"], "file"), "index.json.new"} == STORE_FILES


def test_every_key_of_run_json(docs: Path, tmp_path: Path) -> None:
    """Of a bundle's and of baselines' cells; the page says more, for shards, maps, failures and live models."""
    page = sections(docs / "run-directory.md")
    world, data = World(tmp_path), DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    world.run([make_bundle(tmp_path / "blocks-32").path], [data], baselines=["baseline:ones", "baseline:prior"])
    run = read_run(world.out)
    whole, entries = (set(first_column(part, "key")) for part in page["2"].split("An entry of `cells`"))
    assert {*run, "checksum"} == whole
    keys = {key for entry in run["cells"].values() for key in entry}
    assert keys <= entries and entries - keys == {
        "reason", "map_size", "shard", "last_attempt", "version", "warnings", "supervised",
        "uncertain", "uncompared_texts", "resized", "activation", "part", "fault",
    }  # fmt: skip
    made = {key for entry in run["cells"].values() for key in entry["ingredients"]}
    assert set(first_column(page["3"], "ingredient")) == {
        *made, "shard", "geometry", "intensity", "phrases", "view", "tiles",
    }  # fmt: skip


@pytest.mark.parametrize("name", DATASETS.names())
def test_every_option_and_official_count_of_a_reader(docs: Path, name: str) -> None:
    pages = ("datasets", "published-datasets", "formats", "phrase-grounding")
    page = {number: text for name in pages for number, text in sections(docs / f"{name}.md").items()}
    index = {row[0]: row[1] for row in table((docs / "datasets.md").read_text(), "reader (`--data NAME=FOLDER`)")}
    assert set(index) == set(DATASETS.names())
    text, reader = page[index[name]], DATASETS.load(name)
    assert first_column(text, "option") == list(reader.option_help)
    module = vars(__import__(reader.__module__, fromlist=["_"]))
    counts = [item for value in module.values() for item in (value if isinstance(value, tuple) else (value,))]
    for item in counts:
        if isinstance(item, OfficialCounts) and name != "vindr_kaggle":
            for number in (item.cases, item.pairs, item.boxes):
                assert number is None or re.search(rf"(?<![\d,]){number:,}(?!,?\d)", text), f"{name}: {number:,}"
            for finding, number in {**item.pairs_per_class, **item.boxes_per_class}.items():
                assert re.search(rf"{finding}\b[^A-Z]*\b{number}\b", text), f"{name}: {finding} {number}"


def _told(item: Protocol) -> Iterator[tuple[str, str]]:
    sweeping = item.sweeping
    yield "upsampling", {"align_corners": "aligned corners"}.get(sweeping.upsample, sweeping.upsample)
    yield "normalisation", {"minmax": "min-max"}.get(sweeping.normalise, sweeping.normalise)
    yield "comparison", sweeping.comparison
    yield "largest threshold", f"{sweeping.tau_scale:g}"
    yield "fixed threshold", "none" if item.fixed_tau is None else f"{item.fixed_tau:g}"
    yield "search from level", str(round(100 * item.options.tau_from))
    yield "best threshold per", item.options.unit.removeprefix("per_")
    yield "pointing at ties", item.options.ties
    yield "counted pairs", "true positives" if item.true_positives_only else "all regions"
    yield "native size", "yes" if item.native_size else "no"


def test_the_table_of_protocols(docs: Path) -> None:
    text = sections(docs / "protocols.md")["1"]
    assert re.findall(r"`(\w+)`", text.partition("\n\n")[2].partition("\n")[0]) == list(PROTOCOLS)
    rows = {row[0]: row[1:] for row in table(text, "setting")}
    for place, name in enumerate(PROTOCOLS):
        for field, value in _told(protocol(name)):
            assert rows[field][place] == value, f"{name}: {field}"


def test_choices_of_the_metrics(docs: Path) -> None:
    page = sections(docs / "metrics.md")
    assert [name.removesuffix(" (default)") for name in first_column(page["4.2"], "`--best`")] == list(get_args(Unit))
    assert [name.removesuffix(" (default)") for name in first_column(page["5.2"], "`--ties`")] == list(get_args(Ties))
    assert set(first_column(page["15"], "method")) == set(METHODS)
    assert all(re.search(rf"^    {mode} ", page["1"], re.MULTILINE) for mode in MODES)
    assert str(SEED) in page["4.3"] and str(SEED) in page["8.2"]
    rows = table(page["10"], "stratum")
    assert [row[0] for row in rows] == list(STRATA)
    assert [row[1].rpartition("below ")[2] for row in rows[:-1]] == [f"{100 * edge:g} %" for edge in EDGES]


def test_the_parity_report_and_the_status_of_prompts(docs: Path) -> None:
    page = sections(docs / "parity.md")
    conditions = dict.fromkeys(("reference", "engine", "precision", "precision_engine"), "")
    report = ParityReport(conditions, [TensorCheck("model", 1, 0, 1, "logits", 0.0, 1.0, TOLERANCE)], {"images": 1})
    assert set(first_column(page["6"], "key")) == set(report.to_json())
    assert f"{TOLERANCE:.0e}".replace("e-0", "e-") in page["4"]
    assert all(f"{allowed:g}".replace("0.03", "3e-2") in page["5"] for allowed in LOW_TOLERANCE.values())
    used = {entry.status for style in prompt_styles() for entries in builtin_sets(style).values() for entry in entries}
    book = json.loads(resources.files(prompts).joinpath("descriptions.json").read_text())
    used |= {entry["status"] for model in book["official"].values() for entry in model.values()}
    assert set(first_column(page["7"], "status")) == used


def flags(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield from flags(inner) if inner is not None else ()


@pytest.mark.parametrize("page", ["metrics", "datasets", "parity", "protocols", "run-directory"])
def test_every_flag_of_a_page_exists(docs: Path, page: str) -> None:
    known = {*flags(fast), *flags(export)}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", (docs / f"{page}.md").read_text()))
    assert told <= known, told - known


CITED = re.compile(r"docs/([\w-]+)\.md((?:(?:,|;| and| to|-)?\s*§[\d.]*\d)*)")
PLACE = re.compile(r"§(\d+(?:\.\d+)*)")
CODE = ("api", "export", "engines", "metrics_gpu", "runtime", "demo", "benchmarks", "tests")


def code(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every source file, without the line ends and marks of its comments."""
    for room in CODE:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".py", ".cu", ".js", ".html") and path != Path(__file__):
                text = path.read_text(encoding="utf-8", errors="replace")
                yield str(path.relative_to(root)), re.sub(r"\s*\n\s*(?:#|//|\*)?\s*", " ", text)


def test_every_cited_page_and_section_exists(root: Path, docs: Path) -> None:
    pages = {page.stem: set(sections(page)) for page in docs.glob("*.md")}
    cited = 0
    for name, text in code(root):
        for page, places in CITED.findall(text):
            for place in PLACE.findall(places):
                assert place in pages.get(page, ()), f"{name} cites docs/{page}.md §{place}, which does not exist"
                cited += 1
    assert cited > 100


def test_no_specification_is_cited_without_its_page(root: Path) -> None:
    vague = re.compile(r"\b(metrics?|datasets?|parity|prompts?|DeViDe|the|this)(?:'s)? spec(ifications?\b|\. )", re.I)
    for name, text in code(root):
        found = vague.search(text)
        assert found is None, f"{name}: '{found[0]}' leads nowhere; cite a page and section of docs/"


def test_links_and_sections_between_the_pages(docs: Path) -> None:
    for page in sorted(docs.glob("*.md")):
        text, own = page.read_text(), set(sections(page))
        for title, target in re.findall(r"\[([^\[\]]*)\]\(([^()#\s]+)\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"
                for place in PLACE.findall(title):
                    assert place in sections(page.parent / target), f"{page.name}: {title}"
        elsewhere = re.sub(r"\[[^\[\]]*\]\([^()\s]*\)|`docs/[^`]*`", "", text)
        for place in PLACE.findall(elsewhere):
            assert place in own, f"{page.name} has no §{place}"
