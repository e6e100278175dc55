"""Views of a dataset's images with every other feature."""

from __future__ import annotations

from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY, STOPPED, move_box
from joint_world import World, command, first
from pairs_of_patients import named, only_patients_differ
from pairs_of_phrases import CELL as PHRASES
from pairs_of_phrases import asked
from pairs_of_phrases import whole as whole_of_phrases

VIEWS = ("flip", "shift-8")
ALL = ("--data-option", "coco.augment=flip,shift:8")
MEDKLIP = ("--protocol", "medklip")


def cell(view: str, model: str = FP32) -> str:
    return f"{model}+{view}--coco"


def expect_separate_rows(world: World, *how: object, out: str = "run") -> None:
    """Plain images have the rows of a run without views, and each view those of a run that has no other."""
    assert world.rows(out=out).equals(world.whole(*how))
    for view in VIEWS:
        alone = world.whole(*how, "--data-option", f"coco.augment={view.replace('-', ':')}", cell=cell(view))
        assert world.rows(cell(view), out).equals(alone), view


def protocol_views(world: World) -> None:
    world.eval(*ALL, *MEDKLIP)
    expect_separate_rows(world, *MEDKLIP)


def limit_views(world: World) -> None:
    world.eval(*ALL, "--limit", LIMITED)
    assert world.rows(cell("flip")).equals(first(world.whole(*ALL, cell=cell("flip"))))
    assert world.eval(*ALL).count("computed again, because this changed: dataset, limit\n") == 3
    expect_separate_rows(world)


def shards_views(world: World) -> None:
    world.shards(*ALL)
    world.merge_all(*ALL)
    expect_separate_rows(world)


def changed_views(world: World) -> None:
    world.own("data")
    world.eval(*ALL, "--engine", STOPPED, status=130)
    world.eval(*ALL, "--engine", NUMPY)
    expect_separate_rows(world, "--engine", NUMPY)
    move_box(world.data / "annotations.json")
    assert world.eval(*ALL, "--engine", NUMPY).count("because this changed: dataset\n") == 3
    assert world.rows(cell("flip")).equals(world.fresh(*ALL, "--engine", NUMPY, cell=cell("flip")))
    assert world.eval("--engine", NUMPY).count("finished before, reused") == 1 and len(world.cells("run")) == 3


def baselines_views(world: World) -> None:
    world.eval(*ALL, model=[FP32, "baseline:center"])
    expect_separate_rows(world)
    assert set(world.cells("run")) == {f"{FP32}--coco", *map(cell, VIEWS), "baseline:center--coco"}
    text = next(text for name, text in world.tables().items() if name.startswith("Table 1"))
    assert f"{FP32}+flip: a view of the images (flip); not ranked" in text
    ran = command("study", "prompts", world.folder / "run", "--replicates", 40)
    assert ran.status == 1 and "No model has two prompt sets on one dataset" in ran.text


def maps_views(world: World) -> None:
    world.eval(*ALL, model=[FP32, world.own_maps])
    assert len(world.cells("run")) == 4
    assert "finished before, reused" in world.eval(model=world.own_maps)


def boxes_views(world: World) -> None:
    world.eval(*ALL, model=[FP32, world.own_boxes])
    assert len(world.cells("run")) == 4
    assert "finished before, reused" in world.eval(model=world.own_boxes)


def twin_views(world: World) -> None:
    world.eval(*world.twin, *ALL)
    expect_separate_rows(world)
    assert world.rows(f"{FP32}--again").equals(world.rows()) and len(world.cells("run")) == 4


def prompts_views(world: World) -> None:
    other = ("--data-option", "coco.prompts=other")
    world.eval(*ALL)
    assert world.eval(*ALL, *other).count("because this changed: prompt_set\n") == 3
    expect_separate_rows(world, *other)


def sets_views(world: World) -> None:
    sets = ("--prompts", "coco", "--prompts", "other")
    world.eval(*ALL, *sets)
    assert len(world.cells("run")) == 6
    for name in ("coco", "other"):
        alone = ("--data-option", f"coco.prompts={name}")
        assert world.rows(f"{FP32}@{name}--coco").equals(world.whole(*alone))
        for view in VIEWS:
            rows = world.rows(f"{FP32}@{name}+{view}--coco")
            assert rows.equals(world.whole(*ALL, *alone, cell=cell(view)))
    ran = command("study", "prompts", world.folder / "run", "--replicates", 40)
    assert ran.status == 0 and f"{FP32}@other+flip" in ran.text


def views_precision(world: World) -> None:
    world.eval(*ALL, model=[FP32, FP16])
    expect_separate_rows(world)
    assert world.rows(cell("flip", FP16)).equals(world.whole(*ALL, model=FP16, cell=cell("flip", FP16)))


def views_reader(world: World) -> None:
    world.eval(*world.own_reader, *ALL)
    expect_separate_rows(world)


def views_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache, *ALL)
    assert world.decoding() == CASES
    expect_separate_rows(world)
    world.eval("--no-cache", *ALL, out="none")
    assert world.decoding() == 3 * CASES
    expect_separate_rows(world, out="none")


def views_engine(world: World) -> None:
    world.eval(*ALL, "--engine", NUMPY)
    expect_separate_rows(world, "--engine", NUMPY)
    assert world.eval(*ALL).count("computed again, because this changed: engine\n") == 3
    expect_separate_rows(world)


def views_patients(world: World) -> None:
    world.eval(*ALL, *named(world))
    assert only_patients_differ(world.rows(cell("flip")), world.whole(*ALL, cell=cell("flip")))


def views_phrases(world: World) -> None:
    world.own("phrases")
    name = PHRASES.split("--")[1]
    both = ("--data-option", f"{name}.augment=gamma:0.9,flip")
    said = world.eval(*asked(world), "--dataset", "coco", *both, status=1)
    assert f"The phrases of the dataset '{name}' can name a side, so its images are not flipped" in said
    assert world.rows(PHRASES).equals(whole_of_phrases(world))
    assert PHRASES.replace("--", "+gamma-0.9--") in world.cells("run")
