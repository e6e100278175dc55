"""OHIF shows our overlay, mask and report in place, by the pixels of its pictures. A slow job: XBENCH_OHIF."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from viewer_archive import orthanc, served, upload, viewer_site
from viewer_hands import hands
from viewer_shown import BOX, MASK, SCALE, SOFT, STUDY, Picture, enlarged_film, film_and_objects, shots

pytest.importorskip("highdicom")

BORDER = 3  # pixels of a coloured frame around the viewport


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Picture]:
    site_folder = viewer_site()
    with orthanc(tmp_path_factory.mktemp("archive")) as archive:
        upload(archive, *film_and_objects())
        with served(site_folder, archive) as site, hands(site, STUDY) as hand:
            return shots(hand)


def frame(film: Picture) -> tuple[float, float, float, float]:
    """x, y and pixels a film pixel, across and down, of the film in a picture: its rows are grey and not black."""
    grey = (film.min(2) > 20) & (film.max(2) - film.min(2) < 12)
    rows = np.flatnonzero(grey.mean(1) > 0.9)
    across = film.shape[1] / (61 * SCALE)
    return 0.0, float(rows[0]), across, (rows[-1] + 1 - rows[0]) / (43 * SCALE)


def at_grid(picture: Picture, place: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """[224, 224, 3]: the colours at the places of the film that the cells of the evaluation grid have."""
    x, y, across, down = place
    columns = x + (np.arange(224) + 0.5) / 224 * 61 * SCALE * across
    rows = y + (np.arange(224) + 0.5) / 224 * 43 * SCALE * down
    columns = columns.clip(BORDER, picture.shape[1] - 1 - BORDER)
    return picture[np.ix_(rows.astype(int), columns.astype(int))].astype(float)


def near_the_rim(mask: NDArray[np.bool_], cells: int = 1) -> NDArray[np.bool_]:
    rim = np.zeros_like(mask)
    for down in range(-cells, cells + 1):
        for right in range(-cells, cells + 1):
            rim |= np.roll(mask, (down, right), (0, 1)) != mask
    return rim


def test_the_film_is_where_the_others_are_looked_for(pictures: Mapping[str, Picture]) -> None:
    _, stored = enlarged_film()
    x, y, across, down = frame(pictures["film"])
    assert abs(across - down) < 0.01 * across  # square pixels: the picture holds the whole film
    film = stored[np.ix_(np.arange(224) * stored.shape[0] // 224, np.arange(224) * stored.shape[1] // 224)]
    shown = at_grid(pictures["film"], (x, y, across, down))
    assert np.corrcoef(film.ravel(), shown[:, :, 0].ravel())[0, 1] > 0.995
    assert (shown.max(2) - shown.min(2)).max() < 12  # grey


def test_the_mask_is_in_place(pictures: Mapping[str, Picture]) -> None:
    shown = at_grid(pictures["mask"], frame(pictures["film"]))
    coloured = shown.max(2) - shown.min(2) > 25
    away = ~near_the_rim(MASK)
    np.testing.assert_array_equal(coloured[away], MASK[away])


def test_the_overlay_is_in_place(pictures: Mapping[str, Picture]) -> None:
    shown = at_grid(pictures["overlay"], frame(pictures["film"]))
    words = np.zeros((224, 224), bool)
    words[:20, :80] = True
    colour = shown.max(2) - shown.min(2)
    assert (colour[(SOFT < 0.01) & ~words] < 12).all() and (colour[SOFT > 0.6] > 25).all()
    outline = (shown[:, :, 2] > shown[:, :, 0] + 60) & (shown[:, :, 1] > shown[:, :, 0] + 60)  # cyan
    assert outline.sum() > 100 and not (outline & ~near_the_rim(MASK, 2)).any()
    assert shown[words].max() > 200  # RESEARCH USE ONLY


def test_the_box_of_the_report_is_in_place_with_its_probability(pictures: Mapping[str, Picture]) -> None:
    x, y, across, down = frame(pictures["film"])
    picture = pictures["report"].astype(int)
    green = (picture[:, :, 1] > 150) & (picture[:, :, 0] < 110) & (picture[:, :, 2] < 110)
    x0, x1 = (x + at / 224 * 61 * SCALE * across for at in (BOX[0], BOX[2]))
    y0, y1 = (y + at / 224 * 43 * SCALE * down for at in (BOX[1], BOX[3]))
    columns = np.flatnonzero(green.sum(0) > (y1 - y0) / 4)  # the sides, which are dashed
    rows = np.flatnonzero(green[:, : int(x1)].sum(1) > (x1 - x0) / 4)  # without the caption, to the right
    np.testing.assert_allclose((columns.min(), columns.max()), (x0, x1), atol=4)
    np.testing.assert_allclose((rows.min(), rows.max()), (y0, y1), atol=4)
    reach = int(0.01 * picture.shape[1])
    assert not green[int(y0) + reach : int(y1) - reach, int(x0) + reach : int(x1) - reach].any()
    caption = green[int(y0) : int(y1), int(x1) + reach :]
    assert caption.sum() > 100 and caption.sum() + green[:, : int(x1) + reach].sum() == green.sum()
