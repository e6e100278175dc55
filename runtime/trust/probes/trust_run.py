"""Plans a trust run from a request: bundle, datasets, probes; the command line uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....engines.base import CPU_BATCH
from ....engines.errors import ConfigError
from ....engines.select import ENGINES, check_engine, choose
from ...data.images.decoders import choose_decoder
from ...evaluation.pairing import KINDS, check_datasets, select_bundles, select_datasets
from ...reporting.tables.markdown_csv import to_csv
from ...reporting.tables.stamps import ModelWorth, stamps
from ...results.storage import write_bytes
from .directory import TrustDirectory
from .judging import as_text, change_table, csv_rows, verdict_table
from .probe import PROBES
from .running import ProbeRunner, TrustOutcome, TrustRequest

if TYPE_CHECKING:
    from ...evaluation.progress import Progress
    from ...host.config import Config, DatasetConfig
    from ...reporting.tables.table import Table
    from .probe_rows import AnyProbe

_MAPS: Final = "xbench-fast study trust RUN tests the maps that a run keeps of it"
_INSTEAD: Final = {
    "baseline:": f"{_MAPS}, for baseline:center and baseline:chance",
    "maps:": _MAPS,
}


@dataclass(frozen=True)
class Trust:
    """A trust run that is ready: everything named in it exists. `config.eval` holds engine, batch and threads."""

    config: Config
    request: TrustRequest
    bundles: Sequence[Path]
    datasets: Sequence[DatasetConfig]
    probes: Sequence[AnyProbe]

    @staticmethod
    def of(config: Config, request: TrustRequest) -> Trust:
        """Finds what is requested. Raises ConfigError for what does not exist."""
        for model in request.models:
            kind = model.partition("=")[0].partition(":")[0] + ":"
            if kind in KINDS:
                instead = _INSTEAD.get(kind, "the tests are of maps, and boxes have none")
                raise ConfigError(f"'{model}' is no bundle, and only bundles can be asked again: {instead}.")
        check_engine(config.eval.engine)
        bundles = select_bundles(config, request.models)
        datasets = select_datasets(config, request.datasets)
        if not datasets:
            raise ConfigError("No dataset is configured; give one with --data NAME=PATH or in xbench.toml.")
        check_datasets(datasets, bundles)
        names = dict.fromkeys(request.probes or PROBES.names())
        probes: list[AnyProbe] = [PROBES.load(name)(request.options) for name in names]
        return Trust(config, request, bundles, datasets, probes)

    def run(self, out: Path, progress: Progress) -> TrustOutcome:
        """Computes what is not in the trust directory `out`, judges all of it, and writes trust.json, trust.csv and
        trust.txt. Raises EngineError before the first image, and RunError when results can no longer be written."""
        engine, line = choose(self.config.eval.engine, self.config.eval.gpu)
        ENGINES.load(engine)
        if self.config.eval.tf32 and engine == "onnxruntime-cpu":
            raise ConfigError("--tf32 is for engines on a GPU, and this one is onnxruntime-cpu; leave it out.")
        if self.request.decoder == "dali" and self.config.cache is None:
            raise ConfigError(
                "--decoder dali decodes into the cache, once for all probes; give --cache, or use --decoder cpu."
            )
        progress.say(line)
        decoder, remark = choose_decoder(self.request.decoder, self.config.eval.gpu or 0)
        if remark:
            progress.say(remark)
        with TrustDirectory(out) as folder:
            folder.begin(self._provenance(engine, decoder.name))
            runner = ProbeRunner(folder, self.config, self.request, progress, decoder)
            for path in self.bundles:
                runner.bundle(path, self.datasets, self.probes, engine)
            outcome = runner.outcome
            records = csv_rows(outcome.entries)
            none = () if records else ("model", "dataset", "probe")
            write_bytes(out / "trust.csv", to_csv(records, none).encode())
            write_bytes(out / "trust.txt", as_text(tables_of(outcome)).encode())
        return outcome

    def _provenance(self, engine: str, decoder: str) -> dict[str, Any]:
        request = self.request
        return {
            "bundles": [path.name for path in self.bundles],
            "datasets": [dataset.name for dataset in self.datasets],
            "probes": {probe.name: dict(probe.settings) for probe in self.probes},
            "findings": list(request.findings),
            "pairs": request.pairs,
            "limit": request.limit,
            "seed": request.options.seed,
            "engine": engine,
            "batch": self.config.eval.batch or CPU_BATCH,
            "threads": self.config.eval.threads,
            "tf32": self.config.eval.tf32,
            "decoder": decoder,
        }


def tables_of(outcome: TrustOutcome) -> list[Table]:
    """The verdicts of all finished probes, and the changes of `stability` if it is one of them."""
    entries = outcome.entries
    above = stamps(
        ModelWorth(
            e["model"],
            e["weights"],
            e["engine"],
            bool(e.get("supervised")),
            bool(e.get("uncompared_texts")),
            e.get("resized", ""),
        )
        for e in entries
    )
    above += tuple(
        dict.fromkeys(
            f"{entry['title']}: drawn from the first {entry['limit']} cases"
            for entry in entries
            if entry["limit"] is not None
        )
    )
    changes = change_table(entries, above)
    verdicts = verdict_table(entries, "Trust: verdicts that need forward passes", above)
    return [*([changes] if changes.rows else []), verdicts]
