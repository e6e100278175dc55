"""CPU time of `xbench-fast serve` for the first question about an image, and for further ones about the same image.

    python benchmarks/serve_questions.py [--json FILE]

KAD-224 at full size with stand-in weights; each prompt set has one made-up feature for each of the ten findings of
ChestX-Det10. A round sends new made-up radiographs as PNG, one request at a time: each is asked the first set, then
each the other sets. The CPU time is that of all processes of the server. A second server keeps nothing
(`--feature-cache 0`); both take turns in a round, and their answers must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from from_checkout import COMMAND, use_checkout
from prompt_sets import make_bundle
from serve_pytriton import Server, free_ports, started


@contextmanager
def serving(bundle: Path, folder: Path, *options: str) -> Iterator[Server]:
    """A server of the bundle."""
    (port,) = free_ports(1)
    line = [*COMMAND, "fast", "serve", "--bundles", str(bundle.parent), "--port", str(port), "--no-access-log"]
    line += ["--engine", "onnxruntime-cpu", "--prompt-set", "set0", *options]
    log = folder / f"serve-{port}.txt"
    with started("xbench-fast serve", line, f"http://127.0.0.1:{port}", {}, log, bundle.name) as server:
        yield server


def ask(server: Server, model: str, image: bytes, prompt_set: str) -> bytes:
    """Logits and maps of an image, as raw tensors."""
    query = f"{server.url}/v2/models/{model}/infer?outputs=logits,saliency&prompt_set={prompt_set}"
    headers = {"Content-Type": "image/png", "Inference-Header-Content-Length": "0"}
    with urllib.request.urlopen(urllib.request.Request(query, image, headers), timeout=120) as answer:
        return bytes(answer.read())


def asked(server: Server, model: str, images: Sequence[bytes], sets: Sequence[int]) -> tuple[float, list[bytes]]:
    """CPU seconds of the server for a question, and the answers to all."""
    before = server.cpu_seconds()
    answers = [ask(server, model, image, f"set{number}") for number in sets for image in images]
    return (server.cpu_seconds() - before) / len(answers), answers


def measure(bundle: Path, folder: Path, sets: int, images: int, rounds: int, side: int) -> dict[str, Any]:
    """The figures: medians over the rounds, in CPU ms a question."""
    from xbench_fast.runtime.benching.inputs import film_files

    spent: dict[str, list[float]] = {}
    with serving(bundle, folder) as keeping, serving(bundle, folder, "--feature-cache", "0") as forgetting:
        for turn in range(rounds):
            (folder / f"films{turn}").mkdir()
            films = [path.read_bytes() for path in film_files(folder / f"films{turn}", images, side, seed=turn)]
            told = {}
            for name, server in (("kept", keeping), ("not_kept", forgetting)):
                first, ones = asked(server, bundle.name, films, (0,))
                further, others = asked(server, bundle.name, films, range(1, sets))
                spent.setdefault(f"first_{name}", []).append(1e3 * first)
                spent.setdefault(f"further_{name}", []).append(1e3 * further)
                told[name] = ones + others
            if told["kept"] != told["not_kept"]:
                raise SystemExit("The answers with and without the cache differ.")
            print(", ".join(f"{name} {values[-1]:.1f} ms" for name, values in spent.items()), flush=True)
        memory = round(keeping.memory_mib())
    ratios = [second / first for first, second in zip(spent["first_kept"], spent["further_kept"], strict=True)]
    return {
        "cpu_ms_per_question": {name: round(median(values), 2) for name, values in spent.items()},
        "ratio_of_cpu": round(median(ratios), 3),
        "rounds_cpu_ms": {name: [round(value, 2) for value in values] for name, values in spent.items()},
        "answers_equal": True,
        "resident_mib": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What a further question about an image costs.")
    parser.add_argument("--model", default="kad:224", metavar="MODEL:VARIANT", help="[kad:224]")
    parser.add_argument("--sets", type=int, default=6, help="[6]")
    parser.add_argument("--images", type=int, default=12, help="of a round [12]")
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    parser.add_argument("--side", type=int, default=1024, help="of the images, in pixels [1024]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_checkout()
    from xbench_fast.runtime.benching.benchmark_record import write_record

    load = os.getloadavg()[0]
    model, variant = options.model.split(":")
    with tempfile.TemporaryDirectory(prefix="xbench-questions-") as name:
        folder = Path(name)
        bundle = make_bundle(model, variant, options.sets, folder)
        found = measure(bundle, folder, options.sets, options.images, options.rounds, options.side)
    print(f"a further question costs {found['ratio_of_cpu']} of the first")
    if options.json is not None:
        what = "CPU time of serve for the first and for further questions about an image, one request at a time"
        shape = {"model": bundle.name, "sets": options.sets, "images": options.images, "rounds": options.rounds}
        record = {"what": what, **shape, "side": options.side, "load_average_before": round(load, 2), **found}
        write_record(options.json, record)


if __name__ == "__main__":
    main()
