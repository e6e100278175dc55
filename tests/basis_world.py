"""Two folders of maps on a small dataset, evaluated and reported by the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import make_dataset
from xbench_fast.runtime.cli.app import main


class Desk:
    """A folder with a dataset `lungs` (images/ and annotations.json) and folders of maps `good` and `poor`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], count: int = 40) -> None:
        self.folder, self.run = folder, folder / "run"
        self._capsys = capsys
        self.data = make_dataset(folder / "lungs", count)
        rng = np.random.default_rng(4)
        for name in ("good", "poor"):
            for box in self.annotations["annotations"]:
                finding = ("Mass", "Effusion")[box["category_id"] - 1]
                x, y = (int(v) for v in box["bbox"][:2])
                values = 0.02 * rng.random((40, 56), np.float32)
                if name == "good":
                    values[y : y + 8, x : x + 8] += 0.05
                place = folder / name / box["image_id"]
                place.mkdir(parents=True, exist_ok=True)
                np.save(place / f"{finding}.npy", values)

    @property
    def annotations(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "annotations.json").read_text())
        return found

    def move_boxes(self, by: int = 6) -> None:
        """Moves every box to the right, so that its region keeps its size on the grid."""
        changed = self.annotations
        for box in changed["annotations"]:
            box["bbox"][0] += by
        (self.data / "annotations.json").write_text(json.dumps(changed))

    def command(self, *arguments: object, code: int = 0) -> str:
        """What a command says on its two streams."""
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        said = self._capsys.readouterr()
        assert ended.value.code == code, said.err
        return said.out + said.err

    def eval(self, *models: str, dataset: str = "lungs", **options: object) -> str:
        """Evaluates folders of maps (good, poor) or baselines into the run."""
        named = [m if m.startswith("baseline:") else f"maps:{self.folder / m}" for m in models]
        flags = [f"--{key}={value}" for key, value in options.items()]
        wanted = [part for name in named for part in ("--model", name)]
        place = (f"--data={dataset}={self.data}", f"--data-option={dataset}.reader=coco", "--out", self.run)
        return self.command("eval", *wanted, "--dataset", dataset, *place, *flags)

    def report(self, *flags: object) -> str:
        """The tables in Markdown, after `report`."""
        self.command("report", self.run, "--no-page", "--quiet", "--replicates", 40, *flags)
        return (self.run / "report" / "tables.md").read_text()

    def csv(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file of the report."""
        with (self.run / "report" / name).open(newline="") as stream:
            return list(csv.DictReader(stream))

    @property
    def json(self) -> dict[str, Any]:
        """report.json."""
        found: dict[str, Any] = json.loads((self.run / "report" / "report.json").read_text())
        return found


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)
