"""Real radiographs and whole annotation files, as they come (docs/published-datasets.md §1, §4)."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model

SQUASH = Geometry("squash", 224, 224, "bicubic")


def official(path: Path) -> np.ndarray:
    """KAD's own way: open, convert to RGB, resize; the three channels are equal for a grey film."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("folder", ["chestxdet10", "nih_cxr14"])
def test_png_films_equal_the_official_pipeline(shared: Path, folder: str) -> None:
    paths = sorted((shared / "data/images" / folder).glob("*.png"))
    assert len(paths) == {"chestxdet10": 40, "nih_cxr14": 12}[folder]
    for path in paths:
        grey = read_grey(path)
        assert grey.shape == (1024, 1024) and grey.std() > 10
        found = to_model(grey, SQUASH)
        for channel in range(3):
            np.testing.assert_array_equal(found, official(path)[..., channel], err_msg=path.name)


def area_means(values: np.ndarray, size: int) -> np.ndarray:
    """The mean of the area of each of `size` rows, from sums up to its edges."""
    sums = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(0)])
    edges = np.arange(size + 1) * len(values) / size
    whole = np.minimum(edges.astype(int), len(values) - 1)
    at = sums[whole] + (edges - whole)[:, None] * values[whole]
    return np.diff(at, axis=0) * size / len(values)


def test_padded_squares_equal_the_official_pipelines(shared: Path) -> None:
    """CheXzero's by Pillow in colour, as its authors have it; AFLoc's by means of areas, up to their rounding."""
    from PIL import Image

    folder = shared / "data/images"
    paths = [*sorted(folder.glob("chestxdet10/*.png"))[::6], *sorted(folder.glob("nih_cxr14/*.png"))[::3]]
    for path in [*paths, *folder.rglob("*.jpg")]:
        grey = read_grey(path)
        height, width = grey.shape
        with Image.open(path) as image:
            ratio = 320 / max(width, height)
            small = image.convert("RGB").resize((int(width * ratio), int(height * ratio)), Image.Resampling.LANCZOS)
        square = Image.new("L", (320, 320))
        square.paste(small.convert("L"), ((320 - small.width) // 2, (320 - small.height) // 2))
        np.testing.assert_array_equal(to_model(grey, Geometry("pad_crop", 320, 320, "lanczos")), np.asarray(square))
        rows, columns = (224, int(width * (224 / height))) if height >= width else (int(height * (224 / width)), 224)
        means = area_means(area_means(grey.astype(np.float64), rows).T, columns).T
        wanted = np.zeros((224, 224))
        top, left = (224 - rows) // 2, (224 - columns) // 2
        wanted[top : top + rows, left : left + columns] = means
        assert np.abs(to_model(grey, Geometry("pad_crop", 224, 224, "area")) - wanted).max() < 0.5 + 1e-6, path.name


def test_rsna_films_equal_pydicom_within_the_decoders_rounding(shared: Path) -> None:
    import pydicom

    paths = sorted((shared / "data/images/rsna/stage_2_train_images").glob("*.dcm"))
    assert len(paths) == 50
    for path in paths:
        grey = read_grey(path)
        stored = pydicom.dcmread(path).pixel_array
        assert grey.shape == (1024, 1024) and np.abs(grey.astype(int) - stored).max() <= 1


def test_rsna_films_show_the_films_they_were_made_from(shared: Path) -> None:
    """Bright stays bright: the DICOM of an NIH film is that film, not its negative."""
    rows = (shared / "data/annotations/rsna/provenance.csv").read_text().splitlines()[1:]
    pairs = [row.split(",")[:2] for row in rows]
    nih = {path.name: path for path in (shared / "data/images/nih_cxr14").glob("*.png")}
    names = (shared / "data/annotations/chestxdet10/file_name_to_nih.csv").read_text().splitlines()
    det10 = {cells[1]: cells[0] for cells in (line.split(",") for line in names[1:]) if len(cells) > 1}
    for key, name in pairs:
        other = nih.get(name) or shared / "data/images/chestxdet10" / det10.get(name, "none")
        if other.is_file():
            film = read_grey(shared / f"data/images/rsna/stage_2_train_images/{key}.dcm").astype(float)
            assert np.corrcoef(film.ravel(), read_grey(other).ravel())[0, 1] > 0.99


def test_monochrome1_with_fifteen_bits_is_windowed_then_inverted_once(shared: Path) -> None:
    import pydicom

    path = shared / "data/images/dicom_variety/RG1_UNCR.dcm"
    dataset = pydicom.dcmread(path)
    assert (dataset.PhotometricInterpretation, dataset.BitsStored) == ("MONOCHROME1", 15)
    values = dataset.pixel_array.astype(np.float64)
    centre, width = float(dataset.WindowCenter), float(dataset.WindowWidth)
    windowed = np.clip((values - (centre - 0.5)) / (width - 1) + 0.5, 0, 1)
    inverted = windowed.max() + windowed.min() - windowed
    expected = (inverted - inverted.min()) / (inverted.max() - inverted.min()) * 255
    found = read_grey(path)
    assert found.shape == (1955, 1841) and np.abs(found - expected).max() <= 0.5 + 1e-6
    # Bone and mediastinum are brighter than the air beside the neck.
    assert found[:, 800:1000].mean() > found[:60, :60].mean()


def test_a_tag_changed_to_monochrome1_turns_the_film_over(shared: Path) -> None:
    turned = read_grey(shared / "data/images/dicom_variety/Fake_MONOHR1.dcm").astype(int)
    plain = read_grey(next((shared / "data/images/siim").rglob("*.dcm"))).astype(int)
    np.testing.assert_array_equal(turned, plain.max() + plain.min() - plain)


def test_the_same_film_as_png_and_as_uncompressed_dicom_is_eight_bit_and_unchanged(shared: Path) -> None:
    import pydicom

    path = next((shared / "data/images/dicom_variety").glob("nih_*.dcm"))
    np.testing.assert_array_equal(read_grey(path), pydicom.dcmread(path).pixel_array)


def test_full_size_jpeg_films(shared: Path) -> None:
    from PIL import Image

    sizes = set()
    for path in (shared / "data/images/chexlocalize").rglob("*.jpg"):
        grey = read_grey(path)
        sizes.add(grey.shape)
        np.testing.assert_array_equal(grey, np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L")))
    assert sizes == {(2320, 2828), (2022, 2021)}


def test_decoding_in_threads_gives_the_same_pixels(shared: Path) -> None:
    paths = sorted((shared / "data/images/chestxdet10").glob("*.png"))[:12]
    paths += sorted((shared / "data/images/rsna/stage_2_train_images").glob("*.dcm"))[:12]
    alone = [to_model(read_grey(path), SQUASH) for path in paths]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(alone, pool.map(lambda path: to_model(read_grey(path), SQUASH), paths), strict=True):
            np.testing.assert_array_equal(one, other)


def test_chestxdet10_subset_from_file_to_store(shared: Path, tmp_path: Path) -> None:
    dataset = ChestXDet10(
        shared / "data/annotations/chestxdet10",
        annotations="all_subset.json",
        images=shared / "data/images/chestxdet10",
    )
    found = audit(dataset, decode=True, threads=2)
    assert (found.images_expected, found.images_missing, found.unreadable, found.unannotated_files) == (40, 0, 0, 0)
    assert (found.with_region, found.without_finding, found.size_differs, found.constant) == (30, 10, 0, 0)
    assert found.passed and found.is_official is False
    cases = dataset.cases()
    with PreparedStore.open(tmp_path, dataset.name, cases, SQUASH) as store:
        for number, case in enumerate(cases):
            pixels, height, width = store.load(number)
            assert pixels.shape == (224, 224) and (height, width) == (1024, 1024)
            for region in case.regions.values():
                grid, _ = region_grid(region, height, width)
                index = np.arange(224) * 1024 // 224
                np.testing.assert_array_equal(grid, region.mask(height, width)[index][:, index])
    with PreparedStore.open(tmp_path, dataset.name, cases, SQUASH) as store:
        assert all(store.get(number) is not None for number in range(len(cases)))


def test_rsna_subset_with_its_class_file(shared: Path) -> None:
    dataset = Rsna(shared / "data/annotations/rsna", images=shared / "data/images/rsna/stage_2_train_images")
    found = audit(dataset, decode=True, threads=2)
    assert (found.images_expected, found.images_missing, found.unreadable) == (50, 0, 0)
    assert found.positives == {"pneumonia": 29} and found.negatives == {"pneumonia": 21}
    assert dataset.class_file is not None and not dataset.notes and found.passed and found.size_differs == 0
