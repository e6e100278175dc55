"""The reader option `patients` with every other feature: rows differ in the patient, and in nothing else."""

from __future__ import annotations

import pyarrow as pa
from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY
from joint_world import World, first

MEDKLIP = ("--protocol", "medklip")
OTHER = ("--data-option", "coco.prompts=other")


def named(world: World, together: int = 3, cases: int = CASES, dataset: str = "coco") -> list[object]:
    """The option with a file in which so many images in turn are of one patient."""
    file = world.folder / "patients.csv"
    lines = [f"case{case:04d}.png,w{case // together}" for case in range(cases)]
    file.write_text("\n".join(["file_name,patient_id", *lines]) + "\n")
    return ["--data-option", f"{dataset}.patients={file}"]


def only_patients_differ(rows: pa.Table, other: pa.Table, together: int = 3) -> bool:
    """Whether rows with the file are those without it, but for the patients."""
    wanted = [f"w{int(case[4:]) // together}" for case in rows["case_id"].to_pylist()]
    rest = rows.drop_columns(["patient_id"]).equals(other.drop_columns(["patient_id"]))
    return rest and rows["patient_id"].to_pylist() == wanted != other["patient_id"].to_pylist()


def protocol_patients(world: World) -> None:
    world.eval(*named(world), *MEDKLIP)
    assert only_patients_differ(world.rows(), world.whole(*MEDKLIP))


def limit_patients(world: World) -> None:
    world.eval(*named(world), "--limit", LIMITED)
    assert only_patients_differ(world.rows(), first(world.whole()))
    said = world.eval(*named(world, cases=LIMITED), "--limit", LIMITED, status=1)
    assert "names no patient for 6 of 12 images of the dataset 'coco', the first is case0006.png" in said


def shards_patients(world: World) -> None:
    world.eval(*named(world), "--shard", "1/2")
    world.eval("--shard", "2/2")
    assert "of different evaluations (they differ in dataset)" in world.merge(status=1)
    world.eval(*named(world), "--shard", "2/2")
    world.merge_all(*named(world))


def changed_patients(world: World) -> None:
    world.eval(*named(world))
    assert "finished before, reused" in world.eval(*named(world))
    assert "computed again, because this changed: dataset\n" in world.eval(*named(world, 4))
    assert only_patients_differ(world.rows(), world.whole(), 4)


def baselines_patients(world: World) -> None:
    names = ["baseline:ones", "baseline:chance"]
    world.eval(*named(world), model=names)
    for name in names:
        assert only_patients_differ(world.rows(f"{name}--coco"), world.whole(model=name))


def maps_patients(world: World) -> None:
    world.eval(*named(world), model=world.own_maps)
    assert only_patients_differ(world.rows("maps:maps--coco"), world.whole(model=world.own_maps))


def twin_patients(world: World) -> None:
    world.eval(*world.twin, *named(world, dataset="again"))
    assert world.rows().equals(world.whole())
    assert only_patients_differ(world.rows(f"{FP32}--again"), world.whole())


def prompts_patients(world: World) -> None:
    world.eval(*named(world))
    assert "because this changed: prompt" in world.eval(*named(world), *OTHER)
    assert only_patients_differ(world.rows(), world.whole(*OTHER))


def precision_patients(world: World) -> None:
    world.eval(model=[FP32, FP16])
    both, fields = (FP32, FP16), ("dice_best", "dice_cross_fitted")
    best, fitted = (world.differences(field)[both] for field in fields)
    world.eval(*named(world, CASES), model=[FP32, FP16])
    again, none = (world.differences(field) for field in fields)
    assert again[both]["difference"] == best["difference"] and again[both]["shared"] == best["shared"] == 7
    assert fitted["shared"] == 7 and not none, "there is no other patient to fit on"


def reader_patients(world: World) -> None:
    said = world.eval(*world.own_reader, *named(world), status=2)
    assert "patients" in said and "no option" in said
    reader = world.own("reader")
    text = reader.read_text().replace("import Case, Dataset", "import PATIENTS, Case, Dataset")
    title = '    name = title = "films"\n'
    reader.write_text(text.replace(title, f"{title}    option_help = PATIENTS\n"))
    world.eval(*world.own_reader, *named(world))
    assert only_patients_differ(world.rows(), world.whole())


def cache_patients(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache)
    world.decoding()
    assert "computed again, because this changed: dataset\n" in world.eval(*cache, *named(world))
    assert world.decoding() == 0 and only_patients_differ(world.rows(), world.whole())


def engine_patients(world: World) -> None:
    world.eval(*named(world), "--engine", NUMPY)
    assert only_patients_differ(world.rows(), world.whole())
