/* Draws what is in view, and what a slider changed; keeps the upsampled maps of the current page only. */

class Painter {
  constructor(data, look) {
    this.data = data;
    this.look = look;
    this.level = 50;
    this.arithmetic = {};
    for (const [name, how] of Object.entries(data.arithmetic)) {
      this.arithmetic[name] = { ...how, thresholds: floatsOf(how.thresholds) };
    }
    const scratch = make("canvas", { width: data.grid, height: data.grid });
    this.scratch = scratch.getContext("2d");
    this.pictures = new Map();
    this.observer = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px 0px" });
    this.others = new Set();
    this.clear();
  }

  clear() {
    this.observer.disconnect();
    this.items = new Map();
    this.visible = new Set();
    this.scenes = new Map();
  }

  watch(figure, overlay, canvas, values) {
    this.items.set(figure, { figure, overlay, canvas, values });
    this.picture(this.data.cases[overlay.case].image);
    this.observer.observe(figure);
  }

  seen(entries) {
    for (const entry of entries) {
      if (!this.items.has(entry.target)) continue;
      if (entry.isIntersecting) {
        this.visible.add(entry.target);
        this.paint(this.items.get(entry.target));
      } else {
        this.visible.delete(entry.target);
      }
    }
  }

  /* At most once a frame: a slider moves faster than that. */
  repaint() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      for (const figure of this.visible) this.paint(this.items.get(figure));
      for (const item of this.others) this.paint(item);
    });
  }

  paintAll() {
    for (const item of this.items.values()) this.paint(item);
  }

  paint({ figure, overlay, canvas, values, level, look, toned }) {
    const k = level ? level() : (this.level ?? overlay.best);
    const scene = this.scene(overlay);
    const picture = this.picture(this.data.cases[overlay.case].image);
    const image = toned ? toned(picture) : picture;
    const area = drawOverlay(canvas, { ...scene, image }, k, look ? look() : this.look(), this.data.grid, this.scratch);
    this.describe(values, overlay, k, area);
    figure.dataset.level = k;
    figure.dataset.area = area;
    figure.dataset.drawn = image === undefined ? "map" : "all";
  }

  /* Dice and IoU from the stored counts; the drawn area must be the stored one, and it is said if it is not. */
  describe(values, overlay, k, area) {
    const scores = this.scores(overlay, k);
    const share = (100 * scores.area) / this.data.grid ** 2;
    const { scale } = this.arithmetic[overlay.protocol];
    const tau = (k / 100).toFixed(2) + (scale === 1 ? "" : ` × ${scale}`);
    const texts = [
      ["Dice", scores.dice.toFixed(3)],
      ["IoU", scores.iou.toFixed(3)],
      ["area", `${share.toFixed(1)} %`],
      ["τ", tau],
    ];
    values.replaceChildren(...texts.map(([name, text]) => make("span", {}, `${name} `, make("b", { textContent: text }))));
    if (area !== scores.area) {
      const text = `drawn ${area} px, counted ${scores.area} px`;
      values.append(make("span", { className: "differs", textContent: text }));
    }
  }

  counts(overlay) {
    return (overlay.stored ??= shortsOf(overlay.counts));
  }

  scores(overlay, k) {
    const counts = this.counts(overlay);
    const area = counts[k];
    const overlap = counts[LEVELS + k];
    const region = this.truthArea(this.data.cases[overlay.case]);
    return { area, overlap, dice: (2 * overlap) / (area + region), iou: overlap / (area + region - overlap) };
  }

  truthArea(item) {
    return (item.region ??= item.truth.reduce((sum, length, i) => sum + (i % 2 ? length : 0), 0));
  }

  scene(overlay) {
    let scene = this.scenes.get(overlay.index);
    if (!scene) {
      const how = this.arithmetic[overlay.protocol];
      const item = this.data.cases[overlay.case];
      const swept = sweepMap(floatsOf(overlay.map), overlay.grid, overlay.frame, how, this.data.grid);
      const truth = outline(maskOf(item.truth, this.data.grid), 0, this.data.grid);
      scene = { swept, truth, thresholds: how.thresholds, argmax: overlay.argmax, hit: overlay.hit };
      this.scenes.set(overlay.index, scene);
    }
    return scene;
  }

  /* One decoded picture for all models, undefined until it is there, null for none. It is asked for when its page is
     opened, so that printing, which waits for nothing, finds it. One that does not decode leaves the ground plain. */
  picture(index) {
    if (index === null) return null;
    if (!this.pictures.has(index)) {
      this.pictures.set(index, undefined);
      const image = new Image();
      image.src = `data:image/jpeg;base64,${this.data.images[index]}`;
      const arrived = (found) => {
        this.pictures.set(index, found);
        for (const item of [...this.items.values(), ...this.others]) {
          if (item.figure.dataset.drawn && this.data.cases[item.overlay.case].image === index) this.paint(item);
        }
      };
      image.decode().then(
        () => arrived(image),
        () => arrived(null),
      );
    }
    return this.pictures.get(index);
  }
}
