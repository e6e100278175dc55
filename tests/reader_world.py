"""Made-up readers: a CheXlocalize folder with its human benchmark, and VinDr's training file of three readers."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

from xbench_fast.runtime.data.datasets.chexlocalize import CheXlocalize

SIDE = 224


def chexlocalize(goldens: Path, folder: Path) -> Path:
    """The made-up images with both files of the benchmark; none of the images exists."""
    home = folder / "CheXlocalize"
    home.mkdir(parents=True)
    for name in ("gt_segmentations_test", "hb_segmentations_test", "hb_salient_pt_test"):
        shutil.copyfile(goldens / f"{name}.json", home / f"{name}.json")
    truth = json.loads((home / "gt_segmentations_test.json").read_text())
    labels = folder / "CheXpert" / "test_labels.csv"
    labels.parent.mkdir()
    findings = [*(c for c in CheXlocalize.classes if c != "Airspace Opacity"), "Lung Opacity"]
    with labels.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Path", *findings])
        for key, image in truth.items():
            patient, study, view = key.split("_", 2)
            marked = {
                name.replace("Airspace", "Lung")
                for name, mask in image.items()
                if mask["counts"] != runs(math.prod(mask["size"]))
            }
            writer.writerow([f"test/{patient}/{study}/{view}.jpg", *(int(name in marked) for name in findings)])
    return folder


def runs(*counts: int) -> str:
    """COCO's string of up to three runs, which begin with pixels outside."""
    text = ""
    for count in counts:
        while True:
            digit, count = count & 31, count >> 5
            done = count == 0 and not digit & 16
            text += chr(48 + digit + (0 if done else 32))
            if done:
                break
    return text


def change(file: Path, key: str, finding: str, value: Any) -> None:
    """Writes another value for one image and finding; None deletes it."""
    told = json.loads(file.read_text())
    if value is None:
        del told[key][finding]
    else:
        told[key][finding] = value
    file.write_text(json.dumps(told))


def vindr(goldens: Path, folder: Path) -> Path:
    """The training file of three readers, of images of 224 x 224 that the option `sizes` states."""
    folder.mkdir(parents=True)
    shutil.copyfile(goldens / "vindr_train.csv", folder / "annotations_train.csv")
    with (goldens / "vindr_train.csv").open() as stream:
        images = dict.fromkeys(row["image_id"] for row in csv.DictReader(stream))
    (folder / "sizes.csv").write_text("\n".join(["image_id,dim0,dim1", *(f"{i},{SIDE},{SIDE}" for i in images)]) + "\n")
    return folder


VINDR = tuple(f"vindr.{option}" for option in ("split=train", "readers=leave-one-out", "sizes=sizes.csv"))
