"""Files and folders that are given as checkpoints, before a tensor is read: what they are, and which file is taken."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export.checkpoints.given_paths import (
    find_weights,
    is_safetensors,
    joining_command,
    read_index,
    what_it_is,
)


def zipped(**files: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return stream.getvalue()


def tarred() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("README.md"))
    return stream.getvalue()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 599000000\n"
PAGE = "<!DOCTYPE html><html><head><title>Google Drive - Virus &amp; scan\nwarning</title></head>" + "<p>x</p>" * 2000
KINDS: dict[str, tuple[bytes, str]] = {
    "page": (
        PAGE.encode(),
        "is a web page (HTML) titled 'Google Drive - Virus & scan warning', not a checkpoint; downl",
    ),
    "page in Latin-1": (b"\n <HTML lang=fr><body>caf\xe9" + b"\xe9" * 9000, "is a web page (HTML), not"),
    "pointer": (
        LFS.encode(),
        "is a Git LFS pointer of a file of 599,000,000 bytes, not a checkpoint; run 'git lfs pull'",
    ),
    "nothing": (b"", "is empty (0 bytes), not a checkpoint; copy or download it again"),
    "cut": (zipped(archive__data="x" * 999)[:500], "is a truncated zip archive (500 bytes, its end is missing)"),
    "answer": (b'{"error": {"message": "Invalid  token"}}', "is a JSON text ('Invalid token'), not a checkpoint"),
    "other answer": (b'{"detail": "gone"}', """is a JSON text ('{"detail": "gone"}')"""),
    "half an answer": (b'{"error": "x', "is a JSON text"),
    "denied": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "is an XML text ('AccessDenied')"),
    "repository": (
        zipped(repo__README="x", repo__best="y") + b"",
        "is a zip archive of 2 other files (repo/README, repo/best), not a checkpoint; unpack it",
    ),
    "newer zip": (
        zipped(a="x").replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\x63"),
        "is a damaged zip archive, not",
    ),
    "arrays": (zipped(**{"a.npy": "x"}), "is a NumPy archive (.npz)"),
    "tarball": (gzip.compress(b"x"), "is a gzip archive (as .tar.gz), not a checkpoint; unpack it and give the weight"),
    "tar": (tarred(), "is a tar archive"),
    "text": (b"Quota exceeded\nfor this file", "is a text file that begins with 'Quota exceeded for this file'"),
    "long text": ("ä".encode() * 5000, "is a text file that begins with"),
    "keras": (
        b"\x89HDF\r\n\x1a\n...",
        "is an HDF5 file (TensorFlow or Keras), not a checkpoint; give the model's PyTo",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_called_what_it_is(tmp_path: Path, name: str) -> None:
    content, words = KINDS[name]
    path = tmp_path / "best.pt"
    path.write_bytes(content)
    sentence = what_it_is(path)
    assert sentence is not None and sentence.startswith(f"{path} {words}"), sentence
    assert "\n" not in sentence and sentence.endswith(".") and len(sentence) - len(str(path)) < 300


def test_a_zip_of_a_repository_names_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    path.write_bytes(zipped(**{"repo/README.md": "x", "repo/w/best.pt": "y", "repo/": ""}))
    assert "of 2 other files (repo/w/best.pt)" in str(what_it_is(path))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"a": 1}),
        zipped(archive__data="", **{"archive/data.pkl": ""}),
        b"\x00" * 5000,
        b"\x80\x02" + b"a" * 9000,
    ],
)
def test_what_may_be_a_checkpoint_is_left_to_the_reader(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    assert what_it_is(path) is None and not is_safetensors(path)


def test_safetensors_are_known_by_content(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    assert is_safetensors(path)


# Folders


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["config.json", "model.safetensors", "optimizer.pt", "training_args.bin"], "model.safetensors"),
        (["pytorch_model.bin", "tokenizer.json", "tf_model.h5"], "pytorch_model.bin"),
        (["model.safetensors.index.json", "model-00001-of-00002.safetensors"], "model.safetensors.index.json"),
        (["pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"], "pytorch_model.bin.index.json"),
        (["open_clip_pytorch_model.bin", "open_clip_config.json"], "open_clip_pytorch_model.bin"),
        (["weights.safetensors", "._weights.safetensors", ".cache/old.safetensors"], "weights.safetensors"),
        (["epoch=3.ckpt", "hparams.yaml", "optimizer.bin", "rng_state_0.pth", "scheduler.pt"], "epoch=3.ckpt"),
    ],
)
def test_the_weights_of_a_folder(tmp_path: Path, names: list[str], taken: str) -> None:
    found = find_weights(folder(tmp_path, *names))
    assert found.path == tmp_path / taken and found.note == ""


def test_the_same_weights_in_two_formats_are_told(tmp_path: Path) -> None:
    found = find_weights(folder(tmp_path, "pytorch_model.bin", "model.safetensors"))
    assert found.path.name == "model.safetensors"
    assert found.note == f"{tmp_path} also holds pytorch_model.bin; model.safetensors is read, as transformers does"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "has no weights that can be read (it is empty): give a file"),
        (
            ["README.md", "config.json"],
            r"\(it holds README.md, config.json\): give a file of torch.save or safetensors",
        ),
        (["tf_model.h5", "config.json"], r"\(it holds tf_model.h5\); it has weights of other frameworks alone"),
        (["epoch1.pt", "epoch2.pt"], r"holds 2 files with weights \(epoch1.pt, epoch2.pt\); give one of them"),
        ([f"e{n}.ckpt" for n in range(7)], r"holds 7 files with weights \(e0.ckpt, .*e4.ckpt, \.\.\.\)"),
        (["adapter_model.safetensors", "adapter_config.json"], "only a LoRA adapter .*merge_and_unload"),
        (["checkpoint-500/model.safetensors", "log.txt"], "look in its folder checkpoint-500"),
    ],
)
def test_a_folder_with_none_or_several_is_one_sentence(tmp_path: Path, names: list[str], words: str) -> None:
    with pytest.raises(CheckpointError, match=words.replace("(it is empty)", r"\(it is empty\)")) as caught:
        find_weights(folder(tmp_path, *names))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def index(path: Path, table: object) -> Path:
    path.write_text(json.dumps(table) if not isinstance(table, str) else table)
    return path


def test_an_index_maps_files_to_tensors(tmp_path: Path) -> None:
    folder(tmp_path, "a.safetensors", "b.safetensors")
    table = {"metadata": {}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
    path = index(tmp_path / "model.safetensors.index.json", table)
    assert read_index(path) == {"a.safetensors": ["x", "z"], "b.safetensors": ["y"]}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("{", "is not an index of shards"),
        ({"a": 1}, "is not an index of shards"),
        ({"weight_map": {"x": "../a.safetensors"}}, "is not the name of a file"),
        ({"weight_map": {"x": 3}}, "is not the name of a file"),
        (
            {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}},
            r"names 2 files, of which 1 are missing \(b.saf",
        ),
        ({"weight_map": {}}, "names 0 files"),
    ],
)
def test_a_broken_index_is_refused(tmp_path: Path, table: object, words: str) -> None:
    folder(tmp_path, "a.safetensors")
    with pytest.raises(CheckpointError, match=words):
        read_index(index(tmp_path / "model.safetensors.index.json", table))


# Folders of trainings on several processes

DCP = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch {folder} OUT.pt (it unpickles"
SCRIPT = "python {folder}/zero_to_fp32.py {folder} OUT (it unpickles"
MODULE = "python -m deepspeed.utils.zero_to_fp32 {folder} OUT (it unpickles"
STEP = ["global_step9/mp_rank_00_model_states.pt", "global_step9/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"]


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        ([".metadata", "__0_0.distcp", "__1_0.distcp", "meta.pt"], "", DCP),
        ([".metadata", "__0_0.distcp"], "__0_0.distcp", DCP),
        ([".metadata", "__0_0.distcp"], ".metadata", DCP),
        (["__0_0.distcp"], "", "not its table, the hidden file .metadata; copy the folder again with its hidden files"),
        ([*STEP, "latest", "zero_to_fp32.py"], "", SCRIPT),
        ([*STEP, "latest"], "", MODULE),
        ([*STEP, "latest", "zero_to_fp32.py"], "global_step9", SCRIPT),
        ([*STEP, "latest", "zero_to_fp32.py"], STEP[1], SCRIPT),
        (["global_step9/zero_pp_rank_1_mp_rank_00_model_states.pt", "latest"], "", MODULE),
        (["latest", STEP[0]], "", "without ZeRO; give its file {folder}/global_step9/mp_rank_00_model_states.pt."),
    ],
)
def test_a_folder_of_parts_names_the_command_that_joins_them(
    tmp_path: Path, names: list[str], given: str, words: str
) -> None:
    made = folder(tmp_path / "run", *names)
    path = made / given
    if path.is_dir():
        with pytest.raises(CheckpointError) as caught:
            find_weights(path)
        sentence = str(caught.value)
    else:
        sentence = str(what_it_is(path))
    assert words.format(folder=made) in sentence and "\n" not in sentence


def test_a_folder_inside_and_names_with_spaces(tmp_path: Path) -> None:
    made = folder(tmp_path / "my run", "pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp")
    with pytest.raises(CheckpointError, match=rf"dcp_to_torch '{made}/pytorch_model_fsdp_0' OUT"):
        find_weights(made)


def test_whole_weights_beside_the_parts_are_read(tmp_path: Path) -> None:
    made = folder(tmp_path / "checkpoint-500", *STEP, "latest", "zero_to_fp32.py", "model.safetensors")
    assert find_weights(made).path.name == "model.safetensors"
    other = folder(tmp_path / "other", "dcp/.metadata", "dcp/__0_0.distcp", "best.pt", "zero_to_fp32.py")
    assert find_weights(other).path.name == "best.pt"
    names = ("optimizer.pt", "scalers_0.pt", "training_args.bin", "meta.pt", "scalerfree.pt")
    assert find_weights(folder(tmp_path / "words", *names)).path.name == "scalerfree.pt"
    assert joining_command(made / STEP[0]) is None  # holds the weights in 16 bits, unless it is ZeRO 3
    assert joining_command(folder(tmp_path / "plain", "a.pt", "latest")) is None
