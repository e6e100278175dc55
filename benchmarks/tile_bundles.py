"""Packs bundles of stand-in weights into an archive that is small enough to carry to a machine without a network.

    python benchmarks/tile_bundles.py OUT.tar.xz BUNDLE...

Every large weight repeats its first 4,093 values, and the file packs to about a hundredth (KAD-224 in fp16: 294 MB to
1.7 MB). Shapes, types and operators stay, so speed does; outputs mean nothing. The bundles themselves are not changed.
`gpu_check.py --bundles OUT.tar.xz` takes the archive. Needs onnx.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path

from from_checkout import use_checkout

KEPT = 4093
"""A prime, so that rows of a matrix do not repeat each other."""


def tile(source: Path, target: Path) -> None:
    """The graph at `source` with repeated weights, at `target`."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(source)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.size > 4 * KEPT and values.dtype.kind not in "biu":  # whole numbers are shapes and places
            tiled = np.resize(values.reshape(-1)[:KEPT], values.shape)
            tensor.CopyFrom(numpy_helper.from_array(tiled, tensor.name))
    target.write_bytes(model.SerializeToString(deterministic=True))


def pack(out: Path, bundles: list[Path]) -> None:
    """Writes the archive."""
    from xbench_fast.engines.bundle import Bundle, write_bundle

    with tempfile.TemporaryDirectory() as name, tarfile.open(out, "w:xz") as archive:
        for path in bundles:
            bundle, folder = Bundle.load(path), Path(name) / path.name
            folder.mkdir()
            files = {file: path / file for file in bundle.manifest.files}
            for file in [file for file in files if file.endswith(".onnx")]:
                tile(files[file], folder / file.replace("/", "-"))
                files[file] = folder / file.replace("/", "-")
            tiled = write_bundle(Path(name) / "tiled" / path.name, bundle.manifest, files)
            archive.add(tiled.path, path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="the archive")
    parser.add_argument("bundles", type=Path, nargs="+", help="folders of bundles")
    options = parser.parse_args()
    use_checkout()
    pack(options.out, options.bundles)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
