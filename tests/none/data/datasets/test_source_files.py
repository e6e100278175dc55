"""The files of a dataset as tools write them: listings, names of images, documents and tables."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.file_rows import Note
from xbench_fast.runtime.data.datasets.source.csv_files import read_csv, read_rows
from xbench_fast.runtime.data.datasets.source.documents import read_json, read_text, read_yaml
from xbench_fast.runtime.data.datasets.source.image_index import ImageFolder, ImageTree, by_portable_name
from xbench_fast.runtime.data.datasets.source.image_names import inside, portable_name
from xbench_fast.runtime.data.datasets.source.listing import tree
from xbench_fast.runtime.data.datasets.source.spelling import Spellings, spelling_key

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Aufnahme-é.png") for form in ("NFC", "NFD"))
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_what_a_program_put_into_a_folder_is_not_listed(tmp_path: Path) -> None:
    hidden = (
        ".ipynb_checkpoints/a.png", ".thumbnails/a.png", ".Trash-1000/files/a.png", "__MACOSX/a.png", "@eaDir/a.png",
        "$RECYCLE.BIN/a.png", "._a.png", ".DS_Store", "Thumbs.db", "sub/.git/a.png", "sub/desktop.ini",
    )  # fmt: skip
    touch(tmp_path, "a.png", "sub/b.png", *hidden)
    assert [str(path.relative_to(tmp_path)) for path in tree(tmp_path)] == ["a.png", "sub/b.png"]


def test_a_hidden_folder_that_the_user_names_is_listed(tmp_path: Path) -> None:
    touch(tmp_path / ".data", "a.png")
    assert [path.name for path in tree(tmp_path / ".data")] == ["a.png"]


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("a.png", "a.png"),
        ("sub\\a.png", "sub/a.png"),
        (".\\sub\\a.png", "sub/a.png"),
        ("././a.png", "a.png"),
        (DECOMPOSED, COMPOSED),
        (f"ü\\{DECOMPOSED}", f"ü/{COMPOSED}"),
        ("..a.png", "..a.png"),
    ],
)
def test_names_are_compared_in_one_form(name: str, portable: str) -> None:
    assert portable_name(name) == portable


@pytest.mark.parametrize(
    "name", ["..\\a.png", "sub\\..\\a.png", "\\a.png", "C:\\images\\a.png", "C:/a.png", "a\\", "a\x1b.png", "a\0.png"]
)
def test_a_windows_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"list\.csv, row 7: the image name .* leads out of the folder"):
        inside(tmp_path, name, Path("list.csv"), 7)


def test_images_are_found_whatever_form_their_letters_have(tmp_path: Path) -> None:
    notes: list[Note] = []
    touch(tmp_path, DECOMPOSED, "sub/b.dcm", ".hidden.png")
    folder = ImageFolder(tmp_path, notes)
    assert folder.path(COMPOSED, tmp_path, None) == tmp_path / DECOMPOSED
    assert folder.find(COMPOSED.removesuffix(".png"), (".dcm", ".png"), tmp_path, None) == tmp_path / DECOMPOSED
    assert folder.path("missing.png", tmp_path, None) == tmp_path / "missing.png"
    images = ImageTree([tmp_path], (".png", ".dcm"), notes)
    assert images.stems() == {COMPOSED.removesuffix(".png"), "b"}
    assert images.find(DECOMPOSED.removesuffix(".png"), tmp_path, None) == tmp_path / DECOMPOSED
    assert not notes


def test_two_files_that_differ_in_the_form_of_letters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is the name of two files"):
        by_portable_name([COMPOSED, DECOMPOSED], tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1, "b": {"a": 2, "a": 3}}', r"the key 'a' appears twice"),
        (b'{"a": ', "is not a JSON file"),
        (b'{"a": "\xe9"}', r"not UTF-8 \(line 1\); save it as UTF-8"),
        (POINTER.encode(), "pointer of Git LFS, not the file itself; fetch the file with git lfs pull"),
    ],
)
def test_json_that_would_lose_something_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "annotations.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_json(file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_read_in_the_encodings_of_spreadsheets(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"é": 1}, ensure_ascii=False), encoding=encoding)
    assert read_json(file) == {"é": 1} and read_text(file) == '{"é": 1}'


def test_yaml_is_read_strictly(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "data.yaml"
    file.write_text("base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\n")
    assert read_yaml(file, "")["other"] == {"a": 1, "b": 3}, "a merged key may be replaced"
    for text, words in (("names: [a]\nnames: [b]\n", "'names' appears twice"), ("? [a]\n: b\n", "a key is a list")):
        file.write_text(text)
        with pytest.raises(DataError, match=words):
            read_yaml(file, "")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_tables_have_any_separator(tmp_path: Path, separator: str, end: str) -> None:
    file = tmp_path / "a.csv"
    rows = (("image", "class", "note"), ("a.png", "Mass", '"x,y;z"'), ("b.png", "", "é"))
    file.write_bytes(end.join(separator.join(row) for row in rows).encode("utf-8-sig"))
    note = "x,y;z"
    assert [cells for _, cells in read_rows(file)] == [
        ["image", "class", "note"],
        ["a.png", "Mass", note],
        ["b.png", "", "é"],
    ]
    file.write_bytes(f"sep={separator}{end}{separator.join(rows[0])}{end}{separator.join(rows[1])}".encode())
    assert list(read_csv(file, ("image",))) == [(3, {"image": "a.png", "class": "Mass", "note": note})]


def test_a_list_of_one_column_has_no_separator(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_text("ID\na\nb\n")
    assert [cells for _, cells in read_csv(file, ("ID",))] == [{"ID": "a"}, {"ID": "b"}]
    with pytest.raises(DataError, match=r"the header lacks image; it has ID; set the option columns\."):
        list(read_csv(file, ("image",), "set the option columns"))


def test_spellings_of_a_class_are_one() -> None:
    assert spelling_key("Pleural_Effusion") == spelling_key(" pleural  effusion") == spelling_key("PLEURAL-effusion")
    assert spelling_key("ﬁbrosis") == spelling_key("Fibrosis") and spelling_key("Mass") != spelling_key("Masses")
    spellings = Spellings(("Mass", "Nodule"))
    assert [spellings.of(name) for name in ("mass", "Mass", "MASS", "mass", "Edema", "edema")] == [
        *["Mass"] * 4, "Edema", "Edema",
    ]  # fmt: skip
    assert spellings.variants == {"Mass": ["mass", "MASS"], "Edema": ["edema"]}
    assert "nodule" in spellings and "Cyst" not in spellings
