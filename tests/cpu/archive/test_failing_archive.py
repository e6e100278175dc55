"""`pacs` on an archive that fails: what is tried again, what is left out, and what ends the run (docs/pacs.md §3)."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dicom_films
import pytest
from dicom_films import CANARY
from fake_archive import FakeArchive, Fault
from xbench_fast.engines.errors import ConfigError, DataError, RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.reporting.dicom.dicom_object import MANUFACTURER, DicomObject
from xbench_fast.runtime.reporting.dicom.identity import hashed_uid
from xbench_fast.runtime.serving.archive.archive import Tries
from xbench_fast.runtime.serving.archive.pacs_options import PacsOptions
from xbench_fast.runtime.serving.archive.run_transfer import connect, transfer
from xbench_fast.runtime.serving.archive.transfer_log import locked
from xbench_fast.runtime.serving.archive.transfer_summary import TransferSummary
from xbench_fast.runtime.serving.inference.film_batches import ReadFilm, read_film

pydicom = pytest.importorskip("pydicom")

TOKEN = "ZZCANARY-token"


class Maker:
    """Two objects a film, without a model. asked: labels of films in each batch."""

    batch = 2
    identity = "made up"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def read(self, data: bytes, name: str) -> ReadFilm:
        return read_film(data, name, Geometry("squash", 32, 32, "bilinear"))

    def answer(self, films: Sequence[ReadFilm]) -> Iterator[list[DicomObject] | DataError]:
        self.batches.append(len(films))
        for film in films:
            yield [made(film.header.header, number) for number in (1, 2)]


def made(header: Any, number: int, words: str = "") -> DicomObject:
    data = pydicom.Dataset()
    data.SOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    data.SOPInstanceUID, data.SeriesInstanceUID = f"{header.SOPInstanceUID}.9.{number}", hashed_uid(str(number))
    data.StudyInstanceUID, data.Modality, data.PatientName = header.StudyInstanceUID, "OT", CANARY
    data.ImageComments, data.Manufacturer = words, MANUFACTURER
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    stream = io.BytesIO()
    data.save_as(stream, enforce_file_format=True)
    ids = (str(data.StudyInstanceUID), str(data.SeriesInstanceUID), str(data.SOPInstanceUID))
    return DicomObject("mask", "Mass", str(data.SOPClassUID), *ids, content=stream.getvalue())


class Stop(threading.Event):
    """Keeps the waits, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return self.is_set()


def film(number: int, **changes: Any) -> bytes:
    """A film of a study of its own, whose UIDs end with the number."""
    uids = {name: f"1.2.826.{at}.{number}" for at, name in enumerate(("StudyInstanceUID", "SeriesInstanceUID"))}
    return dicom_films.film("sc", (40, 40), **{"SOPInstanceUID": f"1.2.826.7.{number}", **uids, **changes})


class World:
    """Runs a transfer on an archive. lines: what was said; waits: seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines, self.stop, self.maker = folder, list[str](), Stop(), Maker()

    def run(self, archive: FakeArchive, *, target: str | None = None, **options: Any) -> TransferSummary:
        self.stop.clear()

        def tries(each: int, left: int) -> Tries:
            return Tries(each, left, lambda: 1.0, self.stop)

        connection = connect(archive.url, target, PacsOptions(**{"timeout": 5.0, "retries": 4, **options}), tries)
        done = transfer(connection, self.maker, self.folder, PlainProgress(self.lines.append))
        kept = "".join(path.read_text() + path.name for path in self.folder.iterdir())
        said = "\n".join([*self.lines, *done.problems, *done.remarks, done.stopped, kept])
        assert CANARY not in said and "1.2.826" not in said and "?" not in said and TOKEN not in said
        assert not any(". " in line or not line.endswith(".") for line in (*done.problems, *done.remarks))
        return done


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "out")


def objects_of(count: int) -> set[str]:
    return {f"1.2.826.7.{number}.9.{of}" for number in range(count) for of in (1, 2)}


BUSY = [
    ("search", [Fault(path="/series", status=503), Fault(path="/series", status=429, headers={"Retry-After": "7"})], 7),
    ("search of a study", [Fault(path="/instances", how="drop", times=3)], 4),
    ("film", [Fault(path="/instances/1.2.826.7.1", status=429, headers={"Retry-After": "9"})], 9),
    ("film cut", [Fault(path="/instances/1.2.826.7.1", how="cut")], 1),
    ("busy store", [Fault("POST", status=503, times=2), Fault("POST", status=429, headers={"Retry-After": "3"})], 3),
    ("lost request", [Fault("POST", how="drop")], 1),
    ("lost answer", [Fault("POST", how="drop after")], 0),
    ("half", [Fault("POST", how="half", times=1)], 0),
]


@pytest.mark.parametrize(("name", "faults", "longest"), BUSY, ids=lambda case: case if isinstance(case, str) else "")
def test_what_fails_once_is_tried_again(world: World, name: str, faults: list[Fault], longest: float) -> None:
    with FakeArchive([film(number) for number in range(3)]) as archive:
        archive.faults = [Fault(**vars(fault)) for fault in faults]
        done = world.run(archive)
        assert (done.done, done.problems, done.stopped) == (3, [], ""), name
        assert objects_of(3) <= archive.objects.keys() and not any(fault.times for fault in archive.faults)
        stored = [uid for request in archive.posted for uid in request]
        assert sorted(stored) == sorted(objects_of(3))  # none twice, not even where the answer was lost
        assert max(world.stop.waits, default=0) == longest
        again = world.run(archive)
        assert (again.before, again.films, len(archive.posted)) == (3, 0, len(archive.posted))


@pytest.mark.parametrize("named", [True, False])
def test_an_object_that_is_not_taken_leaves_its_film_undone(world: World, named: bool) -> None:
    with FakeArchive([film(number) for number in range(2)]) as archive:
        archive.bad, archive.named_bad = {"1.2.826.7.1.9.2"}, named
        done = world.run(archive)
        assert (done.done, done.stored, done.failed, len(done.problems)) == (1, 3, 1, 1)
        reason = "status 409, reason 0110" if named else "status 400"
        assert f"lacks 1 of its objects: the archive does not store it ({reason})" in done.problems[0]
        archive.bad = set()
        assert (again := world.run(archive)).done == 1 and (again.stored, again.kept) == (1, 1)


@pytest.mark.parametrize(
    ("options", "fault", "words"),
    [
        ({"max_instance": "1kB"}, None, "more than 1000 bytes; see --max-instance"),
        ({}, Fault(path="/instances/1.2.826.7.1", status=404), "does not give it (status 404)"),
        ({}, Fault(path="/instances/1.2.826.7.1", status=500, times=99), "failed 4 times, at last: status 500"),
        ({}, ("multipart/related; boundary=other", b"--b\r\n"), "no part at its boundary"),
        ({}, ("multipart/related", b"--b\r\n"), "names no boundary"),
        ({}, ("text/html", b"ZZCANARY"), "no multipart/related"),
        ({}, ("multipart/related; boundary=b", b"--b\r\nContent-Type: text/xml\r\n\r\nZZ\r\n--b--"), "no application"),
        ({}, ("multipart/related; boundary=b", b"--b--\r\n\r\n"), "no part at its boundary"),
        ({}, ("multipart/related; boundary=b", b"--b\r\ncontent-type:application/dicom\r\n\r\n\r\n--b\r\n"), "parts"),
        ({}, ("application/dicom", film(2)), "gave another object"),
        ({}, ("application/dicom", film(1, StudyInstanceUID="1.2.826.5")), "gave another object"),
        ({}, ("application/dicom", b"ZZCANARY"), "nor DICOM"),
        ({}, ("application/dicom", film(1, Modality="CT")), "it is no radiograph"),
        ({}, ("application/dicom", film(1, NumberOfFrames=2)), "it has 2 frames"),
        ({}, ("application/dicom", film(1).replace(b"1.2.840.10008.1.2.1\0", b"1.3.840.10008.1.2.1\0")), "syntax"),
    ],
)  # fmt: skip
def test_a_film_that_cannot_be_had_is_one_sentence(world: World, options: Any, fault: Any, words: str) -> None:
    if isinstance(fault, tuple):
        kind, body = fault
        headers = {"Content-Type": kind}
        fault = Fault(path="/instances/1.2.826.7.1", how="answer", headers=headers, body=body, times=99)
    films = [film(0), film(1)] if "max_instance" not in options else [film(1)]
    with FakeArchive(films) as archive:
        archive.faults = [fault] if fault else []
        done = world.run(archive, **options)
    assert (done.done, len(done.problems), done.stopped) == (len(films) - 1, 1, ""), done.problems
    assert words in done.problems[0] and done.problems[0].startswith("The film ")


def test_what_is_no_film_is_not_fetched(world: World) -> None:
    with FakeArchive([film(0, NumberOfFrames=3), film(1, Rows=0)]) as archive:
        done = world.run(archive)
        assert not any("/instances/" in path for _, path, _ in archive.seen)
    assert [sentence.rpartition(" that ")[2] for sentence in done.problems] == [
        "it has several frames.",
        "it has no pixels.",
    ]


def test_other_series_of_a_study_are_named_and_not_fetched(world: World) -> None:
    def beside(number: int, series: str, modality: str) -> bytes:
        return film(number, StudyInstanceUID="1.2.826.0.0", SeriesInstanceUID=series, Modality=modality)

    others = [beside(number, "1.2.826.5", "CT") for number in (1, 2)]
    of_its_own = film(9, Modality="CT")
    with FakeArchive([film(0), *others, beside(3, "1.2.826.6", f"{CANARY}"), of_its_own]) as archive:
        done = world.run(archive)
        assert (done.done, done.problems, done.remark_count) == (1, [], 2)
        first, second = (sentence.partition(" was not asked about: ")[2] for sentence in done.remarks)
        assert first == "its Modality is CT (2 instances), not CR or DX."
        assert second == "its Modality is another one (1 instance), not CR or DX."
        assert not any("1.2.826.0.9" in path or "/series/1.2.826.5" in path for _, path, _ in archive.seen)
        assert world.run(archive).remark_count == 2  # and not the series that the first run stored
        named = world.run(archive, study=("1.2.826.0.9", "1.2.826.0.77"))
        assert (named.studies, named.films, len(named.remarks)) == (2, 0, 1)
        assert [line.partition(" has ")[2] for line in named.problems] == ["no series of CR or DX in the archive."] * 2
        dated = world.run(archive, study=("1.2.826.0.77",), modality=("DX",), date="20260101-")
        assert "has no series of DX of --date in" in dated.problems[0]


def test_films_are_answered_where_other_series_cannot_be_listed(world: World) -> None:
    with FakeArchive([film(0), film(1)]) as archive:
        archive.faults = [Fault(path="1.2.826.0.0/series?", status=404)]
        done = world.run(archive)
        assert (done.done, len(done.problems), done.stopped) == (2, 1, "")
        assert "cannot be listed: the archive's search failed (status 404)" in done.problems[0]
        archive.faults = [Fault(path="1.2.826.0.0/series?", status=401)]
        assert "refuses the token" in world.run(archive).stopped


def test_a_film_without_a_spacing_is_answered_and_named(world: World) -> None:
    with FakeArchive([film(0, PixelSpacing=None), film(1)]) as archive:
        done = world.run(archive)
    assert (done.done, done.problems, len(done.remarks)) == (2, [], 1)
    assert ": it has no pixel spacing; its objects say 1 x 1" in done.remarks[0]


def test_a_film_whose_rows_are_not_listed_is_fetched(world: World) -> None:
    """Archives need not answer with every attribute; what has no pixels says so itself."""
    with FakeArchive([film(0), film(1, Rows=None)]) as archive:
        archive.unlisted = ("00280010",)
        done = world.run(archive)
    assert done.done == 1
    (sentence,) = done.problems
    assert "lacks the tag Rows" in sentence


def test_answers_without_a_body_and_parts_of_a_list(world: World) -> None:
    """204 says that there is nothing, 206 that the rest is on the next page."""
    with FakeArchive([film(number) for number in range(5)]) as archive:
        archive.page, archive.partial = 2, 206
        assert world.run(archive).done == 5
        nothing = Fault(path="1.2.826.0.1/series/1.2.826.1.1/instances", status=204, times=9)
        archive.faults = [nothing]
        done = world.run(archive)
        assert (done.before, len(done.problems)) == (4, 1)
        assert "was left out: the archive lists no instance of its series" in done.problems[0]
        archive.faults = [Fault(path="/series?Modality", status=204, times=9)]
        assert (world.run(archive).studies, world.lines[-1]) == (0, done.problems[0])


def test_one_study_that_fails_does_not_stop_the_others(world: World) -> None:
    with FakeArchive([film(number) for number in range(4)]) as archive:
        archive.faults = [
            Fault(path="/studies/1.2.826.0.1/series/1.2.826.1.1/instances", how="drop", times=99),
            Fault(path="/studies/1.2.826.0.2/series", how="answer", headers={"Content-Type": "text/xml"}, body=b"<a/>"),
        ]
        done = world.run(archive)
        assert objects_of(4) & archive.objects.keys() == {f"1.2.826.7.{n}.9.{of}" for n in (0, 3) for of in (1, 2)}
    assert done.done == 2 and ["was left out" in sentence for sentence in done.problems] == [True, True]
    assert "no DICOM JSON" in done.problems[1]


def test_a_study_that_is_too_large_is_left_out(world: World) -> None:
    def of_first(number: int) -> bytes:
        return film(number, StudyInstanceUID="1.2.826.0.0", SeriesInstanceUID="1.2.826.1.0")

    with FakeArchive([*map(of_first, range(3)), film(9)]) as archive:
        done = world.run(archive, max_instances=2)
        assert done.done == 1 and "more than 2 instances; see --max-instances" in done.problems[0]
        assert world.run(archive, max_study="5kB").done == 0
        assert "see --max-study" in world.lines[-1]


STOPS: list[tuple[str, dict[str, Any], Fault, str]] = [
    ("token", {}, Fault(status=401), "refuses the token (status 401)"),
    ("redirect", {}, Fault(status=307), "no redirect is followed"),
    ("redirected store", {}, Fault("POST", status=308), "no redirect is followed"),
    ("long wait", {}, Fault(status=503, headers={"Retry-After": "9999"}), "asks to wait 9999 s"),
    ("down", {}, Fault(path="/instances/", status=502, times=999), "5 times in a row"),
    ("store down", {}, Fault("POST", status=502, times=999), "5 times in a row"),
    ("tries", {"max_retries": 3}, Fault(path="/instances/", how="drop", times=99), "no tries are left"),
    ("no search", {}, Fault(status=404), "search failed (status 404)"),
]


@pytest.mark.parametrize(("options", "fault", "words"), [case[1:] for case in STOPS], ids=[case[0] for case in STOPS])
def test_what_no_film_would_survive_ends_the_run(
    world: World, options: Any, fault: Fault, words: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with FakeArchive() as elsewhere, FakeArchive([film(number) for number in range(9)]) as archive:
        archive.token = TOKEN
        archive.faults = [Fault(**vars(fault) | {"headers": {**fault.headers, "Location": f"{elsewhere.url}/studies"}})]
        done = world.run(archive, token_file=tmp_path / "token", **options)
        assert words in done.stopped and words not in "".join(done.problems) and not elsewhere.seen
        assert all(headers["Authorization"] == f"Bearer {TOKEN}" for _, _, headers in archive.seen)
        archive.faults.clear()
        assert world.run(archive, token_file=tmp_path / "token").stopped == ""
        assert objects_of(9) <= archive.objects.keys()


def test_pages_of_any_size_and_archives_without_an_offset(world: World) -> None:
    with FakeArchive([film(number) for number in range(5)]) as archive:
        archive.page = 2
        assert world.run(archive).done == 5
        assert world.maker.batches == [2, 2, 1]
        archive.offsets = False
        assert world.run(archive).before == 2


def test_an_object_that_differs_is_not_sent(world: World) -> None:
    one = film(0)
    other = made(pydicom.dcmread(io.BytesIO(one)), 1, "another")
    with FakeArchive([one, other.content]) as archive:
        done = world.run(archive)
        assert (done.refused, done.stored, done.done, archive.posted) == (1, 0, 0, [])


def test_films_are_fetched_as_they_are_stored(world: World) -> None:
    with FakeArchive([film(0)]) as archive:
        world.run(archive)
        (accepted,) = [
            headers["Accept"] for _, path, headers in archive.seen if path.endswith("/instances/1.2.826.7.0")
        ]
        assert accepted == 'multipart/related; type="application/dicom"; transfer-syntax=*'
        assert not any("/frames" in path or "/rendered" in path for _, path, _ in archive.seen)
        # Each object is searched before it is sent and afterwards: an archive's word is not enough.
        assert sum("SOPInstanceUID=" in path for _, path, _ in archive.seen) == 4


def test_an_object_that_is_said_to_be_stored_and_is_not_comes_again(world: World) -> None:
    with FakeArchive([film(0)]) as archive:
        archive.faults = [Fault("POST", how="none", times=99)]
        first = world.run(archive)
        assert (first.done, first.stored, first.failed) == (0, 0, 2)
        assert "says that it stored it, and does not find it" in first.problems[0]
        archive.faults = []
        again = world.run(archive)
        assert (again.done, again.stored, again.problems) == (1, 2, [])


def test_an_object_that_is_listed_a_moment_later_is_sent_once(world: World) -> None:
    with FakeArchive([film(0)]) as archive:
        unlisted = Fault(
            path="SOPInstanceUID=1.2.826.7.0.9.1",
            how="answer",
            headers={"Content-Type": "application/dicom+json"},
            body=b"[]",
            times=2,
        )
        archive.faults = [unlisted]
        done = world.run(archive)
        assert (done.done, done.stored, done.problems) == (1, 2, []) and len(archive.posted) == 1


@pytest.mark.parametrize(
    "body", [b"[[[1], null, 3]]", b'[{"0020000D": {"Value": [{"a": 1}]}}]', b'[{"0020000E": 1}, {}]']
)
def test_entries_of_a_list_that_say_nothing_are_counted(world: World, body: bytes) -> None:
    with FakeArchive([film(0)]) as archive:
        kind = {"Content-Type": "application/dicom+json"}
        archive.faults = [Fault(path="/series?Modality=CR", how="answer", headers=kind, body=body, times=9)]
        done = world.run(archive)
    count = len(json.loads(body))
    assert done.problems == [f"{count} entries in lists of the archive have no valid UID and were left out."]


@pytest.mark.parametrize("unlisted", [(), ("00080060",)], ids=["listed", "not listed"])
def test_our_own_objects_are_no_films(world: World, unlisted: tuple[str, ...]) -> None:
    """In an archive that ignores the modality that it is searched by."""
    with FakeArchive([film(0)]) as archive:
        archive.filters, archive.unlisted = False, unlisted
        assert world.run(archive).done == 1
        again = world.run(archive)
    assert (again.before, again.films, again.problems) == (1, 0, [])


@pytest.mark.parametrize("path", ["/instances/1.2.826.7.{}", "SOPInstanceUID=1.2.826.7.{}.9.1"])
def test_failures_that_are_not_in_a_row_leave_films_out(world: World, path: str) -> None:
    with FakeArchive([film(number) for number in range(9)]) as archive:
        archive.faults = [Fault(path=path.format(at), status=500, times=99) for at in range(9) if at != 4]
        done = world.run(archive)
        assert (done.done, len(done.problems), done.stopped) == (1, 8, "")


def test_any_number_of_films_that_are_gone_are_left_out(world: World) -> None:
    with FakeArchive([film(number) for number in range(9)]) as archive:
        archive.faults = [Fault(path="/instances/1.2.826", status=404, times=8)]
        done = world.run(archive)
        assert (done.done, len(done.problems), done.stopped) == (1, 8, "")


def test_a_log_that_is_cut_or_damaged(world: World) -> None:
    with FakeArchive([film(number) for number in range(3)]) as archive:
        world.run(archive)
        log = world.folder / "transfer.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join([*lines[:2], lines[2].replace(b"stored", b"strayed"), lines[3][:40]]))
        again = world.run(archive)
        assert (again.before, again.films, again.kept, again.stored) == (1, 2, 4, 0)
        assert world.run(archive).before == 3 and (world.folder / "transfer.torn").read_bytes() == lines[3][:40]
        log.write_bytes(lines[1])
        with pytest.raises(RunError, match="is no log of this version"):
            world.run(archive)


def test_a_folder_is_for_one_process(world: World) -> None:
    world.folder.mkdir()
    with FakeArchive() as archive, locked(world.folder), pytest.raises(RunError, match="Another pacs is writing"):
        world.run(archive)


def test_an_archive_that_ignores_what_is_searched(world: World) -> None:
    with FakeArchive([film(0), film(1)]) as archive:
        archive.filters = False
        assert world.run(archive, study=("1.2.826.0.1",)).done == 1
        assert objects_of(2) - objects_of(1) <= archive.objects.keys()


def test_chosen_studies_alone_are_asked(world: World) -> None:
    with FakeArchive([film(0), film(1), film(2, Modality="DX"), film(3, Modality="CT")]) as archive:
        assert world.run(archive, study=("1.2.826.0.1",)).done == 1
        assert world.run(archive, modality=("DX",)).done == 1
        assert world.run(archive, limit=1, date="20260101-").before == 0
        assert any("StudyDate=20260101-" in path for _, path, _ in archive.seen)


def test_a_dry_run_stores_nothing(world: World) -> None:
    with FakeArchive([film(0)]) as archive:
        assert world.run(archive, dry_run=True).stored == 2 and not archive.posted
        assert "mask of Mass, mask of Mass" in world.lines[0]
        assert world.run(archive).stored == 2


def test_another_archive_gets_films_without_a_patient_alone(world: World, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    own, free = film(0), film(1, PatientIdentityRemoved="YES")
    with FakeArchive([own, free]) as archive, FakeArchive() as other:
        with pytest.raises(ConfigError, match="--to is another archive than --from"):
            world.run(archive, target=other.url)
        done = world.run(archive, target=other.url, other_archive=True, token_file=tmp_path / "token")
        assert other.objects.keys() == {"1.2.826.7.1.9.1", "1.2.826.7.1.9.2"} and not archive.posted
        assert "PatientIdentityRemoved" in done.problems[0]
        assert not any("Authorization" in headers for _, _, headers in other.seen)
        assert world.run(archive).stored == 4  # the log is of another archive


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("http://203.0.113.9/dicom-web", {}, "--from is http, and films with names"),
        ("ftp://127.0.0.1/", {}, "has the scheme ftp"),
        ("http://ZZCANARY:secret@127.0.0.1/", {}, "give the file of a token: --token-file"),
        ("http://127.0.0.1/dicom-web?token=ZZCANARY", {}, "has a query"),
        ("http://127.0.0.1/", {"study": ("1.2", "ZZCANARY")}, "--study is no UID"),
        ("http://127.0.0.1/", {"date": "yesterday"}, "--date is no day"),
        ("http://127.0.0.1/", {"max_study": "much"}, "--max-study must be"),
    ],
)
def test_addresses_and_options_are_checked_first(url: str, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        connect(url, None, PacsOptions(**options))
    assert CANARY not in str(caught.value)
    if "203.0.113.9" in url:
        connect(url, None, PacsOptions(insecure_http=True))
        connect("https://203.0.113.9/", None, PacsOptions())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_with_an_own_authority_and_a_token_of_the_environment(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "certificate", tmp_path / "key"
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
    line += ["/CN=archive", "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(line, check=True, capture_output=True)
    monkeypatch.setenv("XBENCH_FAST_ARCHIVE_TOKEN", TOKEN)
    with FakeArchive([film(0)], TOKEN, files) as archive:
        archive.faults = [Fault("POST", status=429, headers={"Retry-After": "2"})]
        assert world.run(archive, ca=files[0]).done == 1 and world.stop.waits == [2]
        world.stop.waits.clear()
        assert "its certificate cannot be verified" in world.run(archive).stopped and not world.stop.waits
        archive.url = archive.url.replace("127.0.0.1", "localhost")
        stopped = world.run(archive, ca=files[0]).stopped
        assert stopped.endswith("; write the host that it names") and "localhost" in stopped and not world.stop.waits
