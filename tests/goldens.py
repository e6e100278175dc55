"""Goldens: what the commands write, say and store for fixed rows, compared value for value.

    python tests/goldens.py [PIECE ...]                 # compare; every difference with its file, table and row
    python tests/goldens.py --write [PIECE ...]         # keep the texts of this checkout as they are now
    python tests/goldens.py --write-values [PIECE ...]  # keep its values too: only where they were meant to move
    python tests/goldens.py --out DIR [PIECE ...]       # also leave the files that were compared

Values are numbers, keys, names and the files of a folder. tests/golden/values holds them, a file a piece; they must be
equal. Texts are sentences, --help, the page and tables as a reader sees them. tests/golden/texts holds them as plain
files, so that a commit shows what it says anew, but for tables in Markdown and LaTeX, which are compressed. Only
commands and the public interface are used, and `write_run` of benchmarks/report_run.py.

tests/golden/run is a run of version b0ab629: the demo model, the same model with another saliency map, and
baseline:center on the demo's 40 radiographs, and the demo model on 60 phantoms. Its maps are stored, so its tables are
the same on every machine.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import gzip
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/golden"
DEMO_DATA = ("--data", f"chestxdet10={ROOT / 'demo/chestxdet10'}", "--data-option", "chestxdet10.frame=512")
FEW = ("--replicates", "100")
"""Enough resamples for 95 % intervals; more cost time and would check the same code."""

PAPER_SHARE = 0.1
"""Share of the paper's cases and pairs that the paper-sized report has; all its models, datasets and classes."""

Documents = dict[str, Any]
"""Name of a file -> its values: JSON as read, a list of rows for CSV."""
Texts = dict[str, str]
"""Name of a file -> what people read in it."""


def command(name: str, *arguments: object, status: int = 0) -> str:
    """What an installed command writes to standard output; run in this process."""
    (point,) = (point for point in entry_points(group="console_scripts") if point.name == name)
    output, errors = io.StringIO(), io.StringIO()
    argv, columns = sys.argv, os.environ.get("COLUMNS")
    sys.argv, os.environ["COLUMNS"] = [name, *map(str, arguments)], "80"
    ended = 0
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            point.load()()
    except SystemExit as end:
        ended = int(end.code or 0)
    finally:
        sys.argv = argv
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    if ended != status:
        raise RuntimeError(f"{name} {' '.join(map(str, arguments))} ended with {ended}: {errors.getvalue()}")
    return output.getvalue()


class PageText(HTMLParser):
    """The text of a page, a line for each run of it, without scripts, styles and drawings."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in ("script", "style", "svg")
        if not self.hidden:
            self.lines += [value for name, value in attrs if name in ("title", "aria-label", "alt") and value]

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style", "svg")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def page_text(html: str) -> str:
    page = PageText()
    page.feed(html)
    return "\n".join(page.lines) + "\n"


def number(text: str) -> Any:
    """The number that a field of a CSV file holds, or its text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text


def sentence(value: Any) -> bool:
    """Whether a string is written for people: names of classes, datasets and engines have at most two words."""
    return isinstance(value, str) and value.count(" ") > 1


OF_THE_MACHINE = {"machine", "created", "updated", "code_version", "path", "checksum", "checksums"}
"""Keys that tell where, when and with which drawing library, not what."""


def without_machine(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_machine(entry) for key, entry in value.items() if key not in OF_THE_MACHINE}
    return [without_machine(entry) for entry in value] if isinstance(value, list) else value


def sentences(value: Any) -> Iterator[str]:
    """Every sentence of a document."""
    if isinstance(value, dict):
        for entry in value.values():
            yield from sentences(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from sentences(entry)
    elif sentence(value):
        yield value


def collect(folder: Path) -> tuple[Documents, Texts]:
    """The values and texts of the files of a folder; of pictures only that they exist."""
    documents: Documents = {"files": sorted(path.relative_to(folder).as_posix() for path in files(folder))}
    texts: Texts = {}
    for path in files(folder):
        name = path.relative_to(folder).as_posix()
        if path.suffix not in (".json", ".csv", ".html", ".md", ".tex", ".txt"):
            continue
        text = path.read_text("utf-8").replace(str(folder.parent), "SCRATCH").replace(str(ROOT), "ROOT")
        if path.suffix in (".json", ".csv"):
            if path.suffix == ".json":
                documents[name] = without_machine(json.loads(text))
            else:
                rows = csv.DictReader(io.StringIO(text, newline=""))
                documents[name] = [{key: number(value) for key, value in row.items()} for row in rows]
            found = sorted(set(sentences(documents[name])))
            if found:
                texts[f"{name}.sentences.txt"] = "\n".join(found) + "\n"
        else:
            texts[name if path.suffix == ".txt" else f"{name}.txt"] = (
                page_text(text) if path.suffix == ".html" else text
            )
    return documents, texts


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# The pieces: each fills a folder.


def demo_run(folder: Path) -> Path:
    """The stored run, where commands may write into it."""
    return Path(shutil.copytree(GOLDEN / "run", folder.parent / f"{folder.name} run" / "run"))


def report(folder: Path) -> None:
    """Report, page and cards of the stored run."""
    said = command("xbench-fast", "report", demo_run(folder), "--full", "--card", *FEW, "--out", folder)
    (folder / "stdout.txt").write_text(said, "utf-8")


STUDIES: dict[str, tuple[str, ...]] = {
    "calibration": (),
    "correlation": (),
    "errors": ("--no-overlays",),
    "failures": DEMO_DATA,
    "resolution": (),
    "strata": (),
    "thresholds": (),
    "trust": (),
}


def study(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        said = command("xbench-fast", "study", name, demo_run(folder), *FEW, *STUDIES[name], "--out", folder)
        (folder / "stdout.txt").write_text(said, "utf-8")

    return write


def subgroups(folder: Path) -> None:
    """The study of subgroups, of made-up attributes."""
    with (ROOT / "demo/chestxdet10/patients.csv").open(newline="") as stream:
        images = sorted(row["file_name"] for row in csv.DictReader(stream))
    table = folder.parent / "attributes.csv"
    lines = [f"{image},{'FM'[number % 2]},{30 + number}" for number, image in enumerate(images)]
    table.write_text("\n".join(["file_name,sex,age", *lines]) + "\n")
    options = ("--dataset", "chestxdet10", "--attributes", f"chestxdet10={table}", *DEMO_DATA)
    said = command("xbench-fast", "study", "subgroups", demo_run(folder), *FEW, *options, "--out", folder)
    (folder / "stdout.txt").write_text(said, "utf-8")


def compare(folder: Path) -> None:
    """The comparison of two models of the stored run, and what the gate says of them."""
    pair = ("--model", "kad-demo", "--model", "kad-demo-layer-mean-head-max")
    said = command("xbench-fast", "compare", demo_run(folder), *pair, "--json", folder / "compare.json")
    (folder / "stdout.txt").write_text(said, "utf-8")


def frames(folder: Path) -> None:
    """The data frames of the public interface."""
    import xbench_fast as xb

    run = xb.load_run(demo_run(folder))
    for name in ("grounding", "classes", "recognition", "differences", "coverage"):
        table = run.table(name, replicates=100)
        table.to_json(folder / f"{name}.json", orient="records", double_precision=15)
    (folder / "notes.txt").write_text("\n".join(run.notes) + "\n", "utf-8")


def evaluation(folder: Path) -> None:
    """Rows of an evaluation without a neural network, which are the same on every machine, and what commands say."""
    import xbench_fast as xb

    out = folder.parent / f"{folder.name} run"
    command("xbench-fast", "eval", "--model", "baseline:center", "--dataset", "chestxdet10", *DEMO_DATA, "--out", out)
    rows = xb.load_run(out).rows()
    stored = {name: [entry if entry is None else plain(entry) for entry in rows[name]] for name in rows.columns}
    (folder / "rows.json").write_text(json.dumps(stored), "utf-8")
    (folder / "datasets.txt").write_text(command("xbench-fast", "datasets"), "utf-8")
    audit = command("xbench-fast", "datasets", "check", "chestxdet10", *DEMO_DATA, "--json", folder / "audit.json")
    (folder / "audit.txt").write_text(audit, "utf-8")


def plain(value: Any) -> Any:
    """A value of a data frame as JSON has it."""
    made = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(made, float) and math.isnan(made) else made


def paper(folder: Path) -> None:
    """A report of 7 models on 7 datasets with the paper's classes, of simulated rows."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import report_run
    finally:
        sys.path.pop(0)
    datasets = {
        name: (title, math.ceil(PAPER_SHARE * cases), {key: math.ceil(PAPER_SHARE * n) for key, n in pairs.items()})
        for name, (title, cases, pairs) in report_run.DATASETS.items()
    }
    run = folder.parent / f"{folder.name} run"
    report_run.write_run(run, report_run.MODELS, datasets)
    command("xbench-fast", "report", run, "--no-page", "--replicates", "40", "--out", folder)
    machine = ("begun ", "processor", "system", "libraries")
    for path in files(folder):
        if path.suffix in (".md", ".tex"):
            lines = path.read_text("utf-8").splitlines()
            path.write_text(
                "".join(f"{line}\n" for line in lines if not any(word in line for word in machine)), "utf-8"
            )


def helps(folder: Path) -> None:
    """
    --help of every command, as an installed command says it, in a process of its own.

    A command of click keeps the help option that its first context asks for, and a test may have asked before.
    """
    code = "import sys; sys.path.insert(0, sys.argv[1]); import goldens; goldens.write_helps(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, Path(__file__).parent, folder.resolve()], check=True)


def write_helps(folder: str) -> None:
    """--help of every command of both programs as files of a folder."""

    def write(*names: str) -> None:
        text = command(names[0], *names[1:], "--help")
        (Path(folder) / f"{'-'.join(names)}.txt").write_text(text, "utf-8")
        _, _, commands = text.partition("\nCommands:\n")
        for name in re.findall(r"^  (\S+)", commands.partition("\n\n")[0], re.MULTILINE):
            write(*names, name)

    write("xbench-fast")
    write("xbench-export")


PIECES: dict[str, Callable[[Path], None]] = {
    "help": helps,
    "report": report,
    **{f"study-{name}": study(name) for name in STUDIES},
    "study-subgroups": subgroups,
    "compare": compare,
    "frames": frames,
    "evaluation": evaluation,
    "paper": paper,
}


def make(piece: str, scratch: Path) -> tuple[Documents, Texts]:
    (scratch / piece).mkdir()
    with chdir(scratch):  # where no xbench.toml lies, and paths are short: texts print them, escaped as a format asks
        PIECES[piece](Path(piece))
    return collect(scratch / piece)


# Comparing


IN_POINTS = (".csv", "delta", "percent", "points", "drop", "recovered", "max_dice_change")
"""Parts of the places of numbers that are a hundred times a fraction, as in tables, or a ratio of such numbers."""


def bound(where: str, value: float) -> float:
    """By how much a number may differ: the rounding of a pair's values (docs/metrics.md §8.1), summed in any order."""
    if "recovered" in where:
        return 3e-8 + 1e-7 * abs(value)  # a share of a gain, which can be small
    return 3e-8 if any(part in where for part in IN_POINTS) else 2e-10


def differences(then: Any, now: Any, where: str = "") -> Iterator[str]:
    """Every place where a value differs; floats by more than their `bound`, sentences only in whether there is one."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            if key in now:
                yield from differences(value, now[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: is gone"
        yield from (f"{where}.{key}: is new" for key in now if key not in then)
    elif isinstance(then, list) and isinstance(now, list):
        if [*map(sentence, then)] == [True] * len(then) and [*map(sentence, now)] == [True] * len(now):
            return  # notes: how many there are is a matter of text
        if len(now) != len(then):
            yield f"{where}: had {len(then)} entries, has {len(now)}"
            return
        for index, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif real(then) and real(now) and float in (type(then), type(now)):
        if abs(then - now) > bound(where, then) or math.isnan(then) != math.isnan(now):
            yield f"{where}: was {then!r}, is {now!r}"
    elif not (sentence(then) and sentence(now)) and (type(then) is not type(now) or then != now):
        yield f"{where}: was {then!r}, is {now!r}"


def real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def changed_texts(then: Texts, now: Texts) -> Iterator[str]:
    """Lines of texts that are not what they were, as a unified difference."""
    for name in sorted({*then, *now}):
        one, other = (texts.get(name, "").splitlines() for texts in (then, now))
        yield from difflib.unified_diff(one, other, f"golden {name}", f"this checkout {name}", lineterm="", n=0)


def kept_values(piece: str) -> Documents:
    return dict(json.loads(gzip.decompress((GOLDEN / f"values/{piece}.json.gz").read_bytes())))


TABLES = "tables.json.gz"


def plainly(piece: str, name: str) -> bool:
    """Whether a text is kept as a file of its own. Tables in Markdown and LaTeX repeat the others, and are large."""
    return piece != "paper" and not name.endswith((".md.txt", ".tex.txt"))


def kept_texts(piece: str) -> Texts:
    folder = GOLDEN / "texts" / piece
    texts = {path.relative_to(folder).as_posix(): path for path in files(folder)}
    tables = texts.pop(TABLES, None)
    found = {name: path.read_text("utf-8") for name, path in texts.items()}
    return found | (json.loads(gzip.decompress(tables.read_bytes())) if tables else {})


def rounded(value: Any) -> Any:
    """Floats with 11 digits, twenty times finer than `bound` asks; half as long in the file."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.11g}") if isinstance(value, float) else value


def keep_values(piece: str, documents: Documents) -> None:
    pack(GOLDEN / f"values/{piece}.json.gz", rounded(documents))


def pack(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0))


def keep_texts(piece: str, texts: Texts) -> None:
    folder = GOLDEN / "texts" / piece
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in texts.items():
        if plainly(piece, name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    tables = {name: text for name, text in texts.items() if not plainly(piece, name)}
    if tables:
        pack(folder / TABLES, tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"{', '.join(PIECES)}; all by default")
    parser.add_argument("--write", action="store_true", help="keep the texts as they are now")
    parser.add_argument("--write-values", action="store_true", help="keep texts and values as they are now")
    parser.add_argument("--out", type=Path, help="leave the files here; the folder must not exist")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.out.resolve() if options.out else Path(temporary) / "goldens"
        scratch.mkdir(parents=True)
        for piece in options.pieces or PIECES:
            documents, texts = make(piece, scratch)
            if options.write_values:
                keep_values(piece, documents)
            if options.write or options.write_values:
                keep_texts(piece, texts)
            values = list(differences(kept_values(piece), documents, piece))
            said = list(changed_texts(kept_texts(piece), texts))
            print(f"{piece}: {len(values)} values differ, {len(said)} lines of text")
            print("".join(f"  {line}\n" for line in values + said), end="")
            failed = failed or bool(values or said)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
