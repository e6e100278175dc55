"""Several prompt sets in one pass over the images, with every other feature."""

from __future__ import annotations

from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY, STOPPED, move_box
from joint_world import World, command, first
from pairs_of_patients import named, only_patients_differ
from pairs_of_phrases import CELL as PHRASES
from pairs_of_phrases import asked
from pairs_of_phrases import whole as whole_of_phrases

SETS = ("coco", "mass", "other")
ALL = tuple(part for name in SETS for part in ("--prompts", name))
MEDKLIP = ("--protocol", "medklip")


def cell(name: str, dataset: str = "coco", model: str = FP32) -> str:
    return f"{model}@{name}--{dataset}"


def alone(name: str) -> tuple[str, str]:
    return "--data-option", f"coco.prompts={name}"


def expect_separate_rows(world: World, *how: object, out: str = "run") -> None:
    """Each set has the rows of a run that asks it alone; `mass` has one of the dataset's two classes."""
    for name in SETS:
        assert world.rows(cell(name), out).equals(world.whole(*how, *alone(name))), name


def protocol_sets(world: World) -> None:
    world.eval(*ALL, *MEDKLIP)
    expect_separate_rows(world, *MEDKLIP)


def limit_sets(world: World) -> None:
    world.eval(*ALL, "--limit", LIMITED)
    for name in ("coco", "other"):
        assert world.rows(cell(name)).equals(first(world.whole(*alone(name))))
    assert world.eval(*ALL).count("computed again, because this changed: dataset, limit\n") == len(SETS)
    expect_separate_rows(world)


def shards_sets(world: World) -> None:
    world.shards(*ALL)
    world.merge_all(*ALL)
    expect_separate_rows(world)


def changed_sets(world: World) -> None:
    world.own("data")
    world.eval(*ALL, "--engine", STOPPED, status=130)
    world.eval("--prompts", "coco", "--engine", STOPPED, out="half", status=130)
    assert len(list((world.folder / "half/cells").glob("*.parts/*"))) == 1
    before = world.fresh(cell=f"{FP32}--coco")
    for out in ("run", "half"):
        world.eval(*ALL, "--engine", NUMPY, out=out)
        expect_separate_rows(world, out=out)
    move_box(world.data / "annotations.json")
    assert world.eval("--prompts", "other", "--engine", NUMPY).count("because this changed: dataset\n") == 1
    said = world.eval(*ALL, "--engine", NUMPY)
    assert said.count("because this changed: dataset\n") == 2 and said.count("finished before, reused") == 1
    after = world.fresh()
    assert world.rows(cell("coco")).equals(after) and not after.equals(before)


def baselines_sets(world: World) -> None:
    world.eval(*ALL, model=[FP32, "baseline:ones"])
    expect_separate_rows(world)
    assert world.rows("baseline:ones--coco").equals(world.whole(model="baseline:ones"))
    table = next(text for name, text in world.tables().items() if name.startswith("Table 1"))
    assert all(name in table for name in ("baseline:ones", *(f"{FP32}@{name}" for name in SETS)))
    ran = command("study", "prompts", world.folder / "run", "--replicates", 40)
    assert ran.status == 0 and f"{FP32}@other" in ran.text and "has no second variant" not in ran.text


def maps_sets(world: World) -> None:
    world.eval(*ALL, model=[FP32, world.own_maps])
    assert len(world.cells("run")) == len(SETS) + 1
    assert "finished before, reused" in world.eval(model=world.own_maps)


def boxes_sets(world: World) -> None:
    world.eval(*ALL, model=[FP32, world.own_boxes])
    assert len(world.cells("run")) == len(SETS) + 1
    assert "finished before, reused" in world.eval(model=world.own_boxes)


def twin_sets(world: World) -> None:
    world.eval(*world.twin, *ALL)
    expect_separate_rows(world)
    assert all(world.rows(cell(name, "again")).equals(world.rows(cell(name))) for name in SETS)


def prompts_sets(world: World) -> None:
    world.eval(*alone("mass"))
    world.eval(*alone("mass"), "--prompts", "other", "--prompts", "other")
    assert world.rows().equals(world.whole(*alone("mass")))
    assert world.rows(cell("other")).equals(world.whole(*alone("other"))) and len(world.cells("run")) == 2
    file = world.folder / "xbench.toml"
    file.write_text(
        f'[eval]\nprompts = ["mass"]\n[datasets.coco]\nroot = "{world.data}"\nprompts = ["coco", "other"]\n'
    )
    world.eval("--config", file, "--data-option", "coco.part=true", out="file")
    assert set(world.cells("file")) == {cell("coco"), cell("other")}


def sets_precision(world: World) -> None:
    said = world.eval(*ALL, model=[FP32, FP16], status=1)
    for name in ("mass", "other"):
        assert f"Error: {FP16}@{name} on coco: The bundle {FP16} has no prompt set '{name}'" in said
    expect_separate_rows(world)
    assert world.rows(cell("coco", model=FP16)).equals(world.whole(model=FP16))


def sets_reader(world: World) -> None:
    world.eval(*world.own_reader, *ALL)
    expect_separate_rows(world)


def sets_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache, "--prompts", "mass", "--prompts", "other")
    assert world.decoding() == CASES
    assert world.eval(*cache, *ALL).count("finished before, reused") == 2 and world.decoding() == 0
    world.eval("--no-cache", *ALL, out="none")
    assert world.decoding() == CASES
    for out in ("run", "none"):
        expect_separate_rows(world, out=out)


def sets_engine(world: World) -> None:
    said = world.eval(*ALL, "--engine", NUMPY)
    assert said.count(f"{FP32}: each prompt set computes the images again, because numpy runs graphs whole") == 1
    expect_separate_rows(world)
    assert world.eval(*ALL).count("computed again, because this changed: engine\n") == len(SETS)
    expect_separate_rows(world)


def sets_patients(world: World) -> None:
    world.eval(*ALL, *named(world))
    for name in SETS:
        assert only_patients_differ(world.rows(cell(name)), world.whole(*alone(name)))


def sets_phrases(world: World) -> None:
    said = world.eval(*asked(world), "--dataset", "coco", *ALL)
    assert said.count(f"each image is asked its own phrases, not the prompt sets {', '.join(SETS)}\n") == 1
    assert world.rows(PHRASES).equals(whole_of_phrases(world))
    expect_separate_rows(world)
