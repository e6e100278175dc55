"""A model, and a file that answers by the phrase, on a dataset that asks phrases (docs/joints.md)."""

from __future__ import annotations

from itertools import combinations

import pyarrow as pa
from boxes_with_commands import ANY, both_are_judged, call, compared, left_out, of_boxes, shown, without_best
from joint_inputs import FP16, FP32, StoppedSession, put_phrases
from joint_world import World
from pairs_of_phrases import CELL, EACH, asked, pairs, whole
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr

BOXES = "boxes:phrases"
BOXED = f"{BOXES}--mscxr"
TEXTS = ("mild edema", "another edema", "dense opacity")


class Stopped(StoppedSession):
    """Interrupted later, since it is first measured whether queries see one another."""

    most = 4


def file(world: World) -> str:
    return f"boxes:{world.phrases}"


def both(world: World, *more: object, out: str = "run") -> None:
    world.eval(*asked(world), *more, model=[FP32, file(world)], out=out)


def boxed(world: World) -> pa.Table:
    """The rows of the file of the originals."""
    told = ("--data", f"mscxr={world.originals.folder / 'data'}", "--dataset", "mscxr")
    return world.whole(*told, model=f"boxes:{world.originals.folder / 'phrases.jsonl'}", cell=BOXED)


def no_phrase(world: World, said: str) -> None:
    """No phrase of a report in what was printed, nor in a file of the run."""
    texts = [
        path.read_text() for path in (world.folder / "run").rglob("*.*") if path.suffix in (".csv", ".json", ".md")
    ]
    names = [path.name for path in (world.folder / "run").rglob("*")]
    assert len(texts) > 3 and not any(text in each.lower() for each in (said, *texts, *names) for text in TEXTS)


def phrases_resume(world: World) -> None:
    told = [FP32, file(world)]
    world.eval(*asked(world), "--engine", f"{__name__}:Stopped", model=told, status=130)
    both(world)
    assert world.entry(CELL)["computed"] == len(whole(world)) // EACH - 4, "the first chunk of 4 cases is kept"
    assert world.rows(CELL).equals(whole(world)) and world.rows(BOXED).equals(boxed(world))


def phrases_limit(world: World) -> None:
    both(world, "--limit", 3)
    assert world.rows(CELL).equals(whole(world).slice(0, 3 * EACH))
    assert world.rows(BOXED).equals(boxed(world).slice(0, 3 * EACH))


def phrases_shards(world: World) -> None:
    models = [FP32, file(world)]
    world.shards(*asked(world), model=models)
    world.merge_all(*asked(world), model=models)
    assert world.rows(BOXED).equals(boxed(world))


def phrases_subsets(world: World) -> None:
    world.eval(*asked(world), "--dataset", "coco")
    world.eval(*asked(world), model=file(world))
    everything, part = shown(world), shown(world, "--model", BOXES, "--dataset", "mscxr")
    assert of_boxes(part) == of_boxes(everything) and set(of_boxes(part)) == {(BOXES, "mscxr")}
    (cell,) = part["cells"]
    (same,) = [one for one in everything["cells"] if one["model"] == BOXES]
    assert cell["grounding"] == same["grounding"] and len(everything["cells"]) == 3
    assert FP32 not in (world.folder / "run/report/tables.md").read_text()


def phrases_compare(world: World) -> None:
    both(world)
    cell, changed = compared(world, world.folder / "run", "--model", FP32, "--model", BOXES)
    assert set(changed) == set(ANY) and cell["pairs"] == len(pairs(boxed(world)))


def phrases_strata(world: World) -> None:
    both(world)
    no_phrase(world, without_best(world, "strata", "strata", BOXES))


def phrases_failures(world: World) -> None:
    both(world)
    no_phrase(world, without_best(world, "failures", "classes", BOXES))


def phrases_thresholds(world: World) -> None:
    both(world)
    no_phrase(world, left_out(world, "thresholds", BOXES))


def phrases_calibration(world: World) -> None:
    both(world)
    no_phrase(world, left_out(world, "calibration", BOXES))


def phrases_errors(world: World) -> None:
    both(world)
    no_phrase(world, both_are_judged(world, BOXES))


def phrases_live(world: World) -> None:
    call(world, [str(world.models / FP32), file(world)], "mscxr")
    assert world.rows(CELL).equals(whole(world)) and world.rows(BOXED).equals(boxed(world))
    assert world.differences("pointing", "mscxr")[BOXES, "mine"]["left_out"] == 0


def phrases_missing(world: World) -> None:
    images = world.own("data") / "images"
    (images / "case0000.png").unlink()
    both(world)
    assert world.rows(BOXED).equals(boxed(world)) and world.entry(BOXED)["missing"] == 0
    assert world.entry(CELL)["missing"] == 2
    rows = pairs(boxed(world)).to_pylist()
    gone = [row for row in rows if row["case_id"] in ("case0000", "case0000~2")]
    for field in ANY:
        found = world.differences(field, "mscxr")[FP32, BOXES]
        assert (found["shared"], found["left_out"]) == (len(rows) - len(gone), len(gone)) and len(gone) == 3, field


def phrases_moved(world: World) -> None:
    worse = [world.folder / f"{name}.jsonl" for name in ("far", "farther")]
    for path, shift in zip(worse, (12, 14), strict=True):
        put_phrases(path, world.data, shift)
    world.eval(*asked(world), model=[file(world), f"moved:{world.phrases}", *(f"boxes:{path}" for path in worse)])
    of_case = {case.case_id: case.patient for case in MsCxr(world.data).cases()}
    given, moved = (
        [row for row in world.rows(cell).to_pylist() if row["region"]] for cell in (BOXED, "moved:phrases--mscxr")
    )
    answers = [(row["finding"], of_case[row["case_id"]], row["answer"]["boxes"]) for row in given]
    for row in moved:
        others = [boxes for name, who, boxes in answers if name == row["finding"] and who != of_case[row["case_id"]]]
        assert row["answer"]["boxes"] in others
    assert len(moved) == len(given)
    world.report("--model", "moved:phrases", "--model", "boxes:far", "--model", "boxes:farther")
    lines = (world.folder / "run/report/tables.md").read_text().split("\n")
    assert any("**" in line for line in lines if line.startswith("| boxes:far"))
    assert not any("**" in line for line in lines if line.startswith("| moved:"))


def phrases_second(world: World) -> None:
    said = world.eval(*asked(world), model=[file(world), "reader:second"])
    assert "reader:second on mscxr: skipped, the dataset has no boxes of a second reader" in said
    assert world.rows(BOXED).equals(boxed(world))


def phrases_several(world: World) -> None:
    put_phrases(world.folder / "others.jsonl", world.data, shift=4)
    maps = (FP32, FP16)
    world.eval(*asked(world), model=[*maps, file(world), f"boxes:{world.folder / 'others.jsonl'}"])
    told = world.numbers()["differences"]
    for field, names in (("pointing", (*maps, BOXES, "boxes:others")), ("dice_best", maps)):
        found = [one for one in told if (one["field"], one["dataset"]) == (field, "mscxr")]
        assert {frozenset((one["first"], one["second"])) for one in found} == set(
            map(frozenset, combinations(names, 2))
        )
        assert all((one["shared"], one["left_out"]) == (len(pairs(boxed(world))), 0) for one in found)
