"""The choice of the decoder, and NVIDIA DALI: its pipelines run on the CPU here, where DALI is installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from make_images import dicom, encode
from PIL import Image
from xbench_fast.engines.errors import EngineError, ImageAccessError, ImageError, MissingExtraError, RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.preparing import PreparedSet, prepare
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.images import dali, decoders
from xbench_fast.runtime.data.images.dali import DaliDecoder, dali_version, supports
from xbench_fast.runtime.data.images.decode import read_grey, reader_version
from xbench_fast.runtime.data.images.decoder_checks import check_gpu_decoder
from xbench_fast.runtime.data.images.decoders import CPU, Decoder, choose_decoder, dali_difference
from xbench_fast.runtime.data.images.resizing import to_model

SQUASH = Geometry("squash", 64, 64, "bicubic")
CROP = Geometry("crop", 48, 64, "bilinear")
AREA = Geometry("pad_crop", 32, 40, "area")

needs_dali = pytest.mark.skipif(dali_version() is None, reason="DALI is not installed (extra gpu)")


def film(height: int = 300, width: int = 260) -> Any:
    y, x = np.mgrid[0:height, 0:width] / 300.0
    return np.clip(120 + 80 * np.cos(6 * x) * np.sin(5 * y), 0, 255).astype(np.uint8)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A film in all the forms that matter; the sixth is damaged, the seventh is missing."""
    grey, deep = film(), film().astype(np.uint16) * 257
    contents = [
        encode(grey, "PNG"),
        encode(grey, "JPEG", quality=97),
        encode(deep, "PNG"),
        encode(grey, "JPEG", "RGB", quality=97),
        dicom(grey),
        encode(grey, "JPEG", quality=97)[:900],
    ]
    paths = [tmp_path / f"film{number}" for number in range(7)]
    for path, content in zip(paths, contents, strict=False):
        path.write_bytes(content)
    return paths


def close(found: Any, path: Path, geometry: Geometry) -> bool:
    """DALI treats the border otherwise, so what is compared lies inside."""
    error = np.abs(to_model(read_grey(path), geometry).astype(int) - found)
    return bool(error[3:-3, 3:-3].max() <= 3 and error.mean() < 1)


def test_auto_is_exact_and_dali_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_decoder("cpu") == (CPU, None)
    monkeypatch.setattr(decoders, "dali_version", lambda: "9")

    def unusable(device: int | None = 0) -> Any:
        raise EngineError("DALI cannot run here: no GPU")

    monkeypatch.setattr(decoders, "dali_difference", unusable)
    assert choose_decoder("auto") == (CPU, None)
    with pytest.raises(EngineError, match="no GPU"):
        choose_decoder("dali")
    monkeypatch.setattr(decoders, "dali_difference", lambda device: decoders.DecoderDifference(7, 0.12, 0.1))
    assert choose_decoder("auto") == (CPU, None)
    decoder, line = choose_decoder("dali")
    assert decoder.name == "dali" and "at most 7 of 255 grey levels" in str(line) and "cpu is exact" in str(line)


@pytest.mark.skipif(dali_version() is not None, reason="DALI is installed here")
def test_without_dali_the_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"install xbench-fast\[gpu\]"):
        choose_decoder("dali")
    found = next(check_gpu_decoder())
    assert found.group == "gpu" and not found.usable and "not installed" in found.reason


def test_the_decoder_is_part_of_every_key() -> None:
    decoder = Decoder("dali")
    assert supports(SQUASH) and supports(CROP) and not supports(AREA)
    assert CPU.describe(SQUASH) == f"cpu {reader_version()}" == decoder.describe(AREA)
    assert decoder.describe(SQUASH).startswith("dali dali-") and reader_version() in decoder.reader(SQUASH)
    assert decoder.reader(SQUASH) != decoder.reader(AREA) == CPU.reader(SQUASH)
    with pytest.raises(EngineError, match="use --decoder cpu"):
        DaliDecoder([SQUASH, AREA])


class Stand:
    """In DALI's place: the exact pixels, each one grey level off."""

    asked: list[str]

    def __init__(self, geometries: Sequence[Geometry], **options: Any) -> None:
        self.geometries = geometries
        Stand.asked = []

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def decode(self, paths: Sequence[Path]) -> list[Any]:
        Stand.asked += [path.name for path in paths]
        return [self._one(path) for path in paths]

    def _one(self, path: Path) -> Any:
        try:
            grey = read_grey(path)
        except ImageError as error:
            return error
        return [to_model(grey, geometry) ^ 1 for geometry in self.geometries], *grey.shape


STAND_ONE = Stand._one


def test_the_cache_is_filled_by_the_decoder_and_kept_apart(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dali, "DaliDecoder", Stand)
    decoder, cache = Decoder("dali"), tmp_path / "cache"
    cases = [Case(f"c{n}", path, {}, {}, "all") for n, path in enumerate([*files, files[0]])]
    Stand.asked = []
    for turn in range(2):
        Stand.asked.clear()
        with PreparedSet.open(cache, "films", cases, [SQUASH, CROP, AREA], reader=decoder.reader) as images:
            done = prepare(images, range(len(cases)), 2, lambda count: None, decoder)
            assert (done.missing, done.unreadable) == (1, 1)
            # The area geometry goes the exact way, in the same stores' order.
            assert done.decoded >= 5 if turn == 0 else (done.decoded, done.ready) == (0, 6)
            assert sorted(Stand.asked) == ([f"film{n}" for n in range(6)] if turn == 0 else [])
            for geometry in (SQUASH, CROP, AREA):
                source = images.source(geometry)
                expected = to_model(read_grey(files[2]), geometry)
                np.testing.assert_array_equal(source(cases[2])[0], expected if geometry == AREA else expected ^ 1)
                with pytest.raises(ImageError):
                    source(cases[5])
    with PreparedSet.open(cache, "films", cases, [SQUASH]) as exact:
        np.testing.assert_array_equal(exact.source(SQUASH)(cases[2])[0], to_model(read_grey(files[2]), SQUASH))
    assert len(list(cache.iterdir())) == 4


def test_an_evaluation_names_the_decoder_and_needs_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from evaluation_world import World
    from synthetic import make_bundle, make_dataset
    from xbench_fast.runtime.evaluation.cell_sources import source_opener
    from xbench_fast.runtime.host.config import DatasetConfig
    from xbench_fast.runtime.results.loaded_dataset import load_dataset

    monkeypatch.setattr(dali, "DaliDecoder", Stand)
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 6), "coco")
    bundle, world, decoder = make_bundle(tmp_path / "blocks-32"), World(tmp_path), Decoder("dali")
    geometry, loaded = bundle.manifest.geometry, load_dataset(data)
    assert world.run([bundle.path], [data], cache=tmp_path / "cache").computed == 1
    assert world.run([bundle.path], [data], cache=tmp_path / "cache", decoder=decoder).computed == 1
    assert world.entry()["ingredients"]["decoder"] == decoder.describe(geometry) != CPU.describe(geometry)
    assert any("because this changed: decoder" in line for line in world.lines)
    assert any("6 images: 6 decoded" in line for line in world.lines)
    # A second model with the same geometry reads what was decoded for the first; the decoder is not even started.
    made: list[int] = []
    monkeypatch.setattr(Stand, "__enter__", lambda self: made.append(1) or self)
    other = make_bundle(tmp_path / "second-32")
    assert world.run([bundle.path, other.path], [data], cache=tmp_path / "new", decoder=decoder).computed >= 1
    assert world.entry("second-32--coco")["state"] == "done" and made == [1] and len(Stand.asked) == 6
    for cache, limit in ((None, None), (tmp_path / "small", 10)):
        opened = source_opener(cache, world.lines.append, limit=limit, decoder=decoder)
        with pytest.raises(RunError, match="needs room for the prepared images of coco"), opened(loaded, geometry):
            pass


def test_trust_and_eval_share_a_cache_and_never_the_pixels_of_two_decoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    from synthetic import make_bundle, make_dataset
    from xbench_fast.runtime.cli import main
    from xbench_fast.runtime.evaluation import run_evaluation as evaluate
    from xbench_fast.runtime.trust.probes import trust_run as trust

    def chosen(name: str, device: int = 0) -> tuple[Decoder, str | None]:
        return (Decoder("dali"), "decoder: dali, a stand-in") if name == "dali" else (CPU, None)

    monkeypatch.setattr(dali, "DaliDecoder", Stand)
    for module in (trust, evaluate):
        monkeypatch.setattr(module, "choose_decoder", chosen)
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models/blocks-32")
    make_dataset(tmp_path / "data", 6)
    asked = ["--bundles", "models", "--data", "coco=data", "--engine", "synthetic:BlockEngine", "--threads", "1"]
    Stand.asked = []

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words, *asked])
        assert ended.value.code == 0
        return capsys.readouterr().out

    def logits(out: str) -> list[float]:
        (file,) = Path(out, "cells").glob("*.parquet")
        return pq.read_table(file)["logit"].to_pylist()

    run("eval", "--model", "blocks-32", "--cache", "cache", "--decoder", "dali")
    asks = ["trust", "--model", "blocks-32", "--probe", "repeat"]
    for out, decoder, cache in (("dali", "dali", True), ("cpu", "cpu", True), ("none", "cpu", False)):
        said = run(*asks, "--out", out, "--decoder", decoder, *(["--cache", "cache"] if cache else []))
        assert ("a stand-in" in said) == (decoder == "dali")
    assert len(Stand.asked) == 6, "what eval has decoded is not decoded again"
    assert logits("cpu") == logits("none") != logits("dali")
    said = run(*asks, "--out", "none", "--decoder", "dali", "--cache", "cache")
    assert "computed again, because this changed: decoder" in said


def test_the_pipeline_leaves_an_exif_orientation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    package = MagicMock()
    for name in ("nvidia", "nvidia.dali", "nvidia.dali.fn", "nvidia.dali.types"):
        monkeypatch.setitem(sys.modules, name, package if name == "nvidia.dali.fn" else MagicMock())
    DaliDecoder([SQUASH])
    assert package.decoders.image.call_args.kwargs["adjust_orientation"] is False


def test_a_file_that_fails_by_chance_is_left_out_of_the_run_and_tried_in_the_next(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the exact decoder fill the gap: a store holds the pixels of one decoder."""
    monkeypatch.setattr(dali, "DaliDecoder", Stand)
    decoder, case = Decoder("dali"), Case("c", files[0], {}, {}, "all")
    busy = ImageAccessError("too many open files")
    for turn in range(2):
        monkeypatch.setattr(Stand, "_one", (lambda self, path: busy) if turn == 0 else STAND_ONE)
        with PreparedSet.open(tmp_path / "cache", "films", [case], [SQUASH], reader=decoder.reader) as images:
            done = prepare(images, range(1), 1, lambda count: None, decoder)
            assert (done.decoded, done.ready, done.unreadable) == ((0, 0, 1) if turn == 0 else (1, 0, 0))
            if turn == 0:
                with pytest.raises(ImageAccessError, match="too many open files"):
                    images.source(SQUASH)(case)
            else:
                expected = to_model(read_grey(files[0]), SQUASH) ^ 1
                np.testing.assert_array_equal(images.source(SQUASH)(case)[0], expected)


@needs_dali
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_exif_orientation_is_not_applied(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned"
    path.write_bytes(encode(film(), kind, exif=exif, **({"quality": 97} if kind == "JPEG" else {})))
    with DaliDecoder([SQUASH], device=None) as decoder:
        (found,) = decoder.decode([path])
    assert not isinstance(found, ImageError) and found[1:] == (300, 260) and close(found[0][0], path, SQUASH)


@needs_dali
def test_pipelines_decode_every_kind_of_file(files: list[Path]) -> None:
    with DaliDecoder([SQUASH, CROP], batch=3, device=None) as decoder:
        for _ in range(2):
            found = decoder.decode(files)
            for path, item in zip(files[:5], found[:5], strict=True):
                assert not isinstance(item, ImageError) and item[1:] == (300, 260)
                assert close(item[0][0], path, SQUASH) and close(item[0][1], path, CROP)
            for number, item in enumerate(found[5:], 5):
                assert isinstance(item, ImageError) and f"film{number} cannot be read" in str(item)


@needs_dali
def test_batches_are_handed_over_by_dlpack(files: list[Path]) -> None:
    errors: dict[int, ImageError] = {}
    with DaliDecoder([SQUASH], batch=8, device=None) as decoder:
        batches = [(np.from_dlpack(b.tensors[0]).copy(), b) for b in decoder.batches(files[:5], errors)]
    assert not errors and sorted(n for _, batch in batches for n in batch.numbers) == [0, 1, 2, 3, 4]
    for pixels, batch in batches:
        assert pixels.shape == (len(batch.numbers), 64, 64, 1) and pixels.dtype == np.uint8


@needs_dali
def test_the_difference_is_measured() -> None:
    found = dali_difference(None)
    assert 0 < found.largest < 30 and 0 < found.mean < 1 and 0 < found.share < 1


@needs_dali
def test_a_decoder_of_another_picture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "to_model", lambda grey, geometry: 255 - to_model(grey, geometry))
    with pytest.raises(EngineError, match="decodes a test image wrongly"):
        dali_difference(None)
