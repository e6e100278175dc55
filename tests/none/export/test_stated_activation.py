"""Which GELU weights were trained with, read from the text of TorchScript code and from config.json."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.export.checkpoints import stated_activation
from xbench_fast.export.checkpoints.stated_activation import EXACT, QUICK, configured_activation, scripted_activation

TRACED = "class QuickGELU(Module):\n  _0 = torch.sigmoid(torch.mul(argument_1, CONSTANTS.c1))\n    return argument_1\n"
IN_STEPS = "    _0 = torch.mul(x, CONSTANTS.c0)\n    _1 = torch.sigmoid(_0)\n"
PLAIN = "class GELU(Module):\n    return torch.gelu(argument_1)\n"
TANH = '    return torch.gelu(argument_1, approximate="tanh")\n'
CALLED = "  gelu : __torch__.torch.nn.modules.activation.GELU\n    _0 = (gelu).forward((c_fc).forward(x, ), )\n"


def archive(folder: Path, *codes: str, place: str = "model/code/__torch__/{number}.py") -> Path:
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("model/data.pkl", "x")
        for number, code in enumerate(codes):
            file.writestr(place.format(number=number), code)
    return path


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        ((CALLED, TRACED), QUICK),
        ((IN_STEPS,), QUICK),
        ((CALLED, PLAIN, PLAIN), EXACT),
        ((TANH,), "GELU by tanh"),
        ((TRACED, PLAIN), ""),
        ((TANH, PLAIN), ""),
        ((CALLED,), ""),
        ((), ""),
    ],
)
def test_the_code_of_an_archive_says_which_gelu_it_computes(
    codes: tuple[str, ...], wanted: str, tmp_path: Path
) -> None:
    assert scripted_activation(archive(tmp_path, *codes)) == wanted


def test_only_code_is_read_and_not_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scripted_activation(archive(tmp_path, TRACED, place="model/extra/{number}.py")) == ""
    path = archive(tmp_path, TRACED)
    assert scripted_activation(path) == QUICK
    monkeypatch.setattr(stated_activation, "_MOST_CODE", len(TRACED) - 1)
    assert scripted_activation(path) == ""
    (tmp_path / "plain.pt").write_bytes(b"no archive")
    assert scripted_activation(tmp_path / "plain.pt") == ""


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"model_type": "clip", "vision_config": {}, "text_config": {}}, QUICK),
        ({"model_type": "clip"}, QUICK),
        ({"model_type": "clip", "vision_config": {"hidden_act": "gelu"}, "text_config": {"hidden_act": "gelu"}}, EXACT),
        ({"model_type": "clip", "vision_config": {"hidden_act": "gelu"}, "text_config": {}}, ""),
        ({"model_type": "clip", "vision_config": {"hidden_act": ["gelu"]}}, ""),
        ({"model_type": "bert", "hidden_act": "gelu"}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_a_configuration_of_transformers_states_it(config: Any, wanted: str, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert configured_activation(tmp_path / "model.safetensors") == wanted
