"""Names the packages: every folder of a room that has an __init__.py. Everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

NAME, ROOMS = "xbench_fast", ("demo", "engines", "export", "metrics_gpu", "runtime")
folders = sorted(path.parent for room in ROOMS for path in Path(room).rglob("__init__.py"))

setup(
    packages=[NAME, *(".".join((NAME, *folder.parts)) for folder in folders)],
    package_dir={NAME: "api", **{f"{NAME}.{room}": room for room in ROOMS}},
)
