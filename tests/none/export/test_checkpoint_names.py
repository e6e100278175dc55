"""Names of tensors as training tools change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export.checkpoints.matching import TensorNames, identify
from xbench_fast.export.checkpoints.names import has_word, nearest_form, place_of, plain_name, without_wrappers


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("blocks.0._checkpoint_wrapped_module.attn.weight", "blocks.0.attn.weight"),
        ("_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module._checkpoint_wrapped_module.w", "blocks.0.w"),
        ("_forward_module.module._orig_mod.module.a.w", "a.w"),
        ("visual._orig_mod.w", "visual.w"),
        ("_fsdp_wrapped_module._fpw_module.a", "a"),
        ("module.module.w", "w"),
        ("visual.module.w", "visual.module.w"),  # may be the model's own part
        ("my_orig_mod.w", "my_orig_mod.w"),  # letters inside a word
        ("submodule.w", "submodule.w"),
        ("module", "module"),
    ],
)
def test_parts_of_wrappers_are_left_out_at_any_depth(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_parts_that_a_model_may_have_are_left_out_when_asked() -> None:
    assert without_wrappers("visual.module.a._module.w") == "visual.a.w"
    assert without_wrappers("text_module.w.module") == "text_module.w.module"


def test_words_are_whole_parts_of_a_name() -> None:
    assert all(has_word(name, "ema") for name in ("ema.", "model_ema.", "EMA_net.", "a.ema-2.b"))
    assert not any(has_word(name, "ema") for name in ("semantic_clip.", "schema.", "emanet.", ""))
    assert identify(["mybackbone.w", "x.disease_embedding_layer.w"]) is None
    assert identify(["module.backbone.w", "x.disease_embedding_layer.w"]) == "MAVL"


FORMS = {
    "visual.attn.lora_A.default.weight": "merge_and_unload",
    "visual.attn.base_layer.weight": "merge_and_unload",
    "_fsdp_wrapped_module._flat_param": "FULL_STATE_DICT",
    "blocks.0.flat_param_0": "FULL_STATE_DICT",
    "conv.parametrizations.weight.original0": "remove_parametrizations",
    "conv.weight_mask": "prune.remove",
    "conv.weight_g": "remove_weight_norm",
    "mlp.weight.SCB": "quantised",
    "mlp._packed_params.dtype": "quantised",
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_changed_weights_names_the_way_back(name: str) -> None:
    assert FORMS[name] in nearest_form(["a.weight", name], {}) and f"(as {name} shows)" in nearest_form([name], {})


def test_ordinary_names_are_no_form() -> None:
    names = ["a.weight", "logit_scale", "x.weighted", "in_proj_weight", "text.scale", "exploration_a"]
    assert nearest_form(names, {}) == ""


def test_the_prefix_of_the_tensors_that_are_needed() -> None:
    needed = {"a.w": (), "b": (), "c": ()}
    names = ["student.net.a.w", "student.net.b", "student.net.c", "aux.b", "x"]
    assert "3 of the 3 tensors that it needs are under 'student.net'" in place_of(needed, [], names)
    assert place_of(needed, ["a.w", "b", "c"], names) == ""  # as many were read
    assert place_of(needed, [], ["aux.b", "x.q"]) == ""  # one of three is chance
    assert place_of(needed, [], ["a.w", "b"]) == ""
    assert "it is under 'net'" in place_of({"b": ()}, [], ["net.b"])


def test_the_description_of_a_models_published_names() -> None:
    """The names of the module, aliases only where a file lacks the module's own name, and nothing unused."""
    tensors: Any = {"x.a2": 1, "x.b.c": 2, "c": 3, "bc": 4}
    names = TensorNames("M", unused=r"^b\.", rename=lambda name: name.removeprefix("x."), aliases=(("a2", "a"),))
    assert names.of(tensors, Path("file")) == {"a": 1, "c": 3, "bc": 4}
    both: Any = {"a2": 1, "a": 2}
    assert names.of(both, Path("file")) == {"a": 2}
    assert TensorNames("M").of(both, Path("file")) == both
    with pytest.raises(CheckpointError, match=r"file holds the tensors x\.a and a, which are both a"):
        names.of({"x.a": both["a"], "a": both["a"]}, Path("file"))
