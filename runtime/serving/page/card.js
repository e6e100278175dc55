/* One model: waiting, refused, or its maps of the chosen findings above its scores. */

const GRID = 224;
const LONGEST = 896; // pixels of a canvas' longer side
const THRESHOLDS = Float32Array.from({ length: LEVELS }, (_, k) => k / 100);
const ARITHMETIC = { upsample: "bilinear", normalise: "minmax", thresholds: THRESHOLDS };

/* An answer's tensors as the page uses them; numbers are by finding. */
class ModelAnswer {
  constructor(model, { head, tensors }, milliseconds) {
    const numbers = (name) => [...tensors[name].data];
    this.model = model;
    this.version = head.model_version;
    this.set = head.parameters.prompt_set;
    this.milliseconds = milliseconds;
    this.findings = tensors.findings.data;
    this.logits = numbers("logits");
    this.negatives = numbers("logits_negative");
    this.sigmoid = numbers("probabilities");
    this.pair = numbers("probabilities_pair");
    this.size = numbers("sizes");
    this.frame = numbers("frames");
    this.maps = tensors.saliency.data;
    this.grid = tensors.saliency.shape.slice(2);
    this.scenes = new Map();
  }

  /* What is drawn of a finding; kept, since a slider asks for it many times. */
  scene(place) {
    if (!this.scenes.has(place)) {
      const cells = this.grid[0] * this.grid[1];
      const map = this.maps.subarray(place * cells, (place + 1) * cells);
      const swept = sweepMap(map, this.grid, this.frame, ARITHMETIC, GRID);
      this.scenes.set(place, { swept, thresholds: THRESHOLDS, argmax: swept.argmax, hit: null, boxes: [], level: -1 });
    }
    return this.scenes.get(place);
  }

  boxes(place, k) {
    const scene = this.scene(place);
    if (scene.level !== k) {
      scene.boxes = regionBoxes(scene.swept, k, GRID);
      scene.level = k;
    }
    return scene.boxes;
  }
}

/* A canvas as large as `longest` in the proportions of the radiograph. */
function canvasFor([height, width], longest) {
  const scale = longest / Math.max(height, width);
  const [w, h] = [width, height].map((side) => Math.max(1, Math.round(side * scale)));
  return make("canvas", { width: w, height: h, role: "img" });
}

class Card {
  constructor(model, view) {
    this.model = model;
    this.view = view;
    this.answer = null;
    this.figures = [];
    const { parameters, name } = model;
    this.facts = make("p", { className: "quiet small facts-line" });
    const title = make("h2", { textContent: name });
    const stamp = make("p", { className: "stamp" }, make("span", { textContent: parameters.weights_notice }));
    const header = make("header", {}, title, ...(parameters.weights === "published" ? [] : [stamp]), this.facts);
    this.maps = make("div", { className: "maps" });
    this.bars = new Bars(`Scores of ${name}`, (finding) => view.pick(finding));
    this.scoreTitle = make("p", { className: "quiet small score-title" });
    this.scores = make("div", { className: "scores" }, this.scoreTitle, this.bars.element);
    this.element = make("article", { className: "card", "aria-label": name }, header, this.maps, this.scores);
    this.element.dataset.model = name;
  }

  wait() {
    this.answer = null;
    this.element.dataset.state = "waiting";
    this.element.setAttribute("aria-busy", "true");
    write(this.facts, "Asking …");
    this.maps.replaceChildren(make("div", { className: "blank" }));
    this.scores.hidden = true;
    this.figures = [];
  }

  fail(error, again) {
    this.element.dataset.state = "refused";
    this.element.removeAttribute("aria-busy");
    write(this.facts, "No answer");
    const button = make("button", { type: "button", textContent: "Ask again" });
    button.addEventListener("click", again);
    const sentence = make("p", { className: "error", role: "alert", textContent: error.message });
    this.maps.replaceChildren(make("div", { className: "refusal" }, sentence, ...(error.passing ? [button] : [])));
  }

  show(answer) {
    this.answer = answer;
    this.element.dataset.state = "answered";
    this.element.removeAttribute("aria-busy");
    const time = `${Math.round(answer.milliseconds)} ms`;
    const facts = [this.model.platform, `${answer.grid.join(" × ")} map`, `set “${answer.set}”`, time];
    write(this.facts, facts.join(" · "));
    this.scores.hidden = false;
    this.list();
    this.draw();
  }

  /* The list of scores, as another kind of score orders it. */
  list() {
    if (!this.answer) return;
    write(this.scoreTitle, `${this.answer.findings.length} findings by ${SCORES[this.view.kind].name}`);
    this.bars.fill(this.answer, this.view.kind, this.view.chosen);
  }

  /* A figure for every chosen finding, in the order in which they were chosen. */
  draw() {
    if (!this.answer) return;
    this.bars.mark(this.view.chosen);
    this.figures = [...this.view.chosen].map((finding) => this.figure(finding));
    this.maps.replaceChildren(...this.figures.map((figure) => figure.element));
    this.paint();
  }

  figure(finding) {
    const place = this.answer.findings.indexOf(finding);
    if (place < 0) {
      const text = `The set “${this.answer.set}” of this model has no “${finding}”.`;
      const box = make("div", { className: "absent-map" }, make("p", { textContent: text }));
      box.style.setProperty("--aspect", this.answer.size[1] / this.answer.size[0]);
      const title = make("p", { className: "model" }, make("b", { textContent: finding }));
      const values = make("p", { className: "values", textContent: "no map" });
      return { place, element: make("figure", { className: "map" }, box, make("figcaption", {}, title, values)) };
    }
    const canvas = canvasFor(this.answer.size, LONGEST);
    write(canvas, `${finding}: map of ${this.model.name} on the radiograph`, "aria-label");
    const values = make("p", { className: "values" });
    const save = make("button", { type: "button", className: "save", textContent: "Save PNG" });
    write(save, `Save the overlay of ${this.model.name}, ${finding}, as PNG`, "aria-label");
    save.addEventListener("click", () => this.view.save(this.answer, place));
    const title = make("p", { className: "model" }, make("b", { textContent: finding }), save);
    const element = make("figure", { className: "map" }, canvas, make("figcaption", {}, title, values));
    element.dataset.finding = finding;
    return { place, element, canvas, values };
  }

  paint() {
    for (const { place, element, canvas, values } of this.figures) {
      if (place < 0) continue;
      const { level, kind } = this.view;
      const look = { ...this.view.look(), unit: (1.1 * canvas.width) / (canvas.clientWidth || canvas.width) };
      const scene = { ...this.answer.scene(place), image: this.view.picture };
      if (look.boxes) scene.boxes = this.answer.boxes(place, level);
      const area = drawOverlay(canvas, scene, level, look, GRID, this.view.scratch);
      const share = `${((100 * area) / GRID ** 2).toFixed(1)} %`;
      const texts = [[SCORES[kind].name, scoreText(this.answer, place, kind)], ["B(τ)", share]];
      if (look.boxes) texts.push(["boxes", String(scene.boxes.length)]);
      values.replaceChildren(...texts.map(([name, text]) => make("span", {}, `${name} `, make("b", { textContent: text }))));
      if (scene.swept.flat) values.append(make("span", { className: "differs", textContent: "flat map: nothing to show" }));
      Object.assign(element.dataset, { level, area, boxes: look.boxes ? scene.boxes.length : "", drawn: "all" });
      element.dataset.argmax = scene.argmax;
      element.dataset.picture = scene.image ? "there" : "none";
    }
  }
}
