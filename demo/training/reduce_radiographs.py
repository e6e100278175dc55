"""Makes the small copies in demo/chestxdet10 from full-size radiographs of ChestX-Det10.

    python -m xbench_fast.demo.training.reduce_radiographs IMAGES ANNOTATIONS.json OUT

IMAGES holds the 1024 x 1024 PNGs under their ChestX-Det10 names, ANNOTATIONS.json is in ChestX-Det10's layout. OUT gets
`test_data/*.png`, one grey channel at half the side, each pixel the mean of 2 x 2 (so nothing aliases), and `test.json`
with the boxes halved and rounded outward: a box keeps every pixel it touches. The dataset then needs `frame = 512`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

__all__ = ["reduce"]


def reduce(images: Path, annotations: Path, out: Path) -> tuple[int, int]:
    """Writes the copies of all listed pictures; returns their number and the bytes of the PNGs."""
    from PIL import Image

    entries = json.loads(annotations.read_text(encoding="utf-8"))
    (out / "test_data").mkdir(parents=True, exist_ok=True)
    written = 0
    for entry in entries:
        with Image.open(images / entry["file_name"]) as picture:
            if picture.size != (1024, 1024):
                raise SystemExit(f"{entry['file_name']} is {picture.size}, not 1024 x 1024: these are not its boxes.")
            grey = picture.convert("RGB").convert("L") if picture.mode == "RGBA" else picture.convert("L")
        path = out / "test_data" / entry["file_name"]
        grey.reduce(2).save(path, optimize=True)
        written += path.stat().st_size
        entry["boxes"] = [[x0 // 2, y0 // 2, (x1 + 1) // 2, (y1 + 1) // 2] for x0, y0, x1, y1 in entry["boxes"]]
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (out / "test.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return len(entries), written


def main() -> None:
    parser = argparse.ArgumentParser(description="Halve radiographs of ChestX-Det10.")
    parser.add_argument("images", type=Path, help="folder of full-size PNGs")
    parser.add_argument("annotations", type=Path, help="JSON file in ChestX-Det10's layout")
    parser.add_argument("out", type=Path, help="folder to write")
    options = parser.parse_args()
    count, size = reduce(options.images, options.annotations, options.out)
    print(f"{count} pictures, {size} bytes, in {options.out}")


if __name__ == "__main__":
    main()
