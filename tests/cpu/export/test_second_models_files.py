"""Files of BioViL, BioViL-T, CheXzero, AFLoc and torchxrayvision as others may have saved them: every form of a small
network gives the same tensors, and every wrong one a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_models import BERT, small_adapter
from torch import Tensor
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export import Adapter, load_adapter
from xbench_fast.export.checkpoints.stand_in import fill_module
from xbench_fast.export.models import afloc, biovil, xrv
from xbench_fast.export.models.biovil import BIOVIL, BIOVIL_T
from xbench_fast.export.models.layers.resnet import ResNetConfig
from xbench_fast.export.models.published_checkpoints import PUBLISHED

MODELS = ("afloc", "biovil", "biovil_t", "chexzero", "xrv")
State = dict[str, Tensor]
# A tensor of each model that its file must hold; what stands before the names in the file.
NEEDED = {
    "afloc": "img_encoder.local_embedder.weight",
    "biovil": "projector.model.1.running_var",
    "biovil_t": "encoder.missing_previous_emb",
    "chexzero": "visual.ln_pre.weight",
    "xrv": "features.norm5.bias",
}


class Made:
    """A model's own tensors, and its image file under the published name, in a folder with the text file."""

    def __init__(self, model: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.path = model, folder
        if model == "xrv":
            small = xrv.XrvDenseNet
            monkeypatch.setattr(xrv, "XrvDenseNet", lambda outputs: small(outputs, (1, 1, 1, 1)))
            self.state = fill(lambda: small(18, (1, 1, 1, 1)))
            self.file = folder / Path(PUBLISHED["xrv"].variants["all"].paths[-1]).name
        elif model == "afloc":
            resnet = ResNetConfig(stem=8, widths=(8, 8, 16, 16), blocks=(1, 1, 1, 1))
            monkeypatch.setattr(afloc, "BertConfig", lambda **sizes: replace(BERT, **sizes))
            monkeypatch.setattr(afloc, "ResNetConfig", lambda: resnet)
            state = fill(lambda: afloc.Afloc(BERT, resnet))
            self.state, self.file = {f"afloc.{name}": tensor for name, tensor in state.items()}, folder / "afloc.ckpt"
        elif model == "chexzero":
            adapter: Any = small_adapter("chexzero", monkeypatch)
            self.state, self.file = adapter.module.members[0].state_dict(), folder / "best_a.pt"
        else:
            whole = small_adapter(model, monkeypatch).module.state_dict()
            monkeypatch.setattr(biovil, "cached_file", lambda *names: None)
            self.state, text = (
                {name.removeprefix(part): tensor for name, tensor in whole.items() if name.startswith(part)}
                for part in ("image.", "text.")
            )
            torch.save(text, folder / "pytorch_model.bin")
            self.file = folder / (BIOVIL if model == "biovil" else BIOVIL_T).image_file
        self.needed = f"{'afloc.' if model == 'afloc' else ''}{NEEDED[model]}"

    def load(self, content: Any, save: Callable[[Any, Path], Any] = torch.save) -> Adapter:
        save(content, self.file)
        return load_adapter(self.model, self.file)


def fill(build: Callable[[], torch.nn.Module]) -> State:
    with torch.device("meta"):
        module = build()
    fill_module(module, 1)
    return module.state_dict()


@pytest.fixture(params=MODELS)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(request.param, tmp_path, monkeypatch)


def named(prefix: str, state: State) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


FORMS: dict[str, Callable[[State], Any]] = {
    "another order": lambda state: dict(reversed(state.items())),
    "DataParallel": lambda state: {"state_dict": named("module.", state), "epoch": 3, "optimizer": {"lr": 1e-4}},
    "compiled": lambda state: named("_orig_mod.", state),
    "Lightning": lambda state: {"state_dict": named("net.", state) | {"loss.weight": torch.ones(2)}},
    "averages beside": lambda state: {"model": state, "ema": {name: 2 * x for name, x in state.items()}},
    "safetensors": lambda state: {name: tensor.contiguous() for name, tensor in state.items()},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_network(made: Made, form: str) -> None:
    plain = made.load(made.state).module.state_dict()
    found = made.load(FORMS[form](made.state), save_file if form == "safetensors" else torch.save).module.state_dict()
    assert list(found) == list(plain) and all(torch.equal(found[name], plain[name]) for name in plain)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_kinds_of_floats_become_float32(made: Made, kind: torch.dtype) -> None:
    """Counters too are cast by `module.half()` and come back."""
    cast = {name: tensor.to(kind) for name, tensor in made.state.items()}
    found, plain = made.load(cast).module.state_dict(), made.load(made.state).module.state_dict()
    image = {name for name in plain if "text" not in name or made.model == "chexzero"}
    for name in image:
        assert found[name].dtype == plain[name].dtype
        torch.testing.assert_close(found[name].double(), plain[name].to(kind).double(), rtol=0, atol=0)


def test_a_surplus_and_a_missing_tensor_are_named_in_one_sentence(made: Made) -> None:
    surplus = made.needed.replace("weight", "surplus") if "weight" in made.needed else f"{made.needed}_surplus"
    short = surplus.removeprefix("afloc.")
    lacking = {name: tensor for name, tensor in made.state.items() if name != made.needed}
    for state, words in (
        ({**made.state, surplus: torch.ones(2)}, f"1 unexpected ({short})"),
        (lacking, f"1 missing ({NEEDED[made.model]})"),
        ({**lacking, surplus: torch.ones(2)}, f"1 missing ({NEEDED[made.model]}), 1 unexpected ({short})"),
        ({**made.state, made.needed: torch.ones(3, 1)}, f"1 of another shape ({NEEDED[made.model]} [3, 1] instead of"),
    ):
        with pytest.raises(CheckpointError) as caught:
            made.load(state)
        message = str(caught.value)
        assert words in message and "\n" not in message and message.startswith(str(made.file)), message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_named(made: Made, value: float) -> None:
    broken = made.state[made.needed].clone()
    broken.view(-1)[-1] = value
    with pytest.raises(CheckpointError, match=f"{NEEDED[made.model]} of .* holds values that are not finite"):
        made.load({**made.state, made.needed: broken})


def test_a_file_of_another_of_the_five_is_told(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"afloc": "AFLoc", "biovil": "BioViL", "biovil_t": "BioViL-T", "chexzero": "CLIP", "xrv": "DenseNet-121"}
    torch.save(made.state, tmp_path / "given.pt")
    for other in ("medklip", "biomedclip", "carzero"):
        with pytest.raises(CheckpointError) as caught:
            load_adapter(other, tmp_path / "given.pt")
        assert known[made.model] in str(caught.value), str(caught.value)
