"""A metric of a user has the values, intervals and tests of the project's own number that it repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
import xbench_fast as xb

RUN = Path(__file__).parents[3] / "demo" / "out" / "run"
CODE = """
def half(area, overlap, region):
    return 2 * overlap[50] / (area[50] + region)
def hits(hit):
    return hit
def raises(region):
    return 1 / (region - region)
def nan(logit):
    return float("nan")
def more(hit):
    return 1.5
def text(hit):
    return "1"
def wrong(areas):
    return 0
def none():
    return 0
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "m.py"
    path.write_text(CODE)
    return path


@pytest.mark.skipif(not RUN.is_dir(), reason="needs the run of `make demo`")
def test_a_repeated_number_is_equal_to_the_bit(file: Path) -> None:
    table = xb.load_run(RUN).table("classes", metrics={"mine": f"{file}:half"}, replicates=100)
    columns = ["model", "dataset", "finding", "value", "low", "high", "n"]
    own, built_in = (table[table.metric == name][columns].reset_index(drop=True) for name in ("mine", "dice_fixed"))
    maps = built_in.value.notna()
    assert maps.any()
    assert own[maps].equals(built_in[maps])


@pytest.mark.skipif(not RUN.is_dir(), reason="needs the run of `make demo`")
@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("mine", "raises", "raised ZeroDivisionError"),
        ("mine", "nan", "answered nan"),
        ("mine", "more", "answered 1.5"),
        ("mine", "text", "no number"),
        ("mine", "wrong", "did you mean 'area'"),
        ("mine", "none", "takes no argument"),
        ("mine", "missing", "has no 'missing'"),
        ("pointing", "hits", "the project has a number"),
        ("Mine", "hits", "small letters"),
    ],
)
def test_bad_input_is_one_sentence(file: Path, name: str, function: str, words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words) as raised:
        xb.load_run(RUN).table(metrics={name: f"{file}:{function}"}, replicates=0)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not RUN.is_dir(), reason="needs the run of `make demo`")
def test_a_changed_file_is_computed_again(tmp_path: Path) -> None:
    run, file = xb.load_run(RUN), tmp_path / "m.py"
    values = []
    for answer in (0.25, 0.5):
        file.write_text(f"def fixed(hit):\n    return {answer}\n")
        table = run.table(metrics={"mine": f"{file}:fixed"}, replicates=0)
        values.append(set(table[(table.metric == "mine") & table.value.notna()].value))
    assert values == [{0.25}, {0.5}]
