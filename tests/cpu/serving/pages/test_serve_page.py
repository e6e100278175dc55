"""The page at `/` in headless Chromium, with a real server behind it: what it shows is what the evaluation counts.

Starting a server and Chromium takes most of the time, 15 to 60 s in all.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving_pages import GEOMETRIES, PROMPTS, WEIGHTS, Visit, answered, drop, maps
from serving_process import ServerProcess, film, image_request
from synthetic import model, reference_sweep
from xbench_fast.runtime.data.images.resizing import field_of_view, to_model
from xbench_fast.runtime.serving.inference.metadata import NOTICE

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")


@dataclass
class Expected:
    """What NumPy alone says of a film: scores by finding, and counts of the map."""

    sigmoid: dict[str, float]
    counts: dict[str, Any]


def expected(data: bytes, name: str) -> Expected:
    grey = np.asarray(Image.open(io.BytesIO(data)))
    prompts = PROMPTS[name]
    logits, saliency = model(to_model(grey, GEOMETRIES[name])[None, None], prompts.features)
    frame = np.array([field_of_view(GEOMETRIES[name], *grey.shape)])
    sigmoid, counts = {}, {}
    for index, finding in enumerate(prompts.findings):
        positive = (prompts.finding_of == index) & (prompts.polarity > 0)
        sigmoid[finding] = float(1 / (1 + np.exp(-logits[0, positive].mean(dtype=np.float64))))
        grid = saliency[0, positive].mean(0, dtype=np.float32)[None]
        counts[finding] = reference_sweep(grid, np.ones((1, 224, 224), bool), frames=frame)
    return Expected(sigmoid, counts)


def test_the_contour_is_what_the_evaluation_counts(visit: Visit, folder: Path) -> None:
    """For every model and finding, at the thresholds the keys reach: the same pixels, and the same maximum."""
    page = visit()
    drop(page, film(folder))
    answered(page)
    page.get_by_label("several findings").check()
    wanted = {name: expected(film(folder), name) for name in GEOMETRIES}
    for finding in PROMPTS["whole-32"].findings:
        row = page.locator(".card[data-model=whole-32] .bars button", has_text=finding)
        if row.get_attribute("aria-pressed") == "false":
            row.click()
    slider = page.locator("#tau")
    steps = [
        ("", 0, 50),
        ("ArrowRight", 3, 53),
        ("Home", 1, 0),
        ("PageUp", 1, 10),
        ("ArrowLeft", 1, 9),
        ("End", 1, 100),
    ]
    for key, presses, level in steps:
        for _ in range(presses):
            slider.press(key)
        found = maps(page)
        assert len(found) == 9
        for (name, finding), data in found.items():
            counts = wanted[name].counts[finding]
            assert int(data["level"]) == level and data["picture"] == "there"
            assert int(data["area"]) == counts.area[0][level], (name, finding, level)
            assert int(data["argmax"]) == counts.argmax[0]
    assert page.locator("#tau-value").inner_text() == "1.00" and slider.get_attribute("aria-valuetext") == "tau 1.00"
    page.locator("#tau-half").click()
    assert {data["level"] for data in maps(page).values()} == {"50"}


def test_scores_are_sorted_and_labelled(visit: Visit, folder: Path) -> None:
    page = visit()
    drop(page, film(folder, 1))
    answered(page)
    for name in GEOMETRIES:
        card = page.locator(f".card[data-model={name}]")
        wanted = expected(film(folder, 1), name).sigmoid
        order = sorted(wanted, key=lambda finding: -wanted[finding])
        assert card.locator(".bars .name").all_inner_texts() == order
        assert card.locator(".bars .value").all_inner_texts() == [f"{wanted[finding]:.3f}" for finding in order]
        assert card.locator(".score-title").inner_text() == "3 findings by sigmoid"
    page.locator("[name=score]").select_option("pair")
    values = page.locator(".card[data-model=several-32] .bars .value").all_inner_texts()
    assert values[2] == "–" and "–" not in values[:2]  # one finding has no negative prompt
    assert page.locator(".card[data-model=whole-32] .bars .value").all_inner_texts() == ["–"] * 3
    page.locator("[name=score]").select_option("logit")
    assert page.locator(".card[data-model=whole-32] .score-title").inner_text() == "3 findings by logit"


def test_boxes_are_those_of_the_server(visit: Visit, server: ServerProcess, folder: Path) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    drop(page, film(folder))
    answered(page)
    page.get_by_label("boxes").check()
    page.locator("#tau").press("ArrowRight")
    shown = maps(page)
    page.get_by_role("button", name="Copy JSON").click()
    page.get_by_text("The JSON is in the clipboard.").wait_for()
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["notice"] == NOTICE and copied["tau"] == 0.51 and copied["file"] == "film.png"
    assert [answer["model"] for answer in copied["answers"]] == sorted(GEOMETRIES)
    for answer in copied["answers"]:
        name = answer["model"]
        body, headers = image_request(
            film(folder), outputs=("boxes", "mask", "logits", "frames"), parameters={"tau": 0.51}
        )
        told = httpx.post(f"{server.url}/v2/models/{name}/infer", content=body, headers=headers, timeout=60)
        data = {item["name"]: np.reshape(item["data"], item["shape"]) for item in told.json()["outputs"]}
        assert answer["frame"] == data["frames"][0].tolist() and answer["height_width"] == [40, 56]
        for index, finding in enumerate(answer["findings"]):
            boxes = data["boxes"][data["boxes"][:, 1] == index][:, 2:]
            got = np.array(finding["boxes_x0_y0_x1_y1_peak"])
            np.testing.assert_allclose(sorted(got.tolist()), sorted(boxes.tolist()), rtol=1e-6)
            assert finding["mask_pixels"] == data["mask"][0, index].sum()
            assert finding["logit"] == pytest.approx(data["logits"][0, index], rel=1e-6)
            if (name, finding["finding"]) in shown:
                assert int(shown[name, finding["finding"]]["boxes"]) == len(boxes)
    kinds = {answer["model"]: answer["weights"] for answer in copied["answers"]}
    assert kinds == WEIGHTS


def test_without_a_clipboard_the_json_can_be_copied_by_hand(visit: Visit, folder: Path) -> None:
    page = visit()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    drop(page, film(folder))
    answered(page)
    page.get_by_role("button", name="Copy JSON").click()
    text = page.locator("#text")
    assert len(json.loads(text.input_value())["answers"]) == 3
    assert page.evaluate("document.activeElement.selectionEnd") > 1000
    page.get_by_role("button", name="Close").click()
    assert not text.is_visible()


def test_what_the_weights_are_worth_is_said(visit: Visit, folder: Path) -> None:
    page = visit()
    page.locator(".model-choice").first.wait_for()
    assert page.locator("#notice").inner_text() == NOTICE
    stamps = page.locator("#stamps").inner_text()
    assert "crop-32: stand-in weights: the numbers say nothing about the model" in stamps
    assert "several-32: demo model" in stamps and "whole-32" not in stamps
    assert page.locator(".kind").all_inner_texts() == ["stand-in weights", "demo weights"]
    drop(page, film(folder))
    answered(page)
    assert "the numbers say nothing about the model" in page.locator(".card[data-model=crop-32] .stamp").inner_text()
    assert page.locator(".card[data-model=whole-32] .stamp").count() == 0


def test_the_overlay_is_saved_with_what_it_is_worth(visit: Visit, folder: Path) -> None:
    page = visit()
    drop(page, film(folder))
    answered(page)
    finding = next(finding for name, finding in maps(page) if name == "several-32")
    with page.expect_download() as waiting:
        page.get_by_role("button", name=re.compile("Save the overlay of several-32")).click()
    assert waiting.value.suggested_filename == f"several-32-{finding}-tau0.50.png"
    picture = Image.open(waiting.value.path())
    assert picture.width == 1024 and picture.height > 1024 * 40 / 56 + 60  # the film and three lines below it
    below = np.asarray(picture.convert("L"))[round(1024 * 40 / 56) + 2 :]
    assert (below > 200).any() and np.median(below) < 40


def test_dicom_is_shown(visit: Visit, folder: Path) -> None:
    """Browsers cannot show it: the picture is the server's, with the grey scale the right way round."""
    page = visit()
    ramp = np.tile(np.linspace(0, 4000, 64).astype(np.uint16), (48, 1))
    drop(page, dicom(ramp), "film.dcm")
    answered(page)
    for label in ("map", "B(τ)", "maximum"):
        page.get_by_label(label, exact=True).uncheck()
    assert {data["picture"] for data in maps(page).values()} == {"there"}
    code = """() => {
        const canvas = document.querySelector('.map canvas');
        const row = canvas.getContext('2d').getImageData(0, canvas.height / 2, canvas.width, 1).data;
        return [canvas.width / canvas.height, row[4 * 40], row[4 * (canvas.width - 40)]];
    }"""
    aspect, left, right = page.evaluate(code)
    assert aspect == pytest.approx(64 / 48, abs=0.01) and left > 200 and right < 60  # MONOCHROME1: 0 is white


def dicom(stored: np.ndarray) -> bytes:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = DigitalXRayImageStorageForPresentation
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    made = Dataset()
    made.file_meta = meta
    made.SOPClassUID, made.SOPInstanceUID, made.Modality = meta.MediaStorageSOPClassUID, "1.2.3", "DX"
    made.Rows, made.Columns = stored.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME1"
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 16, 12, 11, 0
    made.PixelData = stored.tobytes()
    buffer = io.BytesIO()
    made.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
