"""Figure 3: correlation of recognition and grounding, AUC against pointing, with the line and its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ....metrics_gpu.statistics.intervals import Interval
from ...results.comparability import on_one_basis
from ...results.numbers.run_numbers import Results
from .axis_labels import name_points
from .figure import Figure, Point, conditions, finish, point_of
from .style import COLUMN, DARK, GREY, PAGE, PALE, drawing_style, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from ....metrics_gpu.statistics.correlation import Correlation

Per = Literal["model", "cell"]
_NAMES: dict[Per, str] = {"model": "figure-3-correlation", "cell": "figure-3-correlation-cells"}
_TITLES: dict[Per, str] = {
    "model": "Figure 3: recognition against grounding, one point per model",
    "cell": "Figure 3, per dataset: recognition against grounding, one point per model and dataset",
}


@dataclass(frozen=True)
class Spot:
    """One point of the plot: a model, or a model on a dataset."""

    model: str
    dataset: str
    auc: Point
    pointing: Point


def correlation_figure(results: Results, per: Per = "model") -> Figure | None:
    """The scatter plot with the least-squares line; None with fewer than two points that have both values."""
    shown = spots(results, per)
    if len(shown) < 2:
        return None
    name = results.named(_NAMES[per])
    with drawing_style(name):
        return finish(draw_correlation(results, per), name, results.titled(_TITLES[per]), _caption(results, shown, per))


def spots(results: Results, per: Per) -> list[Spot]:
    """Models, or cells, that have both an AUC and a pointing score, on one basis (docs/metrics.md §9)."""
    return [spot for spot, alike in _by_basis(results, per) if alike]


def _by_basis(results: Results, per: Per) -> list[tuple[Spot, bool]]:
    """All points, and whether each rests on the pairs and labels of most points of its dataset."""
    measured, fields = _known(results, per), ("auc", "pointing")
    bases = [tuple(results.number(spot.model, spot.dataset, key).basis for key in fields) for spot in measured]
    return list(zip(measured, on_one_basis(bases, [spot.dataset for spot in measured]), strict=True))


def _known(results: Results, per: Per) -> list[Spot]:
    if per == "model":
        all_spots = [Spot(m, "", point_of(results, m, "auc"), point_of(results, m, "pointing")) for m in results.models]
    else:
        all_spots = [
            Spot(m, d, point_of(results, m, "auc", d), point_of(results, m, "pointing", d))
            for m in results.models
            for d in results.datasets
        ]
    return [spot for spot in all_spots if spot.auc.value is not None and spot.pointing.value is not None]


def draw_correlation(results: Results, per: Per = "model") -> Drawing:
    """The drawing: one collection of points per model, the line, and the numbers in a corner."""
    from matplotlib.figure import Figure as Drawing

    shown = spots(results, per)
    x, y = _values(shown)
    fit = _fit(shown, per)
    drawing = Drawing(
        figsize=(COLUMN if per == "model" else PAGE, 2.9 if per == "model" else 3.7), layout="constrained"
    )
    axes = drawing.add_subplot()
    axes.grid()
    axes.set_xlabel("AUC (%)" if per == "cell" else "AUC (%), mean over datasets")
    axes.set_ylabel("Pointing (%)" if per == "cell" else "Pointing (%), mean over datasets")
    axes.set_title(_head(fit, per), fontsize=7, fontweight="normal", linespacing=1.4)
    look = looks(results.models)
    for model in dict.fromkeys(spot.model for spot in shown):
        points = [spot for spot in shown if spot.model == model]
        if per == "model":  # more of them would hide the points
            _whiskers(axes, points, look[model].colour)
        axes.scatter(*_values(points), s=40 if per == "model" else 26, marker=look[model].mark,
                     color=look[model].colour, edgecolors=DARK, linewidths=0.4, label=model, zorder=3)  # fmt: skip
    _limits(axes, shown, per)
    if fit.slope is not None and fit.intercept is not None:
        ends = np.linspace(x.min(), x.max(), 61)
        axes.plot(ends, fit.intercept + fit.slope * ends, color=GREY, linewidth=1.2, zorder=1, label="_line")
        if (band := _band(shown, per, ends)) is not None:
            axes.fill_between(ends, *band, color=PALE, alpha=0.6, linewidth=0, zorder=0, label="_band")
    if per == "model":
        name_points(axes, [spot.model for spot in shown], x.tolist(), y.tolist())
    else:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7, handletextpad=0.3)
    return drawing


def _fit(found: Sequence[Spot], per: Per) -> Correlation:
    """The line and its intervals. The points of one model are not independent, so whole models are resampled."""
    from ....metrics_gpu.statistics.correlation import correlation

    x, y = _values(found)
    if per == "model":
        return correlation(x, y)
    models = [spot.model for spot in found]
    fit = correlation(x, y, groups=models)
    # Resamples of three models are too few for an interval.
    return fit if len(set(models)) > 3 else replace(fit, bootstrap_r2=None)


def _band(found: Sequence[Spot], per: Per, at: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The interval of the line at these values of AUC, None where it would mean nothing."""
    from ....metrics_gpu.statistics.correlation import trend_band

    return trend_band(*_values(found), at, groups=None if per == "model" else [spot.model for spot in found])


def _values(found: Sequence[Spot]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([spot.auc.value for spot in found], np.float64),
        np.array([spot.pointing.value for spot in found], np.float64),
    )


def _whiskers(axes: Axes, found: Sequence[Spot], colour: str) -> None:
    line: dict[str, Any] = {"color": colour, "linewidth": 0.8, "alpha": 0.55, "zorder": 2}
    for spot, x, y in zip(found, *_values(found), strict=True):
        if spot.auc.ends:
            axes.plot(spot.auc.ends, [y, y], **line)
        if spot.pointing.ends:
            axes.plot([x, x], spot.pointing.ends, **line)


def _limits(axes: Axes, found: Sequence[Spot], per: Per) -> None:
    """Limits with room around the points for their names, but no ticks at impossible percentages."""
    for way in ("x", "y"):
        points = [spot.auc if way == "x" else spot.pointing for spot in found]
        ends = [
            end for p in points for end in (p.value, *((p.low, p.high) if per == "model" else ())) if end is not None
        ]
        low, high = min(ends), max(ends)
        room = max(high - low, 2.0)
        getattr(axes, f"set_{way}lim")(low - 0.12 * room, high + 0.12 * room)
        ticks = getattr(axes, f"get_{way}ticks")()
        limits = getattr(axes, f"get_{way}lim")()
        getattr(axes, f"set_{way}ticks")([t for t in ticks if 0 <= t <= 100 and limits[0] <= t <= limits[1]])


def _head(fit: Correlation, per: Per) -> str:
    """The numbers, above the plot so that they cover no point."""
    if fit.r2 is None:
        return f"n = {fit.n}: no R² ({'three points are needed' if fit.n < 3 else 'no spread'})"
    interval, way = (fit.fisher_r2, "Fisher's z") if per == "model" else (fit.bootstrap_r2, "bootstrap over models")
    sure = f"\n95 %: {_range(interval)} ({way})" if interval is not None else ""
    return f"R² = {fit.r2:.2f}, n = {fit.n}{sure}"


def _range(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _caption(results: Results, found: Sequence[Spot], per: Per) -> str:
    x, y = _values(found)
    fit = _fit(found, per)
    what = "mean over datasets, one point per model" if per == "model" else "one point per model and dataset"
    sentences = [f"AUC against pointing score in percent, {what}; the line is the least-squares line."]
    if fit.r2 is not None:
        drawn = _band(found, per, x) is not None
        how = "Student's t" if per == "model" else "a bootstrap over models"
        sentences.append(
            f"Grey band: the line's 95 % interval at each AUC, by {how}."
            if drawn
            else "The line has no interval: that needs four models."
        )
    sentences.append(_fit_words(fit, per))
    sentences.append(_patient_words(results, found))
    if per == "cell" and fit.r2 is not None:
        from ....metrics_gpu.statistics.correlation import correlation, without_group_means

        groups = [spot.dataset for spot in found]
        within = correlation(without_group_means(x, groups), without_group_means(y, groups), replicates=1)
        if within.r2 is not None:
            sentences.append(f"With the mean of each dataset taken off both values, R² is {within.r2:.2f}.")
    if per == "model" and any(spot.auc.low is not None for spot in found):
        sentences.append("Thin lines at the points: 95 % bootstrap intervals over patients.")
    sentences.append(
        "; ".join(f"{_name(results, s)}: AUC {s.auc.text}, pointing {s.pointing.text}" for s in found) + "."
    )
    sentences.append(_left(results, found, per))
    if per == "model":
        sentences.append("The paper states R² = 0.92 without the number of points or how they were aggregated.")
    shown = {spot.model for spot in found}
    sentences += conditions(results, (cell for cell in results.finished if cell.model in shown))
    return " ".join(filter(None, sentences))


def _fit_words(fit: Correlation, per: Per) -> str:
    if fit.r2 is None:
        return f"{fit.n} points give no R²."
    words = [f"R² = {fit.r2:.2f} (r = {fit.r:+.2f}, n = {fit.n})"]
    if fit.fisher_r2 is not None:
        words.append(f"95 % interval by Fisher's z {_range(fit.fisher_r2)}")
    unit = "point" if per == "model" else "model"
    if fit.bootstrap_r2 is not None:
        words.append(f"by bootstrap over the {unit}s {_range(fit.bootstrap_r2)}")
    if fit.r2_range is not None:
        words.append(f"with one {unit} left out {fit.r2_range[0]:.2f} to {fit.r2_range[1]:.2f}")
    if fit.spearman is not None:
        words.append(f"Spearman's rank correlation {fit.spearman:+.2f}")
    return ", ".join(words) + "."


def _patient_words(results: Results, found: Sequence[Spot]) -> str:
    """How much R² varies when patients are resampled and the models are kept, in words."""
    from ....metrics_gpu.statistics.correlation import patients_r2

    columns = []
    for field in ("auc", "pointing"):
        every = [results.number(spot.model, spot.dataset, field).drawn for spot in found]
        drawn = [values for values in every if values is not None]
        if len(drawn) < len(found):
            return ""
        columns.append(np.column_stack(drawn))
    interval = patients_r2(columns[0], columns[1], len({spot.model for spot in found}))
    return f"Of these points, with patients resampled: {_range(interval)}." if interval else ""


def _name(results: Results, spot: Spot) -> str:
    return f"{spot.model} on {results.title(spot.dataset)}" if spot.dataset else spot.model


def _left(results: Results, found: Sequence[Spot], per: Per) -> str:
    """Which points are not drawn, and why; and which models have means over fewer datasets than others."""
    shown = {spot.model for spot in found}
    lacks = {model: results.lacking(model, "auc") or results.lacking(model, "pointing") for model in results.models}
    partial = [f"{m} ({lacks[m]})" for m in results.models if per == "model" and m not in shown and lacks[m]]
    other = [spot for spot, alike in _by_basis(results, per) if not alike]
    missing = [m for m in results.models if m not in {*shown, *(s.model for s in other)}]
    missing = [m for m in missing if not (per == "model" and lacks[m])]
    words = f"Not drawn, because one of the two values is missing: {', '.join(missing)}. " if missing else ""
    words += f"Not drawn, because they lack a dataset: {', '.join(partial)}. " if partial else ""
    names = ", ".join(_name(results, spot) for spot in other)
    words += f"Not drawn, because other images, pairs or labels are behind their numbers: {names}. " if names else ""
    sizes = {(spot.auc.datasets, spot.pointing.datasets) for spot in found}
    if per == "model" and len({size for both in sizes for size in both}) > 1:
        counts = ", ".join(f"{s.model} {s.auc.datasets} and {s.pointing.datasets}" for s in found)
        words += f"Datasets in the means of AUC and of pointing: {counts}."
    return words.strip()
