"""A supervised model with every command that runs a bundle or reads its results (docs/joints.md)."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request

import pytest
from joint_inputs import FP32
from joint_world import World, command
from serving_process import ServerProcess, image_request
from synthetic import make_bundle, make_ms_cxr
from xbench_fast import open_engine
from xbench_fast.engines.errors import XBenchError

NAME = "taught-32"
STAMP = f"{NAME}: supervised, trained on labels of the findings and asked without text; not ranked"


def taught(world: World) -> World:
    """With a supervised bundle beside the others, which knows Mass and Hernia."""
    graph = world.originals.graphs["fp32"]
    path = make_bundle(world.own("models") / NAME, graph=graph, supervised=("Mass", "Hernia")).path
    shutil.rmtree(path.parent / f".source-{NAME}")
    return world


def supervised_eval(world: World) -> None:
    said = taught(world).eval(model=[FP32, NAME])
    assert "1 of 2 classes are not asked for, as the prompt set 'findings' does not have them: Effusion" in said
    rows, cell = world.rows(f"{NAME}--coco"), f"{NAME}--coco"
    assert set(rows["finding"].to_pylist()) == {"Mass"} and world.entry(cell)["supervised"] is True
    mine = [row for row in world.rows().to_pylist() if row["finding"] == "Mass"]
    assert rows.to_pylist() == mine, "the features of its first finding are those of Mass in the other bundle"
    assert world.eval(model=NAME).count("finished before, reused") == 1
    classes = world.own("data") / "annotations.json"
    document = json.loads(classes.read_text())
    document["categories"] = [{"id": 1, "name": "Rod"}, {"id": 2, "name": "Cyst"}]
    classes.write_text(json.dumps(document))
    said = world.eval(model=NAME, out="other", status=1)
    assert "skipped, its prompt set 'findings' (Mass, Hernia) has none of the dataset's classes (Rod, Cyst)" in said


def supervised_phrases(world: World) -> None:
    make_ms_cxr(taught(world).own("data"))
    said = world.eval("--data", f"mscxr={world.data}", "--dataset", "mscxr", model=NAME, status=1)
    assert "skipped, it reads no phrases: it is supervised and knows 2 findings (Mass, Hernia)" in said


def supervised_prompts(world: World) -> None:
    file = world.folder / "sets.json"
    file.write_text('{"coco": {"Effusion": ["Hernia"], "Mass": ["Mass"]}, "free": {"Mass": ["a round blob"]}}')
    line = ("prompts", "encode", "--prompts", file, "--bundles", taught(world).models, "--model", NAME)
    ran = command(*line)
    assert ran.status == 2 and f"{NAME}: The model is supervised and reads no text, and 'a round blob' is" in ran.text
    assert "known are Mass, Hernia" in ran.text
    assert command(*line, "--prompt-set", "coco").status == 0
    world.eval(model=NAME)
    assert set(world.rows(f"{NAME}--coco")["finding"].to_pylist()) == {"Mass", "Effusion"}


def supervised_report(world: World) -> None:
    taught(world).eval("--limit", 12, model=[FP32, NAME])
    tables = {title: text for title, text in world.tables().items() if NAME in text}
    assert tables and all(STAMP in text for text in tables.values()), tables.keys()
    (coverage,) = [text for title, text in tables.items() if title.startswith("Coverage")]
    assert f"of {NAME}: Effusion" in coverage and f"of {NAME}: Effusion" in tables["Table 1: grounding"]
    assert world.differences("pointing")[FP32, NAME]["shared"] == 4
    (line,) = [line for line in tables["Table 1: grounding"].splitlines() if line.startswith(f"| {NAME}")]
    assert "**" not in line, "never the best"


def supervised_compare(world: World) -> None:
    taught(world).eval(model=[FP32, NAME])
    ran = command("compare", world.folder / "run", "--model", FP32, "--model", NAME)
    assert ran.status == 0 and STAMP in ran.text


def supervised_study(world: World) -> None:
    taught(world).eval(model=[FP32, NAME])
    for name in ("thresholds", "strata", "failures"):
        ran = command("study", name, world.folder / "run", "--replicates", 40)
        assert ran.status == 0 and STAMP in ran.text, ran.text


def supervised_trust(world: World) -> None:
    line = ["trust", "--model", taught(world).models / NAME, "--data", f"coco={world.data}", "--probe", "randomisation"]
    line += ["--seeds", 1, "--blocks", 1]
    ran = command(*line, "--mode", "cascade", "--mode", "text", "--out", world.folder / "trust")
    assert ran.status == 0 and STAMP in ran.text, ran.text
    assert f"{NAME} on coco: 1 of 2 classes are not asked for" in ran.text
    assert "prompts are not exchanged: the model is supervised and reads none" in ran.text
    ran = command(*line, "--mode", "text", "--out", world.folder / "other")
    assert ran.status == 1 and "is supervised and reads no prompts that could be exchanged" in ran.text


def supervised_serve(world: World) -> None:
    taught(world).eval(model=NAME)
    row = world.rows(f"{NAME}--coco").to_pylist()[0]
    image = (world.data / "images" / "case0000.png").read_bytes()
    with ServerProcess(world.models / NAME, world.folder) as server:
        place = f"{server.url}/v2/models/{NAME}"

        def ask(**words: str) -> list[float]:
            body, headers = image_request(image, outputs=("logits",))
            size = int(headers["Inference-Header-Content-Length"])
            content = json.loads(body[:size])
            content["inputs"] += [
                {"name": name, "datatype": "BYTES", "shape": [1], "data": [word]} for name, word in words.items()
            ]
            text = json.dumps(content).encode()
            body, headers = text + body[size:], {"Inference-Header-Content-Length": str(len(text))}
            with urllib.request.urlopen(urllib.request.Request(f"{place}/infer", body, headers)) as answer:
                found: list[float] = json.load(answer)["outputs"][0]["data"]
                return found

        with urllib.request.urlopen(place) as answer:
            told = json.load(answer)["parameters"]
        assert told["fixed_findings"] == ["Mass", "Hernia"] and not told["own_prompts"]
        assert ask()[0] == row["logit"]
        assert ask(prompts='{"Round": ["Mass"]}') == [row["logit"]], "a finding under another name"
        for words in ({"prompts": '{"Mass": ["a round blob"]}'}, {"findings": "Blob"}):
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(**words)
            said = caught.value.read().decode()
            assert caught.value.code == 400 and "known are Mass, Hernia" in said and "of your own" not in said


def supervised_predict(world: World) -> None:
    path = taught(world).models / NAME
    with open_engine(path) as engine:
        image = world.data / "images" / "case0000.png"
        found = engine.predict(image, prompts={"Round": "Mass"})
        assert list(found.findings) == ["Round"]
        with pytest.raises(XBenchError, match=r"'a blob' is none of its findings: .*known are Mass, Hernia"):
            engine.predict(image, prompts={"Round": "a blob"})
