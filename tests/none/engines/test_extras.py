"""The sentence for a missing package: every extra it can name exists, and it says which one fits which machine."""

from __future__ import annotations

import tomllib
from pathlib import Path

from xbench_fast.engines.extras import CUDA_EXTRAS, RUNNING, install_advice, missing_package


def test_the_sentence_names_the_user_the_package_the_extra_and_another_way() -> None:
    assert missing_package("grpcio", "serve") == "grpcio is not installed; install xbench-fast[serve]."
    assert missing_package("pyyaml", "formats", user="data.yaml", instead="give the option classes") == (
        "data.yaml needs pyyaml, which is not installed; install xbench-fast[formats], or give the option classes."
    )


def test_a_choice_says_which_cuda_each_extra_is_for() -> None:
    assert install_advice("gpu") == "install xbench-fast[gpu]"
    assert install_advice(*RUNNING) == (
        "install xbench-fast[cpu], xbench-fast[gpu] (CUDA 12) or xbench-fast[gpu-cuda13] (CUDA 13)"
    )
    assert install_advice(*CUDA_EXTRAS.values()).endswith(
        "xbench-fast[gpu] (CUDA 12) or xbench-fast[gpu-cuda13] (CUDA 13)"
    )


def test_every_extra_named_in_code_exists(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*RUNNING, *CUDA_EXTRAS.values(), "tensorrt", "tensorrt-cuda13"} <= set(extras)
