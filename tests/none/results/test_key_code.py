"""A cell's key and that of prepared images cover the code that decides rows and pixels, and no other code."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.mask_store import mask_rules
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.siim import Siim
from xbench_fast.runtime.data.images.dali import dali_reader
from xbench_fast.runtime.data.images.decode import reader_version
from xbench_fast.runtime.evaluation.row_code import row_code
from xbench_fast.runtime.host import source_code
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.cell_key import reader_code
from xbench_fast.runtime.results.loaded_dataset import load_dataset

PACKAGE = "xbench_fast"
BOXED = "datasets.case mask_run_lengths region_boxes"
READER = (
    "strict_json strict_yaml dataset case_rules file_rows datasets.patients paths documents "
    f"image_names image_index listing csv_cells csv_files spelling {BOXED}"
)
HEADER = "kinds other_kinds dicom.elements open_dicom"
DICOM = (
    f"{HEADER} dicom.codecs pixel_frames dicom_grey stored_values lookup_tables jpeg_header lossless run_lengths "
    "grey_levels"
)
PIXELS = f"engines.geometry area compiled decode resizing intensity png_jpeg {DICOM}"
SWEEP = "compiled arguments counts sweep.cpu sweep.masks plain sweep.maps sweep.sweep sweep_options sweep.tables"
COUNTS = f"{SWEEP} exact_sums native protocols measure"
REGIONS = f"{BOXED} region_grid decoded_case evaluation.drawn contents images.size {HEADER}"
ROWS = f"{COUNTS} {REGIONS} queries scoring schema prompt_set"
DEVICE = "device_cell device_sweep feeding sweep.gpu nvrtc gpu_tables"
REFERENCE = "baselines reference_cell reference_sources resizing area engines.geometry intensity png_jpeg"
BOXES = (
    "box_files box_models detection.boxes unions pointing read_box_file coordinate_frames thoughts box_labels paths "
    "spelling strict_json compiled arguments counts exact_sums sweep.masks sweep_options sweep.maps native protocols "
    "measure"
)
DECIDE = {
    "reader": f"chestxdet10 {READER}",
    "prepared": PIXELS,
    "dali": f"dali {PIXELS}",
    "cpu": f"evaluation.cell phrase_queries decoded_blocks pixels {ROWS} {PIXELS}",
    "live": f"evaluation.cell live_model phrase_queries decoded_blocks pixels {ROWS} {PIXELS}",
    "gpu": f"evaluation.cell phrase_queries decoded_blocks pixels {DEVICE} {ROWS} {PIXELS}",
    "baseline": f"{REFERENCE} {ROWS}",
    "masks": f"region_grid arguments sweep.masks {BOXED}",
    "maps": f"map_arrays map_files map_names file_rows image_names listing paths {REFERENCE} {ROWS}",
    "boxes": f"file_rows image_names {BOXES} {REFERENCE} {REGIONS} queries scoring schema prompt_set",
}
OTHERS = (
    "siim vindr rsna csv_boxes audit reader_consensus dataset_registry engines.errors engines.registry "
    "machine_record config storage results.runs.merging run_directory comparability load_rows reporting.report "
    "reporting.notes figure_4_thresholds gallery.pictures tables.table bootstrap delong grounding.calibration "
    "grounding.scores "
    "evaluation.progress finishing image_store store_layout mask_store decoders backends.gpu "
    "evaluate_command installation_checks server map_orientation"
)

Mutate = Callable[..., None]


def digests() -> dict[str, str]:
    """What the keys say of code, by the part of `DECIDE`."""
    reader = object.__new__(ChestXDet10)
    found = {"reader": reader_code(reader), "prepared": reader_version(), "dali": dali_reader(), "masks": mask_rules()}
    kinds = ("cpu", "live", "gpu", "baseline", "maps", "boxes")
    return {**found, **{kind: row_code(kind) for kind in kinds}}  # type: ignore[arg-type]


def module(word: str) -> str:
    """The one module of the project that ends with a word."""
    found = [name for name in SOURCES if name.endswith(f".{word}")]
    assert len(found) == 1, (word, found)
    return found[0]


def sources() -> dict[str, Path]:
    root = Path(__file__).parents[3]
    rooms = ("engines", "metrics_gpu", "runtime")
    files = [path for room in rooms for path in (root / room).rglob("*.py") if path.name != "__init__.py"]
    return {".".join((PACKAGE, *path.relative_to(root).with_suffix("").parts)): path for path in files}


SOURCES = sources()
DECIDING = sorted({word for words in DECIDE.values() for word in words.split()})


@pytest.fixture
def mutate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mutate]:
    """Makes a module's source another text, for the keys only."""
    real, changed = source_code._file, dict[str, Path]()

    def change(name: str, edit: Callable[[str], str]) -> None:
        changed[name] = tmp_path / str(len(changed)) / SOURCES[name].name
        changed[name].parent.mkdir()
        for kernel in SOURCES[name].parent.glob("*.cu"):
            shutil.copy(kernel, changed[name].parent)
        changed[name].write_text(edit(SOURCES[name].read_text()))

    monkeypatch.setattr(source_code, "_file", lambda name: changed.get(name) or real(name))
    yield change
    changed.clear()


@pytest.mark.parametrize("word", DECIDING)
def test_a_module_that_decides_changes_the_key_and_no_other(mutate: Mutate, word: str) -> None:
    before = digests()
    mutate(module(word), lambda text: text + "\nmutant = 1\n")
    after = digests()
    changed = {kind for kind in before if before[kind] != after[kind]}
    assert changed == {kind for kind, words in DECIDE.items() if word in words.split()}


def test_a_module_that_does_not_decide_changes_nothing(mutate: Mutate) -> None:
    before = digests()
    for word in OTHERS.split():
        mutate(module(word), lambda text: text + "\nmutant = 1\n")
        assert digests() == before, word


def test_every_module_that_decides_is_listed_here() -> None:
    """A new module is covered by the key at once; here it is added to the list, so that somebody looks at it."""
    roots = [f"{PACKAGE}.runtime.evaluation.cell", f"{PACKAGE}.metrics_gpu.sweep.sweep"]
    aside = {
        module(word) for word in ("engines.base", "datasets.dataset", "bundle", "manifest", "storage", "sweep.gpu")
    }
    found = source_code.closure(roots, aside)
    assert set(found) == {module(word) for word in DECIDE["cpu"].split()}


def test_comments_docstrings_and_formatting_change_nothing(mutate: Mutate) -> None:
    before = digests()
    for word in DECIDING:
        text = SOURCES[module(word)].read_text()
        bare = ast.unparse(ast.parse(text))
        docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
        edited = "# a comment\n" + bare.replace(repr(docstring), "'another docstring'", 1) + "\n\n# another\n"
        assert edited != text
        mutate(module(word), lambda _, edited=edited: edited)
    assert digests() == before


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


def test_the_source_of_the_kernels_decides(mutate: Mutate) -> None:
    name = module("sweep.gpu")
    mutate(name, lambda text: text)
    folder = source_code._file(name).parent  # type: ignore[union-attr]
    before = source_code._read(name, folder / "gpu.py", 0, 0)[0]
    assert before == source_code._read(name, SOURCES[name], 0, 0)[0]
    (folder / "sweep_map.cu").write_text("// another kernel")
    assert source_code._read(name, folder / "gpu.py", 1, 0)[0] != before


READER_FILE = """
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from {helper} import shift

class Mine(Coco):
    name = "mine"
    def read(self, notes):
        return super().read(notes)[shift():]
"""


def test_a_reader_in_a_file_of_the_user_is_covered_with_its_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutate: Mutate
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
    mutate(module("siim"), lambda text: text + "\nmutant = 1\n")
    assert code() == first
    (tmp_path / "code" / f"{helper}.py").write_text("def shift():\n    return 2\n")
    second = code()
    file.write_text(file.read_text().replace("shift():", "shift() : 5"))
    third = code()
    mutate(module("formats.coco"), lambda text: text + "\nmutant = 1\n")
    assert len({first, second, third, code()}) == 4


def test_readers_have_keys_of_their_own(mutate: Mutate) -> None:
    masks, boxes = (object.__new__(reader) for reader in (Siim, ChestXDet10))
    before = reader_code(masks), reader_code(boxes)
    assert before[0] != before[1]
    mutate(module("region_shapes"), lambda text: text + "\nmutant = 1\n")
    assert reader_code(masks) != before[0], "who makes shapes is covered with the code that draws them"
    assert reader_code(boxes) == before[1]


def test_code_that_decides_is_computed_again_and_other_code_is_not(tmp_path: Path, mutate: Mutate) -> None:
    world, bundle = World(tmp_path), make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")

    def evaluated() -> tuple[int, list[str]]:
        outcome = world.run([bundle], [data], baselines=["baseline:center"])
        return outcome.computed, [line for line in world.lines if "this changed" in line]

    assert evaluated() == (2, [])
    mutate(module("siim"), lambda text: text + "\nmutant = 1\n")
    assert evaluated() == (0, [])
    mutate(module("region_boxes"), lambda text: text + "\nmutant = 1\n")
    computed, lines = evaluated()
    assert computed == 2 and all("because this changed: code, reader" in line for line in lines)
    mutate(module("chestxdet10"), lambda text: text + "\nmutant = 1\n")
    assert evaluated() == (0, [])


def test_prepared_images_of_other_code_are_not_read(mutate: Mutate) -> None:
    from xbench_fast.runtime.data.cache.store_layout import store_folder

    squash = Geometry("squash", 32, 32, "bicubic")
    folder = store_folder(Path("cache"), "demo", [], squash)[0]
    mutate(module("datasets.formats.coco"), lambda text: text + "\nmutant = 1\n")
    assert store_folder(Path("cache"), "demo", [], squash)[0] == folder
    mutate(module("area"), lambda text: text + "\nmutant = 1\n")
    assert store_folder(Path("cache"), "demo", [], squash)[0] != folder
