"""Models of the families dual and classifier with what an export and an evaluation can do (docs/joints.md)."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joint_world import Ran, World, command
from xbench_fast.export.cli import main

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "a", "mass", "round", "fluid", "blob")
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TABLES = """
[models.dual]
family = "dual"
arch = "timm:test_vit"
text_encoder = "bert"
checkpoint = "dual.pt"
prompts = "prompts.json"
[models.dual.options]
image = {projection = "image_projection"}
text = {projection = "text_projection"}
logit_scale = 10
arch_options = {depth = 1}
preprocess = {size = 48, resize_mode = "squash"}
[models.classifier]
family = "classifier"
arch = "timm:test_vit"
checkpoint = "classifier.pt"
[models.classifier.options]
findings = ["Effusion", "Mass"]
arch_options = {depth = 1}
preprocess = {size = 48, resize_mode = "squash"}
"""
PROMPTS = {"coco": {"Effusion": ["fluid"], "Mass": ["a round mass"]}}


def families(world: World) -> Path:
    """A folder with untrained weights of both families and their configuration, made once."""
    folder = world.originals.folder / "families"
    if folder.is_dir():
        return folder
    timm, torch, transformers = map(pytest.importorskip, ("timm", "torch", "transformers"))
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir()
    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder / "bert")
    text = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, pad_token_id=0, **SIZES)
    text.save_pretrained(folder / "bert")
    sizes = {"img_size": 48, "depth": 1}
    parts = {
        "image": timm.create_model("test_vit", num_classes=0, **sizes),
        "text": transformers.BertModel(text, add_pooling_layer=False),
        "image_projection": torch.nn.Linear(64, 8),
        "text_projection": torch.nn.Linear(16, 8),
    }
    torch.save(torch.nn.ModuleDict(parts).state_dict(), folder / "dual.pt")
    torch.save(timm.create_model("test_vit", num_classes=2, **sizes).state_dict(), folder / "classifier.pt")
    (folder / "prompts.json").write_text(json.dumps(PROMPTS))
    (folder / "xbench.toml").write_text(TABLES)
    return folder


def export(world: World, name: str, *more: object, out: Path | None = None) -> Ran:
    """`xbench-export --model NAME`, in this process, one time for all pairs where nothing is added."""
    folder = families(world)
    shared = folder / "bundles" / f"{name}-48"
    if not more and shared.is_dir():
        return Ran(0, "")
    line = [
        "--config",
        folder / "xbench.toml",
        "--model",
        name,
        "--out",
        out or (world.folder / "new" if more else shared.parent),
    ]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main([str(each) for each in (*line, *more)])
    return Ran(status, said.getvalue())


def evaluated(world: World, name: str, *more: object, given: tuple[object, ...] = (), **how: Any) -> str:
    """The plain bundle, and one exported with `more`, evaluated into one run; what `eval` printed."""
    assert export(world, name).status == 0
    world.models = families(world) / "bundles"
    said = world.eval(*given, model=f"{name}-48", **how)
    if more:
        made = export(world, name, *more)
        assert made.status == 0, made.text
        (path,) = (world.folder / "new").iterdir()
        world.models = path.parent
        said += world.eval(*given, model=path.name, **how)
    return said


def logits(world: World, cell: str, out: str = "run") -> Any:
    return np.array(world.rows(cell, out)["logit"].to_pylist())


def resized(world: World, name: str) -> None:
    evaluated(world, name, "--resolution", 64)
    assert not np.allclose(logits(world, f"{name}-48-at-64--coco"), logits(world, f"{name}-48--coco"), atol=1e-4)
    tables = world.tables()
    assert "positions resampled from 48" in tables["Table 1: grounding"]
    refused = export(world, name, "--resolution", 50)
    assert refused.status == 2 and "because its patches have 16: give a resolution that is a multiple" in refused.text


def lowered(world: World, name: str) -> None:
    evaluated(world, name, "--precision", "fp16")
    fp16, fp32 = logits(world, f"{name}-48-fp16--coco"), logits(world, f"{name}-48--coco")
    assert 0 < np.abs(fp16 - fp32).max() < 0.02 * np.abs(fp32).max()


def tiled(world: World, name: str) -> None:
    evaluated(world, name)
    world.eval("--tiles", "2x2", model=f"{name}-48", out="tiles")
    (cell,) = world.cells("tiles")
    plain, tiles = world.rows(f"{name}-48--coco").to_pylist(), world.rows(cell, "tiles").to_pylist()
    assert [row["logit"] for row in plain] == [row["logit"] for row in tiles], "the score of the whole image"
    assert plain != tiles


def randomised(world: World, name: str) -> None:
    assert export(world, name).status == 0
    line = ["trust", "--model", families(world) / "bundles" / f"{name}-48", "--data", f"coco={world.data}"]
    line += ["--probe", "randomisation", "--seeds", 1, "--blocks", 1, "--mode", "cascade"]
    ran = command(*line, "--out", world.folder / "trust")
    assert ran.status == 0 and "randomisation" in ran.text, ran.text


def without_checkpoint(world: World, name: str) -> None:
    refused = export(world, name, "--weights", "stand-in")
    assert (
        refused.status == 2 and "names no 'variants', so it has no stand-in weights; give a checkpoint" in refused.text
    )


def dual_resolution(world: World) -> None:
    resized(world, "dual")


def dual_precision(world: World) -> None:
    lowered(world, "dual")


def dual_tiles(world: World) -> None:
    tiled(world, "dual")


def dual_trust(world: World) -> None:
    randomised(world, "dual")


def dual_weights(world: World) -> None:
    without_checkpoint(world, "dual")


def dual_saliency(world: World) -> None:
    evaluated(world, "dual", "--saliency", "patch-text-softmax")
    other = logits(world, "dual-48-patch-text-softmax--coco")
    np.testing.assert_array_equal(other, logits(world, "dual-48--coco"))
    refused = export(world, "dual", "--saliency", "gradient-attention")
    assert refused.status == 2 and "has no saliency map 'gradient-attention'" in refused.text


def dual_prompts(world: World) -> None:
    """A set that is encoded later gives the rows of the same set in the export."""
    evaluated(world, "dual")
    file = world.folder / "later.json"
    file.write_text(json.dumps({"later": PROMPTS["coco"]}))
    world.models = Path(shutil.copytree(world.models, world.folder / "own"))
    ran = command("prompts", "encode", "--prompts", file, "--bundles", world.models, "--model", "dual-48")
    assert ran.status == 0, ran.text
    world.eval("--data-option", "coco.prompts=later", model="dual-48", out="later")
    np.testing.assert_array_equal(logits(world, "dual-48--coco", "later"), logits(world, "dual-48--coco"))


def dual_phrases(world: World) -> None:
    assert export(world, "dual").status == 0
    world.models = families(world) / "bundles"
    world.eval("--data", f"mscxr={world.data}", "--dataset", "mscxr", model="dual-48")
    asked = [row["logit"] for row in world.rows("dual-48--mscxr").to_pylist() if row["label"]]
    assert len(asked) > 1 and np.ptp(asked) > 0


def dual_engine(world: World) -> None:
    evaluated(world, "dual")
    world.eval("--engine", "torch", model="dual-48", out="torch")
    np.testing.assert_allclose(logits(world, "dual-48--coco", "torch"), logits(world, "dual-48--coco"), atol=1e-4)


def classifier_resolution(world: World) -> None:
    resized(world, "classifier")


def classifier_precision(world: World) -> None:
    lowered(world, "classifier")


def classifier_tiles(world: World) -> None:
    tiled(world, "classifier")


def classifier_trust(world: World) -> None:
    randomised(world, "classifier")


def classifier_weights(world: World) -> None:
    without_checkpoint(world, "classifier")


def classifier_saliency(world: World) -> None:
    refused = export(world, "classifier", "--saliency", "patch-text")
    assert refused.status == 2 and "no saliency map 'patch-text': known are class-activation" in refused.text


def classifier_prompts(world: World) -> None:
    refused = export(world, "classifier", "--prompts", families(world) / "prompts.json")
    assert refused.status == 2 and "'fluid' is none of its findings: known are Effusion, Mass" in refused.text, (
        refused.text
    )


def classifier_tokenizer(world: World) -> None:
    refused = export(world, "classifier", "--tokenizer", families(world) / "bert")
    assert refused.status == 2 and "has no option 'tokenizer'" in refused.text


def classifier_phrases(world: World) -> None:
    assert export(world, "classifier").status == 0
    world.models = families(world) / "bundles"
    said = world.eval("--data", f"mscxr={world.data}", "--dataset", "mscxr", model="classifier-48", status=1)
    assert "skipped, it reads no phrases: it is supervised and knows 2 findings (Effusion, Mass)" in said


def classifier_report(world: World) -> None:
    """Beside a model that reads text, on the same pairs."""
    evaluated(world, "classifier")
    assert export(world, "dual").status == 0
    world.eval(model="dual-48")
    table = world.tables()["Table 1: grounding"]
    assert "classifier-48: supervised, trained on labels of the findings and asked without text; not ranked" in table
    assert world.differences("pointing")["classifier-48", "dual-48"]["shared"] == 7
