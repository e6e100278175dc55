"""Parameters and multiply-accumulates against figures that were counted in the authors' modules (about a minute)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from authors_outputs import authors_outputs  # noqa: E402
from xbench_fast.export import stand_in_adapter  # noqa: E402
from xbench_fast.export.checkpoints import stand_in  # noqa: E402
from xbench_fast.export.cost import count_macs, measure_cost  # noqa: E402

POOLER = 768 * 768 + 768  # of a BERT whose pooled state nobody reads
G, M = 10**9, 10**6

# model: findings; G per batch of one image; of these once per batch; G per text; parameters of the two graphs.
KNOWN: dict[str, tuple[int, float, float, float, int, int]] = {
    "kad": (10, 3.638 + 1.142, 0.0, 22.95, 10_380_096 + 25_219_074, 110_663_425 - 1),
    "medklip": (75, 3.969, 0.0, 0.0, 14_464_322 - 197_376, 108_310_272 - POOLER),
    # without the attention pool, of 0.751 G, and the location head
    "mavl": (75, 8.203 - 0.751, 0.0, 0.0, 19_654_211 - 3_612_928 - 1_770_240, 108_310_272 - POOLER),
    "clip": (10, 4.409 + 0.0193 + 10 * 25.6e-6, 0.0, 2.980, 87_849_216 + 1, 63_428_096),
    # resized from 320 to 224 pixels on one channel; the logit scale is not used
    "chexzero": (10, 4.409 + 0.0390 + 0.0193 + 10 * 25.6e-6, 0.0, 2.980, 87_849_216, 63_428_096),
    # without the embedder of the second stage (0.57 G), with the enlargement as products
    "afloc": (10, 8.479 - 0.568 + 0.105, 0.0, 8.41, 26_261_312 - 393_216, 108_310_272 - POOLER),
    "biomedclip": (10, 17.563 + 0.0771 + 10 * 100.9e-6, 0.0, 22.95, 86_191_872 + 1, 109_710_848),
    # of the encoder, projector and pooling alone: cosines and the smoothing are small
    "biovil": (10, 18.83, 0.0, 0.0, 23_786_944, 109_006_848),
    "biovil_t": (10, 16.467, 0.0, 0.0, 24_114_880, 109_006_848),
    # torchvision's DenseNet-121 has 2.834 G and 7,978,856 parameters, with three channels and 1000 classes; the map is
    # a second product of the 18 outputs
    "xrv": (
        18,
        2.834 - 2 * 49 * 64 * 112**2 / G - 1000 * 1024 / G + 18 * 1024 * 50 / G,
        0.0,
        0.0,
        7_978_856 - 2 * 49 * 64 - 982 * 1025,
        0,
    ),
    "carzero": (10, 17.56 + 0.930 + 10 * (0.462 + 0.0137 + 0.0131), 10 * 0.462, 8.41, 0, 108_310_272 - POOLER),
    "devide": (10, 17.56 + 0.925 + 10 * 0.0217, 0.0, 22.95, 0, 0),
}


@pytest.fixture(autouse=True)
def hollow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without values: filling them would take most of the time, and no value is read."""

    def empty(module: Any, *_: Any, **__: Any) -> None:
        module.to_empty(device="cpu").eval()

    monkeypatch.setattr(stand_in, "fill_module", empty)


@pytest.mark.parametrize("model", list(KNOWN))
def test_the_known_figures(model: str) -> None:
    findings, whole, once, text, image_parameters, text_parameters = KNOWN[model]
    cost = measure_cost(stand_in_adapter(model), findings)
    print(model, cost, cost.to_json())
    assert (cost.image_macs + cost.once_macs) / G == pytest.approx(whole, rel=1e-3)
    if once:
        assert cost.once_macs / G == pytest.approx(once, rel=1e-2)
    if text:
        assert cost.text_macs / G == pytest.approx(text, rel=2e-3)
    if image_parameters:
        assert cost.image_parameters == image_parameters
    if text_parameters:
        assert cost.text_parameters == text_parameters


def test_a_whole_forward_of_mavl_with_what_its_graph_leaves_out() -> None:
    """The pooled image: keys and values of 197 tokens, and one query, whose heads weigh and sum them."""
    adapter = stand_in_adapter("mavl")
    image, text = torch.zeros(1, 3, 224, 224), torch.zeros(4, 9, 768)
    difference = count_macs(lambda: authors_outputs(adapter, image, text)) - count_macs(
        lambda: adapter.forward(image, text)
    )
    pool = 2 * 197 * 1024**2 + 1024**2 + 2 * 197 * 1024 + 1024 * 256
    cosine = 36 * 256
    assert difference == pool + cosine


def test_small_operations_by_hand() -> None:
    weight, kernel = torch.zeros(7, 5), torch.zeros(4, 3, 3, 3)
    assert count_macs(lambda: torch.zeros(2, 6, 5) @ weight.T) == 2 * 6 * 5 * 7
    convolution = count_macs(lambda: torch.nn.functional.conv2d(torch.zeros(2, 3, 8, 8), kernel, stride=2, padding=1))
    assert convolution == 2 * 4 * 4 * 4 * 3 * 3 * 3
    assert count_macs(lambda: torch.zeros(3).softmax(0).exp()) == 0
