"""The facts each adapter states for its export, queries of several texts, and all models in turn."""

from __future__ import annotations

import copy
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from small_models import small_adapter
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.manifest import MODEL_ORDER, PAPER_MODELS
from xbench_fast.engines.prompts.prompt_encoding import TextEncoder, texts_per_query
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.tokenizing import bundle_tokenizer
from xbench_fast.export import Adapter
from xbench_fast.export.cli import main
from xbench_fast.export.cli.all_models import Job, JobOutcome, Shared, plan, run_all, summary
from xbench_fast.export.cli.export_command import command
from xbench_fast.export.cli.flags import models_named
from xbench_fast.export.models.model_registry import MODELS
from xbench_fast.export.models.published_checkpoints import PUBLISHED
from xbench_fast.export.onnx_graph import image_spec, text_spec
from xbench_fast.export.pipeline import BundleOptions, export_adapter
from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer
from xbench_fast.runtime.reporting.paper.paper_numbers import NAMES

torch = pytest.importorskip("torch")

TEXTS = ("infected lung", *(f"aspect {number} of it" for number in range(8)))


@pytest.fixture(scope="module")
def mavl() -> Iterator[Adapter]:
    """A MAVL small enough to be exported in seconds: nine texts a query."""
    with pytest.MonkeyPatch.context() as patch:
        yield small_adapter("mavl", patch)


@pytest.fixture(scope="module")
def exported(mavl: Adapter, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, list[str]]:
    """Its bundle, and what its export said."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    own = FindingPrompts("Pneumonia", ("\n".join(TEXTS),)), FindingPrompts("Effusion", ("fluid",))
    lines: list[str] = []
    options = BundleOptions(prompts={"mine": own}, progress=lines.append)
    return export_adapter(mavl, tmp_path_factory.mktemp("several"), options).bundle, lines


@pytest.fixture(scope="module")
def several(exported: tuple[Bundle, list[str]]) -> Bundle:
    return exported[0]


def test_an_export_without_the_authors_book_warns(exported: tuple[Bundle, list[str]]) -> None:
    (told,) = (line for line in exported[1] if line.startswith("caution: "))
    assert "rsna, siim" in told and "mine" not in told and "675 texts" in told and "--prompts" in told


def test_a_query_of_several_texts_goes_through_both_graphs(several: Bundle) -> None:
    """The stored features are those of the nine texts, each encoded for itself."""
    image, text = several.graph("image"), several.graph("text")
    assert image.inputs[1].shape == ("findings", 9, 768) and text.outputs[0].shape == ("texts", 768)
    assert texts_per_query(image, text) == several.manifest.text["texts_per_query"] == 9
    prompts = several.prompt_set("mine")
    assert prompts.texts == ("\n".join(TEXTS), "fluid") and prompts.status == ("user", "user")
    words, encoder = bundle_tokenizer(several), TextEncoder.of(several, threads=2)
    for place, sentence in enumerate(TEXTS):
        batch = words([sentence])
        np.testing.assert_allclose(encoder.run(batch.ids, batch.mask)[0], prompts.features[0, place], atol=1e-5)
    assert np.array_equal(prompts.features[1, 0], prompts.features[1, 8]), "a single text serves for all places"
    vindr = several.prompt_set("vindr")
    assert vindr.features.shape[1:] == (9, 768) and set(vindr.status) == {"own"}
    compared = several.manifest.parity
    assert compared["passed"] is True and compared["compared"] > 200


def test_the_grey_channel_is_not_repeated_before_it_is_normalised(several: Bundle) -> None:
    """The mean of each channel makes three of it: copies of the channel would only cost time."""
    graph = pytest.importorskip("onnx").load(str(several.file("image"))).graph
    maker = {name: node for node in graph.node for name in node.output}
    (name,) = (node.input[0] for node in graph.node if "mean" in node.input)
    kinds = []
    while name in maker:
        kinds.append(maker[name].op_type)
        name = maker[name].input[0]
    assert (name, kinds) == ("pixels", ["Div", "Cast"])


def facts() -> dict[str, Any]:
    from xbench_fast.export import stand_in_adapter

    return {name: stand_in_adapter(name) for name in ("medklip", "mavl", "carzero", "biomedclip")}


@pytest.fixture(scope="module")
def adapters() -> dict[str, Any]:
    return facts()


def test_the_graphs_fit_each_other(adapters: dict[str, Any]) -> None:
    count = {name: texts_per_query(image_spec(found), text_spec(found)) for name, found in adapters.items()}
    assert count == {"medklip": 1, "mavl": 9, "carzero": 1, "biomedclip": 1}
    assert text_spec(adapters["mavl"]).outputs[0].shape == ("texts", 768)
    assert image_spec(adapters["mavl"]).inputs[1].shape == ("findings", 9, 768)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("medklip", "bio_clinicalbert"), ("mavl", "bio_clinicalbert"), ("carzero", "bio_clinicalbert"),
     ("biomedclip", "pubmedbert")],
)  # fmt: skip
def test_a_model_takes_its_vocabulary_and_no_other(
    adapters: dict[str, Any], shared: Path, name: str, folder: str
) -> None:
    found, home = copy.copy(adapters[name]), shared / "data" / "tokenizers"
    found.vocabulary_size = {"bio_clinicalbert": 28996, "pubmedbert": 30522}[folder]  # the table's published size
    assert select_tokenizer(found, home / folder).record["source"] == folder
    for other in {"bio_clinicalbert", "bert_base_uncased", "pubmedbert"} - {folder}:
        with pytest.raises(ConfigError, match="another model"):
            select_tokenizer(found, home / other)
    found.tokenizer = replace(found.tokenizer, ends=None)
    for other in {"bert_base_uncased", "pubmedbert"} - {folder}:
        with pytest.raises(ConfigError, match="another model"):
            select_tokenizer(found, home / other)


def test_the_tokenizers_rules_are_the_authors(adapters: dict[str, Any]) -> None:
    rules = {
        name: (spec.separator, spec.special_words, spec.lower_case, spec.cleaning, spec.marks_continuations, spec.ends)
        for name, spec in ((name, found.tokenizer) for name, found in adapters.items())
    }
    assert rules == {
        "medklip": (False, True, True, "", False, (101, 102)),
        "mavl": (False, True, True, "", False, (101, 102)),
        "carzero": (True, False, True, "carzero", True, (101, 102)),
        "biomedclip": (True, True, True, "open_clip", False, (2, 3)),
    }
    known = {name for name, found in adapters.items() if found.tokenizer.reference is not None}
    assert known == {"carzero", "biomedclip"}, "MedKLIP's class is its own"
    assert {name: found.context for name, found in adapters.items()} == {
        "medklip": 64,
        "mavl": 64,
        "carzero": 97,
        "biomedclip": 256,
    }


def test_another_number_of_texts_is_refused(mavl: Adapter, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="'a' has 2 texts, but this model takes 9"):
        export_adapter(
            mavl, tmp_path / "out", BundleOptions(prompts={"rsna": (FindingPrompts("Pneumonia", ("a\nb",)),)})
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_help_names_the_variants_that_there_are(name: str) -> None:
    """The list is read without torch, so it stands beside the adapters'."""
    adapter = MODELS.load(name)
    assert PUBLISHED[name].stand_ins == adapter.variants
    shown = "".join(command.get_help(click.Context(command)).split())  # lines are broken at hyphens too
    assert f"{name}:{','.join(adapter.variants)}" in shown


# All models in turn


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def test_the_plan_takes_what_is_there_and_names_what_is_not(tmp_path: Path) -> None:
    touch(tmp_path, "KAD_Models/KAD_512/best_valid.pt", "kad/KAD_1024/best_valid.pt", "ViT-B-16.pt", "devide/devide.pt")
    touch(tmp_path, "words/kad/vocab.txt", "prompts/mavl/x", "mine.json")
    shared = Shared(["--out", "o"], tmp_path / "words", Path("bert"), [tmp_path / "prompts", tmp_path / "mine.json"])
    jobs = {job.name: job for job in plan(models_named(("all",)), tmp_path, shared)}
    assert [name for name, job in jobs.items() if job.refusal] == ["biomedclip", "medklip", "mavl", "carzero"]
    made = {name: " ".join(job.arguments) for name, job in jobs.items() if not job.refusal}
    assert list(made) == ["clip-vit-b-16", "kad-512", "kad-1024", "devide-assumed-architecture"]
    assert made["kad-1024"].endswith(f"--checkpoint {tmp_path}/kad/KAD_1024/best_valid.pt --resolution 1024")
    assert f"--tokenizer {tmp_path}/words/kad" in made["kad-512"] and "--tokenizer" not in made["clip-vit-b-16"]
    assert all(f"--prompts {tmp_path}/mine.json" in line and "bert" not in line for line in made.values())
    assert f"--prompts {tmp_path}/prompts/mavl" in " ".join(shared.arguments("mavl"))
    assert "--text-encoder bert" in " ".join(shared.arguments("medklip"))
    stand_ins = plan(models_named(("all",)), None, Shared(["--out", "o"]))
    assert [job.name for job in stand_ins] == ["clip", "biomedclip", "medklip", "kad", "mavl", "carzero", "devide"]
    assert all(job.arguments[-2:] == ("--weights", "stand-in") for job in stand_ins)


def test_text_weights_go_to_every_model_that_takes_them(tmp_path: Path) -> None:
    """A folder or file of the model's name; Bio_ClinicalBERT, which two models share, is the folder itself."""
    touch(tmp_path, "biovil/pytorch_model.bin", "mavl", "clip/open_clip_model.safetensors", "pytorch_model.bin")
    shared = Shared([], text_encoder=tmp_path)
    given = {model: shared.arguments(model) for model in PUBLISHED}
    taken = {model: Path(line[1]) for model, line in given.items() if line}
    assert taken == {"biovil": tmp_path / "biovil", "mavl": tmp_path / "mavl", "medklip": tmp_path}
    touch(tmp_path, "biovil_t")
    taking = {model for model in PUBLISHED if "text_encoder" in inspect.signature(MODELS.load(model).load).parameters}
    assert {model for model in PUBLISHED if shared.arguments(model)} == taking


def test_all_are_the_papers_and_everything_is_more() -> None:
    assert models_named(("all",)) == tuple(NAMES) == PAPER_MODELS and len(PAPER_MODELS) == 7
    assert models_named(("everything",)) == tuple(PUBLISHED) == tuple(name for name in MODEL_ORDER if name in PUBLISHED)
    assert models_named(("everything",))[:7] == PAPER_MODELS and models_named(("everything",))[-1] == "xrv"
    assert models_named(("xrv", "kad", "xrv")) == ("xrv", "kad")
    assert models_named(()) == models_named(("kad",)) == models_named(("kad", "kad")) == ()
    assert models_named(("a,b/file.py:Class",)) == ()
    with pytest.raises(ConfigError, match="'kda' is not among the built-in models: did you mean 'kad'"):
        models_named(("clip", "kda"))


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    good = ("--model", "kad", "--weights", "stand-in", "--variant", "demo", "--out", str(tmp_path / "out"))
    jobs = [Job("kad", ("--model", "kad", "--weights", "stand-in", "--variant", "3", "--out", "x")), Job("good", good)]
    lines: list[str] = []
    outcomes = run_all([*jobs, Job("none", refusal="no file")], lines.append)
    assert [(outcome.name, outcome.reason.partition(": known")[0]) for outcome in outcomes] == [
        ("kad", "The model 'kad' has no variant '3'"),
        ("good", ""),
        ("none", "no file"),
    ]
    assert Bundle.load(tmp_path / "out" / "kad-demo").manifest.weights == "stand-in"
    assert "[2/3] good" in lines and any("parity" in line for line in lines)


def test_the_summary_has_a_line_a_job_and_a_count() -> None:
    lines = summary([JobOutcome("kad-224", "", 71.2), JobOutcome("clip", "no file", 0.0)])
    assert lines == ["kad-224  71 s", "clip     failed: no file", "1 of 2 exported, 1 failed"]
    assert summary([JobOutcome("kad-224", "", 1.0)])[-1] == "1 of 1 exported"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "all", "--out", "x"], "--checkpoints DIR or --weights stand-in"),
        (["--model", "all", "--out", "x", "--weights", "stand-in", "--checkpoints", "y"], "one of the two"),
        (["--model", "all", "--out", "x", "--checkpoint", "y"], "neither --checkpoint"),
        (["--model", "kad", "--out", "x", "--checkpoints", "y", "--weights", "stand-in"], "goes with several models"),
    ],
)
def test_wrong_options_for_all_end_with_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_all_of_an_empty_folder_is_status_1_with_a_summary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--model", "all", "--checkpoints", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "0 of 7 exported, 7 failed" in capsys.readouterr().err
    assert main(["--model", "all", "--checkpoints", str(tmp_path / "absent"), "--out", str(tmp_path / "out")]) == 2
    assert "There is no folder" in capsys.readouterr().err
    line = [
        "--model",
        "biovil",
        "--model",
        "kad",
        "--checkpoints",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
        "--text-encoder",
    ]
    assert main([*line, str(tmp_path / "absent")]) == 2
    assert "There is no file or folder" in capsys.readouterr().err
    assert main([*line, str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"biovil: there is no {tmp_path / 'biovil'}; its text weights are taken from the folder" in said


def test_the_list_looks_for_the_files_and_compares_their_digest(tmp_path: Path) -> None:
    touch(tmp_path, "clip/ViT-B-32.pt", "KAD_224/best_valid.pt")
    command = [sys.executable, "-m", "xbench_fast.export.cli", "--list", "--checkpoints", str(tmp_path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"found: \S*clip/ViT-B-32.pt, sha256 differs", text)
    assert re.search(r"found: \S*KAD_224/best_valid.pt\n", text)
    assert text.count("not found") == 19, "of twenty-one files"
    assert "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af" in text
