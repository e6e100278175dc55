"""Bundles that are written by several at once, or where the disk refuses half-way: one whole bundle is there."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_bundle, prompt_set
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.errors import BundleError
from xbench_fast.engines.prompts.prompt_encoding import add_prompts
from xbench_fast.engines.replacing import put, sibling, turn


def files_of(bundle: Bundle) -> dict[str, Path]:
    return {name: bundle.path / name for name in bundle.manifest.files}


def at_once(*jobs: Callable[[], object]) -> list[object]:
    """What the jobs return, or the errors they raise, run in threads that start together."""
    found: list[object] = [None] * len(jobs)
    barrier = threading.Barrier(len(jobs))

    def run(index: int) -> None:
        barrier.wait()
        try:
            found[index] = jobs[index]()
        except BundleError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_of_writers_without_force_one_succeeds(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have looked before any of them has written."""
    source = make_bundle(tmp_path / "blocks")
    looked = threading.Barrier(4)
    real = Bundle.load

    def load(path: Path, **how: Any) -> Bundle:
        if path.name.endswith(".part") and not how:
            looked.wait(30)
        return real(path, **how)

    monkeypatch.setattr(Bundle, "load", staticmethod(load))

    def write(variant: str) -> Callable[[], str]:
        manifest = dataclasses.replace(source.manifest, variant=variant)
        return lambda: write_bundle(out / "same", manifest, files_of(source)).manifest.variant

    found = at_once(*(write(f"writer{n}") for n in range(4)))
    won = [value for value in found if isinstance(value, str)]
    assert len(won) == 1 and real(out / "same").manifest.variant == won[0]
    assert all("already exists" in str(value) for value in found if value != won[0])
    assert names_in(out) == ["same"]


def test_writers_with_force_leave_one_whole_bundle(tmp_path: Path, out: Path) -> None:
    source = make_bundle(tmp_path / "blocks")

    def write(variant: str) -> Callable[[], object]:
        manifest = dataclasses.replace(source.manifest, variant=variant)
        return lambda: write_bundle(out / "same", manifest, files_of(source), replace=True).manifest.variant

    for _ in range(5):
        names = [f"writer{n}" for n in range(4)]
        assert at_once(*map(write, names)) == names, "each got back what it wrote"
        assert Bundle.load(out / "same").manifest.variant in names and names_in(out) == ["same"]


@pytest.mark.parametrize("refused", [".part", "back too"])
def test_the_old_bundle_comes_back_when_the_new_one_cannot_be_put(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    old = make_bundle(out / "same")
    new = dataclasses.replace(old.manifest, variant="new")
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.endswith(".part") or (refused == "back too" and self.parent.name.endswith(".old")):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, target)

    (tmp_path / "image.onnx").write_bytes(b"another graph")
    files = {**files_of(old), "image.onnx": tmp_path / "image.onnx"}
    with monkeypatch.context() as patch, pytest.raises(BundleError, match="Input/output error") as raised:
        patch.setattr(Path, "rename", rename)
        write_bundle(old.path, new, files, replace=True)
    left = [path for path in out.iterdir() if not path.name.startswith(".source")]
    if refused == ".part":
        assert left == [old.path]
    else:
        # Nothing more can be done, but to say where it is.
        left = [path / "same" for path in left if path.suffix == ".old"]
        assert len(left) == 1 and f"is in {left[0]}, move it back" in str(raised.value)
    assert Bundle.load(left[0]).digest == old.digest


def test_two_who_add_prompts_at_once_both_do(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks")
    found = at_once(*(lambda name=name: add_prompts(bundle, [prompt_set(name)]) for name in ("one", "two", "three")))  # type: ignore[misc]
    assert all(isinstance(value, Bundle) for value in found)
    assert set(Bundle.load(bundle.path).manifest.prompt_sets) == {"coco", "one", "two", "three"}
    same = at_once(*(lambda: add_prompts(bundle, [prompt_set("four")]) for _ in range(2)))
    assert sorted(isinstance(value, Bundle) for value in same) == [False, True]
    assert "already has a prompt set 'four'" in str(next(value for value in same if not isinstance(value, Bundle)))


def test_sets_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    """Their files would be one on some file systems."""
    bundle = make_bundle(tmp_path / "blocks")
    for names in (["COCO"], ["one", "One"]):
        with pytest.raises(BundleError, match=f"the prompt sets '{names[0]}' and '.*' differ only in case|'One' and"):
            add_prompts(bundle, [prompt_set(name) for name in names], replace=True)
    assert Bundle.load(bundle.path).digest == bundle.digest


def test_prompts_encoded_for_another_model_are_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks")
    (tmp_path / "image.onnx").write_bytes(b"another graph")
    files = {**files_of(bundle), "image.onnx": tmp_path / "image.onnx"}
    write_bundle(bundle.path, bundle.manifest, files, replace=True)
    with pytest.raises(BundleError, match="was exported again while the prompts were encoded"):
        add_prompts(bundle, [prompt_set("one")])
    assert "one" not in Bundle.load(bundle.path).manifest.prompt_sets


def test_plans_stay_with_their_graph(tmp_path: Path) -> None:
    """Minutes of building, and a timing cache, that do not depend on prompts."""
    bundle = make_bundle(tmp_path / "blocks")
    plans = bundle.path / "plans"
    plans.mkdir()
    (plans / "gpu.plan").write_bytes(b"a plan")
    (plans / "gpu.timing").write_bytes(b"times")
    bundle = add_prompts(bundle, [prompt_set("one")])
    assert names_in(plans) == ["gpu.plan", "gpu.timing"] and (plans / "gpu.plan").read_bytes() == b"a plan"
    assert "plans/gpu.plan" not in bundle.manifest.files
    (tmp_path / "image.onnx").write_bytes(b"another graph")
    files = {**files_of(bundle), "image.onnx": tmp_path / "image.onnx"}
    write_bundle(bundle.path, bundle.manifest, files, replace=True)
    assert not plans.exists()


def hold(path: Path, ready: Any) -> None:
    with turn(path):
        ready.set()
        time.sleep(60)


def test_the_lock_of_a_killed_writer_keeps_nobody_out(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks")
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold, args=(bundle.path, ready))
    process.start()
    assert ready.wait(60) and (tmp_path / ".blocks.lock").exists()
    waiting = threading.Thread(target=add_prompts, args=(bundle, [prompt_set("one")]))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive(), "the other process is in its turn"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    waiting.join(60)
    process.join(60)
    assert "one" in Bundle.load(bundle.path).manifest.prompt_sets and not (tmp_path / ".blocks.lock").exists()


def test_a_lock_that_was_taken_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening it and locking it, another writer has ended its turn and a third has begun its own."""
    lock = tmp_path / ".blocks.lock"
    real, calls = fcntl.flock, []

    def flock(held: Any, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            lock.unlink()
        elif len(calls) == 2:
            lock.unlink()
            lock.write_bytes(b"")
        real(held, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with turn(tmp_path / "blocks"):
        assert len(calls) == 3 and lock.exists()
    assert not lock.exists()


def test_a_file_system_without_locks_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(held: Any, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unknown)
    bundle = make_bundle(tmp_path / "blocks")
    assert "one" in add_prompts(bundle, [prompt_set("one")]).manifest.prompt_sets

    def refused(held: Any, how: int) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(BundleError, match="cannot be written: Permission denied"):
        add_prompts(bundle, [prompt_set("two")])


def write_forever(path: Path, ready: Any) -> None:
    """Begins to write at `path`, and is then killed."""
    with sibling(path) as draft:
        (draft / "image.onnx").write_bytes(b"half")
        ready.set()
        time.sleep(60)


def replace_forever(path: Path, ready: Any) -> None:
    """Is killed when the old directory is away and the new one not yet there."""
    real = Path.rename

    def rename(source: Path, target: Path) -> None:
        real(source, target)
        if source == path:
            ready.set()
            time.sleep(60)

    with sibling(path) as draft, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        put(draft, path)


def killed(work: Callable[[Path, Any], None], path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=work, args=(path, ready))
    process.start()
    assert ready.wait(60) and process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path, out: Path) -> None:
    source = make_bundle(tmp_path / "blocks")
    (out / ".other-abcdefgh.part").mkdir()
    killed(write_forever, out / "same")
    (left,) = (name for name in names_in(out) if name.startswith(".same-"))
    with sibling(out / "same") as draft:
        assert names_in(out) == [".other-abcdefgh.part", draft.name] and draft.name != left
        with sibling(out / "same") as second:
            assert draft.is_dir() and second != draft, "a writer that lives keeps its files"
    write_bundle(out / "same", source.manifest, files_of(source))
    assert names_in(out) == [".other-abcdefgh.part", "same"]


def test_a_folder_that_another_writer_takes_for_left_over_is_made_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and locking it."""
    real, made = tempfile.mkdtemp, []

    def taken(**how: Any) -> str:
        made.append(real(**how))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    with sibling(out / "same") as draft:
        assert draft == Path(made[1]) and draft.is_dir()


def test_the_bundle_that_a_killed_writer_was_replacing_is_put_back(tmp_path: Path, out: Path) -> None:
    source = make_bundle(tmp_path / "blocks")
    write_bundle(out / "same", source.manifest, files_of(source))
    killed(replace_forever, out / "same")
    assert "same" not in names_in(out)
    with pytest.raises(BundleError, match="already exists"):
        write_bundle(out / "same", source.manifest, files_of(source))
    assert names_in(out) == ["same"] and Bundle.load(out / "same").digest == source.digest
