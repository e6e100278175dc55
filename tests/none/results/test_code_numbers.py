"""Keys hold a number of each part of the code, which is raised when the code can change a value; a digest of the code
tells when that must be decided. Keys of earlier versions hold hashes of the code instead."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import deciding_code
import pytest
from deciding_code import parts, sources, statement_digests
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.runtime.data.cache.eviction import list_stores
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.vindr import VindrKaggle
from xbench_fast.runtime.host import code_numbers, source_code
from xbench_fast.runtime.host.code_numbers import NUMBERS
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.host.former_code import FORMER, renewed
from xbench_fast.runtime.results.cell_key import reader_code, renewed_ingredients, same_rows
from xbench_fast.runtime.results.loaded_dataset import load_dataset
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard

PARTS = parts()
PIXELS = "engines.geometry images.area images.png_jpeg images.intensity dicom_grey pixel_frames jpeg_header grey_levels"
REGIONS = "datasets.region_grid evaluation.drawn"
SWEEP = f"sweep.cpu sweep.maps sweep.masks sweep.counts grounding.native evaluation.measure {REGIONS}"
COVERED = {
    "cpu": f"evaluation.cell decoded_blocks evaluation.scoring phrase_queries {SWEEP}",
    "live": f"live_model evaluation.cell decoded_blocks evaluation.scoring {SWEEP}",
    "gpu": f"gpu.device_cell gpu.device_sweep gpu.feeding sweep.gpu sweep.gpu_tables {SWEEP}",
    "baseline": f"reference.baselines reference.reference_cell reference_sources {SWEEP}",
    "maps": f"reference.map_files reference.map_arrays reference.map_names reference.reference_cell {SWEEP}",
    "boxes": f"reference.box_files detection.boxes read_box_file dialects.thoughts box_labels {REGIONS}",
    "pixels": f"images.decode {PIXELS}",
    "dali": "images.dali",
    "masks": REGIONS.split()[0],
    "tiles": "images.tiles",
    "view": "images.views trust.perturbations",
    "reading": "datasets.case datasets.region_boxes csv_cells csv_files",
    "reader coco": "formats.coco formats.file_format",
    "reader siim": "datasets.siim region_shapes",
    "trust deletion": "probes.faithful probes.probe_rows decoded_blocks",
}
"""Part -> modules that it covers, by the ends of their names; each must change its digest."""
UNCOVERED = (
    "dataset_registry engines.errors machine_record host.config results.storage results.runs.merging load_rows "
    "reporting.report evaluation.progress evaluation.finishing image_store store_layout installation_checks"
)


def module(word: str) -> Path:
    return sources()[deciding_code.modules(word)[0]]


def own_statements(path: Path) -> set[str]:
    """The digests of the functions and classes of a module: another module can have the same imports."""
    tree = ast.parse(path.read_bytes())
    bodies = [ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {digest for body in bodies for digest in statement_digests(path, body.encode())}


def test_a_change_of_deciding_code_is_declared_harmless_or_raises_a_number() -> None:
    changed, raised = deciding_code.undecided(deciding_code.recorded(), deciding_code.current())
    assert not changed and not raised, deciding_code.advice(changed, raised)


@pytest.mark.parametrize("part", COVERED)
def test_a_part_covers_the_modules_that_decide_it(part: str) -> None:
    for word in COVERED[part].split():
        statements = own_statements(module(word))
        assert statements and statements <= PARTS[part], word


def test_what_decides_no_value_is_in_no_part() -> None:
    for word in UNCOVERED.split():
        statements = own_statements(module(word))
        for part in PARTS:
            assert not statements & PARTS[part], (word, part)


def test_a_part_that_a_key_names_by_itself_is_in_no_other() -> None:
    assert not any(PARTS[part] & PARTS["pixels"] for part in ("cpu", "gpu", "live", "trust repeat"))
    assert not any(PARTS[part] & PARTS["reading"] for part in PARTS if part not in ("reading", "pixels", "dali"))


def test_the_digest_of_moved_code_stays_and_that_of_a_changed_body_does_not(tmp_path: Path) -> None:
    text = (
        "from ..a.b import c\nfrom xbench_fast.runtime.a import d\nimport numpy\ndef f(x):\n    return x\ndef g(): 1\n"
    )
    moved = "import numpy\nfrom .e import c\nfrom .k import d\n# why\ndef g(): 1\ndef f(x):\n    return (x)\n"
    path = tmp_path / "one.py"
    before = statement_digests(path, text.encode())
    assert before == statement_digests(tmp_path / "moved" / "two.py", moved.encode())
    for old, new in (("return x", "return -x"), ("import numpy", "import numpy as y"), ("import c", "import h as c")):
        assert statement_digests(path, text.replace(old, new).encode()) != before
    inner = "def f():\n    from {} import g\n    return g()\n"
    one, two = (statement_digests(path, inner.format(place).encode()) for place in ("..a", ".b.c"))
    assert one == two


def test_what_to_do_is_said_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "record.json"
    record.write_text('{"cpu": [1, "old"], "gpu": [1, "old"], "gone": [1, "old"]}')
    monkeypatch.setattr(deciding_code, "RECORD", record)
    monkeypatch.setattr(deciding_code, "digests", lambda: {"cpu": "new", "gpu": "old"})
    monkeypatch.setattr(deciding_code, "NUMBERS", {"cpu": 1})
    assert "changed: cpu, gone." in deciding_code.main([]) and "--harmless" in deciding_code.main([])
    assert deciding_code.recorded()["cpu"] == (1, "old")
    monkeypatch.setattr(deciding_code, "NUMBERS", {"cpu": 2})
    assert "cpu" not in deciding_code.main([])
    assert deciding_code.main(["--harmless"]) == "cpu: number 2\ngone: changed, with the same values"
    assert deciding_code.recorded() == {"cpu": (2, "new"), "gpu": (1, "old")}
    assert deciding_code.main([]) == "nothing changed"


def test_numbers_and_hashes_are_of_parts() -> None:
    assert NUMBERS.keys() <= PARTS.keys() and min(NUMBERS.values()) >= 1
    for name, hashes in FORMER.items():
        for part in name.split("+"):
            assert part.rpartition("-")[0] in PARTS and len(set(hashes)) == len(hashes), name
    written = [text for hashes in FORMER.values() for text in hashes]
    assert len(set(written)) == len(written) and [renewed(text) for text in written] != written


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("x = 1", "x = 1  # one", True),
        ("x = 1", "x = 2", False),
        ("x = 1", "x = 1.0", False),
        ("x = True", "x = 1", False),
        ("x = None", "x", False),
        ("x = f(a, b)", "x = f(b, a)", False),
        ("x = a - b", "x = a + b", False),
        ("x = [a, [b]]", "x = [a, b]", False),
        ("x = (a, b)", "x = (\n    a,\n    b,\n)", True),
        ("x = 'a' 'b'", 'x = "ab"', True),
        ("x = f'{a}b' 'c'", "x = f'{a}bc'", True),
        ("x = f'{a}b'", "x = f'{a}c'", False),
        ("def f(x):\n    'Says.'\n    return x", "def f(x):\n    return x", True),
        ("def f(x):\n    return x", "def f(x):\n    return -x", False),
        ("def f(x, y=1):\n    return x", "def f(x, y=2):\n    return x", False),
        ("class A:\n    'Says.'\n    x = 1", "class A:\n    x = 1", True),
        ("if a:\n    b()\nc()", "if a:\n    b()\n    c()", False),
        ("for a in b:\n    c()\nd()", "for a in b:\n    c()\nelse:\n    d()", False),
        ("__all__ = ['x']\nx = 1", "x = 1", True),
        ("if TYPE_CHECKING:\n    import a\nx = 1", "x = 1", True),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    b()", "x = 1", False),
        ("from a import b", "from a import c as b", False),
        ("x = 'text'", "x = b'text'", False),
        ("x = 'called once'\n'a text'", "x = 'called once'", False),
        ("def f():\n    1\n    'no docstring'", "def f():\n    1", False),
    ],
)
def test_what_counts_as_the_same_code(tmp_path: Path, text: str, other: str, same: bool) -> None:
    found = []
    for number, source in enumerate((text, other)):
        path = tmp_path / f"{number}.py"
        path.write_text(source + "\n")
        found.append(source_code._read("mine", path, number, 0)[0])
    assert (found[0] == found[1]) == same


def test_the_source_of_the_kernels_decides(tmp_path: Path) -> None:
    path = module("sweep.gpu")
    before = statement_digests(path, path.read_bytes())
    (tmp_path / "sweep_map.cu").write_text("// another kernel")
    assert before - statement_digests(tmp_path / "gpu.py", path.read_bytes())


READER_FILE = """
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from {helper} import shift

class Mine(Coco):
    name = "mine"
    def read(self, notes):
        return super().read(notes)[shift():]
"""


def test_a_reader_in_a_file_of_the_user_is_covered_with_its_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = f"helper_of_{tmp_path.name}"
    monkeypatch.syspath_prepend(tmp_path / "code")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{helper}.py").write_text("def shift():\n    return 0\n")
    file = tmp_path / "mine.py"
    file.write_text(READER_FILE.format(helper=helper))
    config = DatasetConfig("mine", make_dataset(tmp_path / "data"), f"{file}:Mine")

    def code() -> str:
        sys.modules.pop(helper, None)
        return reader_code(load_dataset(config).dataset)

    first = code()
    file.write_text("# a comment\n" + file.read_text())
    assert code() == first
    assert first.startswith("reading-1+reader coco-1+")
    (tmp_path / "code" / f"{helper}.py").write_text("def shift():\n    return 2\n")
    second = code()
    file.write_text(file.read_text().replace("shift():", "shift() : 5"))
    third = code()
    monkeypatch.setattr(code_numbers, "NUMBERS", {"reader coco": 2})
    fourth = code()
    monkeypatch.setattr(code_numbers, "NUMBERS", {"reading": 2})
    assert len({first, second, third, fourth, code()}) == 5


def test_readers_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    coco, kaggle = (object.__new__(reader) for reader in (Coco, VindrKaggle))
    assert (reader_code(coco), reader_code(kaggle)) == ("reading-1+reader coco-1", "reading-1+reader vindr-1")
    monkeypatch.setattr(code_numbers, "NUMBERS", {"reader vindr": 2})
    assert (reader_code(coco), reader_code(kaggle)) == ("reading-1+reader coco-1", "reading-1+reader vindr-2")


def test_a_reader_that_derives_from_no_other_has_the_shared_number_and_a_hash(tmp_path: Path) -> None:
    class Alone(Dataset):
        name = "alone"

        def read(self, notes: list[Any]) -> list[Any]:
            return []

        def sources(self) -> list[Path]:
            return []

    assert re.fullmatch("reading-1[+][0-9a-f]{64}", reader_code(Alone(tmp_path)))


OLD = {name: hashes[0] for name, hashes in FORMER.items()}
COCO = "reading-1+reader coco-1"


class Kept:
    """An evaluation in one folder, by this version or by one whose keys held hashes of code."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.world, self.bundle = World(folder), make_bundle(folder / "blocks-32").path
        self.data = DatasetConfig("coco", make_dataset(folder / "data"), "coco")

    def evaluate(self, written: dict[str, str] | None = None, **options: Any) -> tuple[int, str]:
        """Evaluates, and returns how many cells were computed, and why some were computed again."""
        with self.monkeypatch.context() as patch:
            if written:
                rooms = "xbench_fast.runtime"
                for place in (
                    f"{rooms}.evaluation.planning",
                    f"{rooms}.data.images.decode",
                    f"{rooms}.data.cache.mask_store",
                ):
                    patch.setattr(f"{place}.code_number", lambda part: written[f"{part}-1"])
                for place in (f"{rooms}.evaluation.planning", f"{rooms}.results.loaded_dataset"):
                    patch.setattr(f"{place}.reader_code", lambda dataset: written[COCO])
            outcome = self.world.run([self.bundle], [self.data], baselines=["baseline:prior"], **options)
        return outcome.computed, " ".join(line for line in self.world.lines if "computed again" in line)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(tmp_path, monkeypatch)


def test_a_run_with_known_hashes_is_not_computed_again(kept: Kept) -> None:
    assert kept.evaluate(OLD) == (2, "")
    before = kept.world.entry(), kept.world.entry("baseline:prior--coco")
    assert before[0]["ingredients"]["code"] == OLD["cpu-1"] and OLD["pixels-1"] in before[0]["ingredients"]["decoder"]
    assert kept.evaluate() == (0, "")
    assert (kept.world.entry(), kept.world.entry("baseline:prior--coco")) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [("cpu-1", "code"), (COCO, "reader"), ("pixels-1", "decoder"), ("baseline-1", "code")],
)
def test_a_run_with_an_unknown_hash_is_computed_again(kept: Kept, name: str, words: str) -> None:
    unknown = "0" * len(OLD[name])
    kept.evaluate(OLD | {name: unknown})
    computed, why = kept.evaluate()
    assert computed == (2 if name == COCO else 1) and f"this changed: {words}" in why
    assert kept.evaluate() == (0, "")


def test_a_raised_number_computes_runs_with_known_hashes_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.evaluate(OLD)
    monkeypatch.setattr(code_numbers, "NUMBERS", {"baseline": 2})
    computed, why = kept.evaluate()
    assert computed == 1 and "baseline:prior on coco: computed again, because this changed: code" in why


def test_an_interrupted_run_with_known_hashes_is_continued(kept: Kept) -> None:
    kept.world.interrupt = 3, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        kept.evaluate(OLD)
    kept.world.interrupt = None
    before = kept.world.entry()
    assert before["state"] == "interrupted"
    kept.evaluate()
    after = kept.world.entry()
    assert after["key"] == before["key"] and 0 < after["computed"] < after["cases"]


def test_a_shard_with_known_hashes_is_merged_with_one_of_today(kept: Kept) -> None:
    folders = []
    for number, written in ((1, OLD), (2, None)):
        kept.world.out = kept.folder / f"shard-{number}-of-2"
        kept.evaluate(written, shard=Shard(number, 2))
        folders.append(kept.world.out)
    outcome = merge_shards(folders, kept.folder / "merged", lambda line: None)
    assert (outcome.computed, outcome.failed) == (2, [])


def test_prepared_images_and_masks_with_known_hashes_are_used(kept: Kept) -> None:
    cache = kept.folder / "cache"
    kept.evaluate(OLD, cache=cache)
    stores = {path.name for path in cache.iterdir()}
    assert len(stores) == 2 and not any(store.outdated for store in list_stores(cache))
    kept.world.out = kept.folder / "other"
    assert kept.evaluate(cache=cache) == (2, "")
    assert {path.name for path in cache.iterdir()} == stores


@pytest.mark.parametrize("name", ["pixels-1", "masks-1", COCO])
def test_prepared_images_and_masks_with_an_unknown_hash_are_made_again(kept: Kept, name: str) -> None:
    cache = kept.folder / "cache"
    kept.evaluate(OLD | {name: OLD[name][:-16] + "0" * 16}, cache=cache)
    assert len([*cache.iterdir()]) == 2
    assert any(store.outdated for store in list_stores(cache)) == (name != COCO)
    kept.world.out = kept.folder / "other"
    kept.evaluate(cache=cache)
    assert len([*cache.iterdir()]) == 3


def test_the_hashes_of_both_decoders_are_known() -> None:
    dali = f"dali dali-2.0-{OLD['dali-1']}+{OLD['pixels-1']}+pillow-13.0.0"
    assert renewed(dali) == "dali dali-2.0-dali-1+pixels-1+pillow-13.0.0"
    assert renewed_ingredients({"decoder": f"cpu {OLD['pixels-1']}+pydicom-3"}) == {"decoder": "cpu pixels-1+pydicom-3"}
    assert not same_rows({"decoder": "cpu 0123456789abcdef+pydicom-3"}, {"decoder": "cpu pixels-1+pydicom-3"})
