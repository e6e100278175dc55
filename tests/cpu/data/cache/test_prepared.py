"""The store of prepared images: what it keeps, what it forgets, and what it survives."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from locked import refuse_writes
from make_images import encode
from xbench_fast.engines.errors import ImageAccessError, ImageError, RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.cache.preparing import PreparedSet
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.images.contents import file_state
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model

SQUASH = Geometry("squash", 32, 32, "bicubic")


def picture(seed: int, shape: tuple[int, int] = (40, 50)) -> bytes:
    return encode(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8), "PNG")


def make_cases(folder: Path, count: int = 6) -> list[Case]:
    """Cases 0 .. count-1; their images exist but for the last, and the one before it is damaged."""
    folder.mkdir(exist_ok=True)
    cases = [Case(f"c{n}", folder / f"{n}.png", {}, {}, "all") for n in range(count)]
    for number, case in enumerate(cases[:-1]):
        case.image.write_bytes(picture(number, (40 + number, 50)))
    cases[-2].image.write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    return cases


def reason(store: PreparedStore, index: int) -> str | None:
    """Why the image of a case is known to be unreadable."""
    try:
        store.find(index, file_state(store.path(index)))
    except ImageError as error:
        return str(error)
    except FileNotFoundError:
        pass
    return None


def test_an_image_is_decoded_once_and_read_from_the_store_afterwards(tmp_path: Path, monkeypatch: object) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.is_kept and store.note is None and len(store) == 6 and store.get(0) is None
        first = [store.load(n) for n in range(4)]
    for number, (pixels, height, width) in enumerate(first):
        assert (height, width) == (40 + number, 50)
        np.testing.assert_array_equal(pixels, to_model(read_grey(cases[number].image), SQUASH))
    import xbench_fast.runtime.data.cache.image_store as module

    monkeypatch.setattr(module, "decode_grey", lambda *given, **how: pytest.fail("decoded again"))  # type: ignore[attr-defined]
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        for number, (pixels, height, width) in enumerate(first):
            assert store.load(number)[1:] == (height, width)
            np.testing.assert_array_equal(store(cases[number])[0], pixels)
            view = store.get(number)
            assert view is not None and not view.flags.writeable and view.shape == (32, 32)
    np.testing.assert_array_equal(view, first[3][0])  # a view outlives the store


def test_unreadable_and_missing_images(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    for _ in range(2):
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
            with pytest.raises(ImageError, match=r"4\.png cannot be read"):
                store.load(4)
            assert "4.png" in (reason(store, 4) or "") and store.get(4) is None
            with pytest.raises(FileNotFoundError):
                store.load(5)
            assert reason(store, 5) is None and store.get(5) is None
    cases[4].image.write_bytes(picture(9))
    cases[5].image.write_bytes(picture(10))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.load(4)[1:] == (40, 50) and store.load(5)[1:] == (40, 50) and reason(store, 4) is None


@pytest.mark.parametrize(
    ("place", "error", "cause"),
    [
        ("pathlib.Path.read_bytes", OSError(errno.EIO, "Input/output error"), "Input/output error"),
        ("pathlib.Path.read_bytes", OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        ("pathlib.Path.read_bytes", MemoryError(), "not enough memory"),
        ("xbench_fast.runtime.data.images.decode.decode_png", MemoryError(), "MemoryError"),
        ("xbench_fast.runtime.data.images.decode.decode_png", OSError(errno.EMFILE, "Too many open files"), "Too many"),
        ("xbench_fast.runtime.data.images.decode.decode_png", ImportError("no codec"), "no codec"),
    ],
)
def test_what_is_not_the_fault_of_the_image_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception, cause: str
) -> None:
    cases = make_cases(tmp_path / "images")

    def failing(*_: object, **how: object) -> None:
        raise error

    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        with monkeypatch.context() as patch:
            patch.setattr(place, failing)
            with pytest.raises(ImageAccessError, match=rf"0\.png cannot be read.*{cause}"):
                store.load(0)
        assert reason(store, 0) is None
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.load(0)[1:] == (40, 50)


def test_what_is_the_fault_of_the_image_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large a file, a file cut short (an OSError without number in Pillow), and an empty one."""
    cases = make_cases(tmp_path / "images")
    cases[0].image.write_bytes(encode(np.eye(90, dtype=np.uint8), "JPEG")[:-60])
    cases[1].image.write_bytes(b"")
    with cases[2].image.open("wb") as stream:
        stream.truncate((1 << 29) + 1)
    for _ in range(2):
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
            for number in range(3):
                with pytest.raises(ImageError) as caught:
                    store.load(number)
                assert not isinstance(caught.value, ImageAccessError) and reason(store, number)
        again = "xbench_fast.runtime.data.cache.image_store.decode_grey"
        monkeypatch.setattr(again, lambda *given, **how: pytest.fail("decoded again"))


def test_put_and_mark_by_hand(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    pixels = np.arange(1024, dtype=np.uint8).reshape(32, 32)
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.put(1, pixels, (41, 50))
        store.refuse(2, "it is\nodd", file_state(cases[2].image))
        with pytest.raises(ValueError, match="uint8"):
            store.put(0, pixels.astype(np.float32), (1, 1))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="32"):
            store.put(0, pixels[:3], (1, 1))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        np.testing.assert_array_equal(store.get(1), pixels)
        assert reason(store, 2) == "it is\nodd" and store.load(1)[1:] == (41, 50)
        store.put(1, 255 - pixels, (41, 50))
        np.testing.assert_array_equal(store.get(1), 255 - pixels)


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        old = store.load(0)[0].copy()
    cases[0].image.write_bytes(picture(77, (60, 20)))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.get(0) is None
        pixels, height, width = store.load(0)
        assert (height, width) == (60, 20) and not np.array_equal(pixels, old)


def test_another_geometry_or_set_of_cases_has_its_own_place(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    other = Geometry("crop", 32, 32, "bicubic")
    with PreparedStore.open(tmp_path / "cache", "a/../b", cases, SQUASH) as store:
        store.load(0)
        with PreparedStore.open(tmp_path / "cache", "a/../b", cases, other) as second:
            assert second.is_kept and second.get(0) is None
        with PreparedStore.open(tmp_path / "cache", "a/../b", cases[:3], SQUASH) as third:
            assert third.is_kept and third.get(0) is None
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_no_cases(tmp_path: Path) -> None:
    with PreparedStore.open(tmp_path / "cache", "demo", [], SQUASH) as store:
        assert len(store) == 0


def test_a_second_process_reads_what_is_ready_and_keeps_nothing(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        kept = store.load(0)[0]
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as second:
            assert not second.is_kept and "in use by another process" in (second.note or "")
            shared = second.get(0)
            assert shared is not None and not shared.flags.writeable
            pixels, height, width = second.load(0)
            np.testing.assert_array_equal(pixels, kept)
            assert (height, width) == (40, 50) == second.load(0)[1:]
            second.load(1)
            assert store.get(1) is None and second.get(1) is None
            later = store.load(1)[0]
            np.testing.assert_array_equal(second.get(1), later)
            cases[1].image.write_bytes(picture(78, (61, 20)))
            assert second.get(1) is None and second.load(1)[1:] == (61, 20)
            for _ in range(2):
                with pytest.raises(ImageError):
                    second.load(4)
        assert store.get(0) is not None
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as third:
        assert third.is_kept


@pytest.mark.parametrize("name", ["index.json", "records.bin", "pixels.bin"])
@pytest.mark.parametrize("damage", ["empty", "rubbish", "gone", "longer"])
def test_a_damaged_store_is_begun_again(tmp_path: Path, name: str, damage: str) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        expected = store.load(0)[0].copy()
    file = next((tmp_path / "cache").iterdir()) / name
    content = {"empty": b"", "rubbish": b'{"meaning": 3}', "longer": file.read_bytes() + b" x"}
    file.unlink() if damage == "gone" else file.write_bytes(content[damage])
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.get(0) is None
        np.testing.assert_array_equal(store.load(0)[0], expected)


def test_a_store_left_open_before_a_restart_of_the_machine_is_emptied(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.load(0)
        index = next((tmp_path / "cache").iterdir()) / "index.json"
        while_open = json.loads(index.read_text())
    assert while_open["open_since_boot"] and json.loads(index.read_text())["open_since_boot"] is None
    index.write_text(json.dumps(while_open))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.get(0) is not None  # the same start of the machine: the page cache kept everything
    index.write_text(json.dumps({**while_open, "open_since_boot": "another"}))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.get(0) is None


def test_a_torn_line_among_the_reasons_is_skipped(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.refuse(2, "odd", file_state(cases[2].image))
    with (next((tmp_path / "cache").iterdir()) / "reasons.jsonl").open("a") as stream:
        stream.write('[1]\n{"case": 99, "reason": "x"}\n{"case": 3, "rea')
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert reason(store, 2) == "odd" and reason(store, 3) is None
        store.refuse(3, "odder", file_state(cases[3].image))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert reason(store, 2) == "odd"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
def test_a_full_disk_is_a_sentence_and_leaves_the_slot_empty(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        files = store._files
        assert files is not None
        full = os.open("/dev/full", os.O_RDWR)
        true_file, files.pixel_file = files.pixel_file, full
        with pytest.raises(RunError, match=r"The disk is full: .* free space or choose another cache"):
            store.load(0)
        assert store.get(0) is None
        # A slot that was ready must not stay so while its pixels are being replaced.
        files.pixel_file = true_file
        store.load(1)
        files.pixel_file = full
        with pytest.raises(RunError, match="The disk is full"):
            store.put(1, np.zeros((32, 32), np.uint8), (1, 1))
        assert store.get(1) is None
        files.pixel_file = true_file
        os.close(full)
        assert store.load(0)[1:] == (40, 50)


def test_a_cache_that_cannot_be_created_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(RunError, match="choose another cache"):
        PreparedStore.open(tmp_path / "cache", "demo", [], SQUASH)


def test_other_failures_of_the_disk_are_sentences_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:

        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", broken)
            with pytest.raises(RunError, match="Input/output error; choose another cache"):
                store.load(0)


def test_many_threads(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images", 40)
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(store.load, range(38)))
        again = list(pool.map(store.load, range(38)))
    for number, ((pixels, height, _), second) in enumerate(zip(found, again, strict=True)):
        assert height == 40 + number
        np.testing.assert_array_equal(pixels, to_model(read_grey(cases[number].image), SQUASH))
        np.testing.assert_array_equal(pixels, second[0])


def test_a_killed_process_leaves_only_whole_or_empty_slots(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images", 30)
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        import numpy as np
        from xbench_fast.engines.geometry import Geometry
        from xbench_fast.runtime.data.datasets.dataset import Case
        from xbench_fast.runtime.data.cache.image_store import PreparedStore
        root = Path(sys.argv[1])
        cases = [Case(f"c{n}", root / "images" / f"{n}.png", {}, {}, "all") for n in range(30)]
        store = PreparedStore.open(root / "cache", "demo", cases, Geometry("squash", 32, 32, "bicubic"))
        turn = 0
        while True:
            for n in range(20):
                store.put(n, np.full((32, 32), (n + turn) % 251, np.uint8), ((n + turn) % 251 + 1, 50))
            if turn == 0:
                print("ready", flush=True)
            turn += 1
        """
    )
    for pause in (0.0, 0.02, 0.05):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
            assert store.is_kept
            ready = [number for number in range(20) if store.get(number) is not None]
            assert len(ready) >= 19  # at most the slot that was being written is lost
            for number in ready:
                pixels = store.get(number)
                assert pixels is not None and (pixels == pixels[0, 0]).all()
                assert store.load(number)[1:] == (int(pixels[0, 0]) + 1, 50)


def test_pixels_that_are_replaced_while_they_are_read_are_not_taken(tmp_path: Path) -> None:
    """Another process may write between the first look at the record and the copy of the pixels."""
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        kept = store.load(0)[0].copy()
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as second:
            files = second._files
            assert files is not None and not files.writes

            class Overtaken:
                def __getitem__(self, index: int) -> np.ndarray:
                    store.refuse(index, "the writer was faster", file_state(cases[index].image))
                    return np.zeros((32, 32), np.uint8)

            files.pixels, true_pixels = Overtaken(), files.pixels  # type: ignore[assignment]
            assert second.get(0) is None
            store.put(0, kept, (40, 50))
            files.pixels = true_pixels
            np.testing.assert_array_equal(second.get(0), kept)


def test_an_unreadable_image_without_its_reason_is_read_again(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.refuse(2, "odd", file_state(cases[2].image))
    (next((tmp_path / "cache").iterdir()) / "reasons.jsonl").unlink()
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert all(store.lacks(number, file_state(cases[number].image)) for number in (1, 2))
        assert store.load(2)[1:] == (42, 50)


def test_a_folder_in_place_of_an_image_is_missing(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    cases[0].image.unlink()
    cases[0].image.mkdir()
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        with pytest.raises(FileNotFoundError):
            store.load(0)
        with pytest.raises(FileNotFoundError):
            file_state(cases[1].image / "below a file")


def test_cases_of_one_image_share_its_slot(tmp_path: Path) -> None:
    film = make_cases(tmp_path / "images")[0].image
    cases = [Case(name, film, {}, {}, "all") for name in "ab"]
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.load(1)
        assert store._files is not None and store._files.records["state"].tolist() == [1, 0]
        np.testing.assert_array_equal(store.get(0), store.load(1)[0])


def test_a_skipped_case_is_left_out_while_the_store_is_open(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        store.skip(0, "the device failed")
        with pytest.raises(ImageAccessError, match="the device failed"):
            store.load(0)
        assert not store.lacks(0, file_state(cases[0].image))
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert store.load(0)[1:] == (40, 50)


def test_stores_are_opened_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that wait for each other's stores would wait for ever."""
    cases, other = make_cases(tmp_path / "images"), Geometry("crop", 32, 36, "bicubic")
    opened: list[str] = []
    real = PreparedStore.open

    def noting(root: Path, name: str, cases: list[Case], geometry: Geometry, **how: object) -> PreparedStore:
        opened.append(geometry.key)
        return real(root, name, cases, geometry, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(PreparedStore, "open", noting)
    for geometries in ([SQUASH, other], [other, SQUASH]):
        with PreparedSet.open(tmp_path / "cache", "demo", cases, geometries):
            assert opened == sorted([SQUASH.key, other.key])
        opened.clear()


@pytest.mark.parametrize("file", ["pixels.bin", "records.bin", "reasons.jsonl"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_flipped_bit_is_never_used(tmp_path: Path, file: str, shared: bool) -> None:
    """Neither by the process that writes nor by one that reads beside it."""
    cases = make_cases(tmp_path / "images")
    expected = [to_model(read_grey(case.image), SQUASH) for case in cases[:4]]
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        for number in range(4):
            store.load(number)
        with pytest.raises(ImageError) as caught:
            store.load(4)
    target = next((tmp_path / "cache").iterdir()) / file
    content, used = target.read_bytes(), 0
    for bit in np.random.default_rng(3).choice(8 * len(content), 24, replace=False).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as first:
            target.write_bytes(flipped)
            if shared:
                with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
                    found = [store.get(number) for number in range(4)]
                    assert store.load(0)[1:] == (40, 50) and not store.is_kept
            else:
                found = [first.get(number) for number in range(4)]
            for got, wanted in zip(found, expected, strict=True):
                assert got is None or (got == wanted).all()
            used += sum(got is not None for got in found)
            target.write_bytes(content)
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
            for number, wanted in enumerate(expected):
                np.testing.assert_array_equal(store.load(number)[0], wanted)
            with pytest.raises(ImageError) as again:
                store.load(4)
            assert str(again.value) == str(caught.value)
    assert used >= 24 * 3


def test_a_damaged_image_is_decoded_again_and_counted(tmp_path: Path) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        first = [store.load(number)[0].copy() for number in range(3)]
    target = next((tmp_path / "cache").iterdir()) / "pixels.bin"
    content = bytearray(target.read_bytes())
    content[1024 + 7] ^= 1
    target.write_bytes(content)
    with PreparedSet.open(tmp_path / "cache", "demo", cases, [SQUASH]) as images:
        assert [images.fill(number) for number in range(3)] == ["ready", "decoded", "ready"] and images.damaged == 1
        np.testing.assert_array_equal(images.source(SQUASH)(cases[1])[0], first[1])
    with PreparedSet.open(tmp_path / "cache", "demo", cases, [SQUASH]) as images:
        assert images.fill(1) == "ready" and images.damaged == 0


def test_a_read_only_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = make_cases(tmp_path / "images")
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        kept = store.load(0)[0].copy()
    refuse_writes(tmp_path / "cache", monkeypatch)
    with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
        assert not store.is_kept and "cannot be written (Read-only file system)" in (store.note or "")
        found = store.get(0)
        assert found is not None
        np.testing.assert_array_equal(found, kept)
        assert store.load(1)[1:] == (41, 50) and store.get(1) is None
    with PreparedStore.open(tmp_path / "cache", "other", cases, SQUASH) as store:
        assert "images are not kept" in (store.note or "") and store.load(2)[1:] == (42, 50)


def test_a_command_that_fills_a_read_only_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = make_cases(tmp_path / "images")
    PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH).close()
    refuse_writes(tmp_path / "cache", monkeypatch)
    for name in ("demo", "other"):
        with pytest.raises(RunError, match=r"Read-only file system; choose another cache\."):
            PreparedStore.open(tmp_path / "cache", name, cases, SQUASH, wait=lambda folder: None)
    with pytest.raises(RunError, match="choose another cache"):  # a mistyped folder is no read-only cache
        PreparedStore.open(tmp_path / "cache" / "absent", "demo", cases, SQUASH)
