# Source of tour.ipynb: cells begin at "# %%"; `python docs/make_tour.py` runs them and writes the notebook.

# %% [markdown]
# # A tour of xbench-fast
#
# Do medical vision-language models look where they should? This notebook evaluates a small model on 40 real
# radiographs, looks at one of them, and evaluates a model that is still being trained.
#
# It runs in a checkout after `make demo`, which leaves the model in `demo/out/bundles`. That model was trained on
# generated phantoms and never saw a radiograph: do not expect it to be right. [python.md](python.md) explains every
# function.

# %%
import matplotlib.pyplot as plt
import numpy as np
import xbench_fast as xb

radiographs = xb.load_dataset("chestxdet10", "demo/chestxdet10", frame=512)
radiographs

# %% [markdown]
# ## Evaluate
#
# Three rows: the model, a mask of the whole image, and a random map. The last two say what a number is worth.

# %%
models = ["demo/out/bundles/kad-demo", "baseline:ones", "baseline:chance"]
run = xb.evaluate(models, radiographs, engine="onnxruntime-cpu", out="demo/out/tour/run")
run

# %% [markdown]
# Every number is a row of a data frame, as a fraction, with its 95 % interval (by patients) and with the number of
# pairs it rests on.

# %%
table = run.table("grounding")
shown = table[table.metric.isin(["pointing", "dice_best", "dice_cross_fitted"])]
shown[["model", "metric", "value", "low", "high", "n"]].round(3)

# %%
print(*run.notes, sep="\n")

# %% [markdown]
# ## Look at one radiograph
#
# Behind the numbers are rows, one for each image and finding. These are pairs whose map has its maximum inside the
# region:

# %%
rows = run.rows()
hits = rows[(rows.model == "kad-demo") & (rows.hit == True)]  # noqa: E712  # None where there is no region
hits[["case_id", "finding", "label", "logit", "region_area", "hit"]]

# %%
case, finding = hits.iloc[0][["case_id", "finding"]]
radiograph = next(item for item in radiographs if item.case_id == case)
with xb.open_engine("demo/out/bundles/kad-demo", "onnxruntime-cpu") as engine:
    answer = engine.predict(radiograph.path, findings=[finding], prompt_set="chestxdet10")
answer.boxes.round(2)

# %%
image, region = radiograph.image(), radiograph.mask(finding)
height, width = image.shape
figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3.2), dpi=60)
left.imshow(image, cmap="gray")
left.contour(region, levels=[0.5], colors="yellow", linewidths=1)
left.set_title(f"{finding}: the radiologist")
right.imshow(image, cmap="gray")
right.imshow(answer.saliency[0], alpha=0.4, extent=(0, width, height, 0), interpolation="bilinear")
for box in answer.boxes.itertuples():
    corner, size = (box.x0 * width, box.y0 * height), ((box.x1 - box.x0) * width, (box.y1 - box.y0) * height)
    right.add_patch(plt.Rectangle(corner, *size, fill=False, edgecolor="yellow"))
right.set_title(f"the model, p = {answer.probabilities[0]:.2f}")
for axes in (left, right):
    axes.axis("off")
plt.show()

# %% [markdown]
# ## From a map to a number
#
# `sweep` counts the pixels of a map, and those inside the region, at all 101 thresholds. Every grounding number
# follows from these counts.

# %%
counts = xb.sweep(answer.saliency, radiograph.mask(finding, grid=True)[None])
print("hit:", bool(xb.pointing(counts)[0]), " best threshold of this pair:", xb.best_threshold(counts))
figure, axes = plt.subplots(figsize=(4, 2.4), dpi=60)
axes.plot(np.arange(101) / 100, xb.dice(counts)[0])
axes.set_xlabel("threshold")
axes.set_ylabel("Dice")
plt.show()

# %% [markdown]
# ## A model in training
#
# A callable needs no export. This one asks no question at all: it takes bright for abnormal, and learns from epoch to
# epoch to compare the left with the right.

# %%
geometry = xb.Geometry("squash", 224, 224, "bicubic")


def make_student(epoch):
    def student(pixels, findings):
        bright = pixels.reshape(len(pixels), 1, 14, 16, 14, 16).mean(axis=(3, 5), dtype=np.float32)
        asymmetry = bright - np.float32(epoch / 4) * bright[..., ::-1]
        saliency = np.repeat(asymmetry, len(findings), axis=1)
        return saliency.mean(axis=(2, 3)) - 64, saliency

    return student


for epoch in range(3):
    run = xb.evaluate(
        make_student(epoch), radiographs, geometry=geometry, name=f"epoch-{epoch}", out="demo/out/tour/training",
        cache="demo/out/tour/prepared", progress=False,
    )  # fmt: skip
table = run.table("grounding").sort_values("model")
table[table.metric == "pointing"][["model", "value", "low", "high", "n"]].round(3)

# %% [markdown]
# Are these differences more than chance? All epochs are in one run, so they are tested on the same patients and
# corrected for their number.

# %%
differences = run.table("differences")
differences[differences.metric == "pointing"][["model", "other", "value", "low", "high", "n", "p_holm"]].round(3)

# %% [markdown]
# `xb.report(run)` writes all of this as a page that opens offline, with figures, Markdown, LaTeX, CSV and JSON.
