/* The answers to one question, and what of them is shown: findings, threshold, layers, kind of score. */

const OUTPUTS = [
  "findings", "logits", "logits_negative", "probabilities", "probabilities_pair", "saliency", "sizes", "frames",
];

class Results {
  constructor(server, question, say) {
    this.server = server;
    this.question = question;
    this.say = say;
    this.cards = new Map();
    this.chosen = new Set();
    this.picture = null;
    this.level = 50;
    this.kind = "sigmoid";
    this.asking = new AbortController();
    this.root = document.getElementById("cards");
    this.control = (name) => document.querySelector(`#controls [name="${name}"]`);
    this.scratch = make("canvas", { width: GRID, height: GRID }).getContext("2d");
    this.listen();
  }

  listen() {
    const slider = document.getElementById("tau");
    slider.addEventListener("input", () => this.setLevel(Number(slider.value)));
    document.getElementById("tau-half").addEventListener("click", () => this.setLevel(50));
    document.querySelector("#controls .layers").addEventListener("input", (event) => {
      if (event.target.name === "score") this.setKind(event.target.value);
      else if (event.target.name === "several") this.setSeveral();
      else this.repaint();
    });
    window.addEventListener("resize", () => this.repaint());
    document.getElementById("copy").addEventListener("click", () => copyText(answersText(this), this.say));
  }

  look() {
    const look = { opacity: Number(this.control("opacity").value) / 100, fading: true };
    for (const name of ["heat", "contour", "maximum", "boxes"]) look[name] = this.control(name).checked;
    return look;
  }

  setLevel(level) {
    this.level = level;
    const slider = document.getElementById("tau");
    const tau = (level / 100).toFixed(2);
    slider.value = level;
    write(slider, `tau ${tau}`, "aria-valuetext");
    write(document.getElementById("tau-value"), tau);
    document.getElementById("tau-half").setAttribute("aria-pressed", String(level === 50));
    this.repaint();
  }

  setKind(kind) {
    this.kind = kind;
    for (const card of this.cards.values()) card.list();
    this.repaint();
  }

  setSeveral() {
    if (this.control("several").checked || this.chosen.size < 2) return;
    this.chosen = new Set([[...this.chosen].at(-1)]);
    this.redraw();
  }

  /* One finding at a time, or with "several findings" any number but none. */
  pick(finding) {
    if (!this.control("several").checked) this.chosen = new Set([finding]);
    else if (!this.chosen.has(finding)) this.chosen.add(finding);
    else if (this.chosen.size > 1) this.chosen.delete(finding);
    this.redraw();
    this.say(`Shown: ${[...this.chosen].join(", ")}.`);
  }

  redraw() {
    for (const card of this.cards.values()) card.draw();
  }

  /* At most once a frame: a slider moves faster than that. */
  repaint() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      for (const card of this.cards.values()) card.paint();
    });
  }

  /* Another question: earlier answers are none to it. */
  async restart() {
    this.asking.abort();
    this.asking = new AbortController();
    this.picture = null;
    this.cards.clear();
    await this.complete();
  }

  /* Shows the ticked models and asks those that were not asked yet. The first answer brings the picture. */
  async complete() {
    if (!this.question.ready) return;
    const { signal } = this.asking;
    const ticked = this.question.ticked;
    const missing = ticked.filter((model) => !this.cards.has(model.name)).map((model) => new Card(model, this));
    for (const card of missing) {
      this.cards.set(card.model.name, card);
      card.wait();
    }
    this.root.replaceChildren(...ticked.map((model) => this.cards.get(model.name).element));
    this.root.dataset.columns = Math.min(ticked.length, 4);
    document.getElementById("welcome").hidden = true;
    this.showControls();
    if (!ticked.length) this.say("No model is ticked.");
    while (missing.length && !this.picture && !signal.aborted) await this.ask(missing.shift(), signal);
    await Promise.all(missing.map((card) => this.ask(card, signal)));
  }

  async ask(card, signal) {
    const start = performance.now();
    const outputs = this.picture ? OUTPUTS : [...OUTPUTS, "preview"];
    try {
      const { bytes, words } = this.question;
      const found = await this.server.infer(card.model.name, bytes, words, outputs, signal);
      const answer = new ModelAnswer(card.model, found, performance.now() - start);
      if (found.tensors.preview) this.picture ??= await pictureOf(found.tensors.preview.data[0]);
      if (signal.aborted) return;
      this.arrived(card, answer);
    } catch (error) {
      if (signal.aborted) return;
      card.fail(error instanceof Refused ? error : new Refused(`The answer cannot be shown: ${error.message}`, 500), () => {
        card.wait();
        this.ask(card, signal);
      });
    }
  }

  arrived(card, answer) {
    const known = [...this.cards.values()].some((other) => other.answer?.findings.some((name) => this.chosen.has(name)));
    if (!known && !answer.findings.some((name) => this.chosen.has(name))) {
      this.chosen = new Set([answer.findings[ranking(answer, this.kind)[0]]]);
    }
    card.show(answer);
    this.showControls();
    const best = ranking(answer, this.kind)[0];
    const score = `${answer.findings[best]} ${scoreText(answer, best, this.kind)}`;
    this.say(`${card.model.name} answered; highest ${SCORES[this.kind].name}: ${score}.`);
  }

  /* There is something to control where there is an answer. */
  showControls() {
    for (const id of ["controls", "caveat"]) document.getElementById(id).hidden = !this.answers.length;
  }

  save(answer, place) {
    savePicture(this, answer, place).then(
      (name) => this.say(`Saved as ${name}.`),
      (error) => this.say(`The picture could not be saved: ${error.message}`, true),
    );
  }

  get answers() {
    return this.question.ticked.map((model) => this.cards.get(model.name)?.answer).filter(Boolean);
  }
}

async function pictureOf(bytes) {
  return createImageBitmap(new Blob([bytes], { type: "image/png" }));
}
