"""The command line in this process, in a folder of one pair of features."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from joint_inputs import FP32, LIMITED, Originals
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.images import decode as image_files

_TIMES = ("seconds", "computed", "updated")


@dataclass(frozen=True)
class Ran:
    """A command's exit status and everything it printed."""

    status: int
    text: str


def command(*arguments: object) -> Ran:
    """`xbench-fast ARGUMENTS`, in this process."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as caught:
            return Ran(int(caught.code or 0), printed.getvalue())
    raise AssertionError("a command ends with an exit status")


@dataclass
class World:
    """A folder of one pair, over the originals."""

    folder: Path
    originals: Originals
    decoded: list[int]
    data: Path = field(init=False)
    models: Path = field(init=False)
    maps: Path = field(init=False)
    answers: Path = field(init=False)
    phrases: Path = field(init=False)
    reader: Path = field(init=False)

    def __post_init__(self) -> None:
        for name in ("data", "models", "maps"):
            setattr(self, name, self.originals.folder / name)
        self.answers = self.originals.folder / "answers.jsonl"
        self.phrases = self.originals.folder / "phrases.jsonl"
        self.reader = self.originals.folder / "films.py"

    def own(self, name: str) -> Path:
        """A copy of data, models, maps, answers, phrases or reader for this pair to change, which commands then use."""
        source: Path = getattr(self, name)
        target = self.folder / source.name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
        setattr(self, name, target)
        return target

    @property
    def twin(self) -> list[object]:
        return ["--data", f"again={self.data}", "--data-option", "again.reader=coco"]

    @property
    def own_reader(self) -> list[object]:
        return ["--data-option", f"coco.reader={self.reader}:Films"]

    @property
    def own_maps(self) -> str:
        return f"maps:{self.maps}"

    @property
    def own_boxes(self) -> str:
        return f"boxes:{self.answers}"

    def eval(self, *more: object, out: str = "run", model: str | list[str] = FP32, status: int = 0) -> str:
        """`eval` of these models on the dataset coco; returns what it printed."""
        line: list[object] = ["eval", "--bundles", self.models, "--data", f"coco={self.data}"]
        line += ["--out", self.folder / out, "--threads", 1, "--batch", 2, "--chunk", 4]
        for name in [model] if isinstance(model, str) else model:
            line += ["--model", name]
        if "--engine" not in more:
            line += ["--engine", "onnxruntime-cpu"]
        ran = command(*line, *more)
        assert ran.status == status, ran.text
        return ran.text

    def shards(self, *more: object, model: str | list[str] = FP32) -> None:
        for index in (1, 2):
            self.eval(*more, "--shard", f"{index}/2", model=model)

    def merge(self, status: int = 0) -> str:
        ran = command("merge", *(self.folder / "run" / f"shard-{i}-of-2" for i in (1, 2)), "--out", self.folder / "run")
        assert ran.status == status, ran.text
        return ran.text

    def merge_all(self, *how: object, model: str | list[str] = FP32) -> None:
        """Merges the shards: all cells are those of one piece, in every column and fact, and `eval` reuses them."""
        self.merge()
        self.eval("--no-cache", *how, out="piece", model=model)
        merged, piece = (self.cells(out) for out in ("run", "piece"))
        assert merged == piece
        for cell in piece:
            assert self.rows(cell).equals(self.rows(cell, "piece"))
        assert self.eval(*how, model=model).count("finished before, reused") == len(piece)

    def cells(self, out: str) -> dict[str, dict[str, Any]]:
        """All entries of run.json, without times."""
        found: dict[str, dict[str, Any]] = json.loads((self.folder / out / "run.json").read_text())["cells"]
        return {name: {k: v for k, v in entry.items() if k not in _TIMES} for name, entry in found.items()}

    def report(self, *more: object, out: str = "run") -> Path:
        ran = command("report", self.folder / out, "--no-page", "--quiet", "--replicates", 40, *more)
        assert ran.status == 0, ran.text
        return self.folder / out / "report"

    def numbers(self, out: str = "run") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.report(out=out) / "report.json").read_text())
        return found

    def differences(self, field: str, dataset: str = "coco", out: str = "run") -> dict[tuple[str, str], dict[str, Any]]:
        """Two models, sorted by name -> the difference of this number."""
        found = self.numbers(out)["differences"]
        wanted = [item for item in found if (item["field"], item["dataset"]) == (field, dataset)]
        return {tuple(sorted((item["first"], item["second"]))): item for item in wanted}

    def entry(self, cell: str = f"{FP32}--coco", out: str = "run") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / out / "run.json").read_text())["cells"][cell]
        return found

    def rows(self, cell: str = f"{FP32}--coco", out: str = "run") -> pa.Table:
        """The rows of a cell, without the names of the model and the dataset."""
        return _rows(self.folder / out, cell)

    def whole(self, *more: object, model: str = FP32, cell: str = "") -> pa.Table:
        """The rows of a run of its own over the originals, without a cache; made once for all pairs."""
        asked = (model, *map(str, more))
        if asked not in self.originals.made:
            out = self.originals.folder / f"whole{len(self.originals.made)}"
            World(self.originals.folder, self.originals, []).eval("--no-cache", *more, out=out.name, model=model)
            self.originals.made[asked] = out
        name = f"maps:{Path(model).name}" if model.startswith("maps:") else model
        name = f"boxes:{Path(model).stem}" if model.startswith("boxes:") else name
        return _rows(self.originals.folder / self.originals.made[asked].name, cell or f"{name}--coco")

    def fresh(self, *more: object, model: str = FP32, cell: str = f"{FP32}--coco") -> pa.Table:
        """The rows of a new run over this pair's inputs, without a cache."""
        out = f"fresh{len(list(self.folder.glob('fresh*')))}"
        self.eval("--no-cache", *more, out=out, model=model)
        return self.rows(cell, out)

    def tables(self, out: str = "run") -> dict[str, str]:
        """Heading -> text of each table of the report."""
        parts = (self.report(out=out) / "tables.md").read_text().split("\n## ")[1:]
        return {part.split("\n")[0]: part for part in parts}

    def decoding(self) -> int:
        """How many images were decoded since the last call."""
        count = len(self.decoded)
        self.decoded.clear()
        return count

    def stores(self, out: str = "run") -> list[Path]:
        """The stores of prepared images."""
        found = (path.parent for path in (self.folder / out).rglob("pixels.bin"))
        return sorted(path for path in found if "-masks-" not in path.name)


def _rows(run: Path, cell: str) -> pa.Table:
    file = json.loads((run / "run.json").read_text())["cells"][cell]["file"]
    return pq.read_table(run / file).replace_schema_metadata().drop_columns(["model", "dataset"])


def first(rows: pa.Table, cases: int = LIMITED) -> pa.Table:
    return rows.slice(0, 2 * cases)


@contextlib.contextmanager
def counting(patch: Callable[..., None]) -> Iterator[list[int]]:
    """The images decoded in this block."""
    real, decoded = image_files.decode_png, list[int]()

    def decode(data: bytes, **options: Any) -> Any:
        decoded.append(len(data))
        return real(data, **options)

    patch(image_files, "decode_png", decode)
    yield decoded
