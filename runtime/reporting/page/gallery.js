/* The overlay gallery: which cases are shown, and the elements that show them. Drawing is left to the Painter. */

const PER_PAGE = 8;

class Gallery {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.control = (name) => root.querySelector(`[name="${name}"]`);
    this.list = root.querySelector(".cases");
    this.page = 0;
    this.painter = new Painter(data, () => this.look());
    this.enlarged = new Enlarged(root.querySelector("dialog"), this.painter);
    data.overlays.forEach((overlay, index) => {
      overlay.index = index;
      const found = data.cases[overlay.case];
      (found.overlays ??= []).push(overlay);
    });
    this.fillControls();
    this.list.style.setProperty("--models", data.models.length);
    this.listen();
    this.refresh();
  }

  fillControls() {
    this.data.datasets.forEach((dataset, i) => this.control("dataset").append(new Option(dataset.title, i)));
    const models = this.root.querySelector(".models");
    this.data.models.forEach((name, i) => {
      const box = make("input", { type: "checkbox", name: "model", value: String(i), checked: true });
      models.append(make("label", { className: "check" }, box, ` ${name}`));
    });
    this.fillFindings();
  }

  /* The classes of the chosen dataset; a class that stays available stays chosen. */
  fillFindings() {
    const select = this.control("finding");
    const before = select.value;
    const dataset = this.control("dataset").value;
    const cases = this.data.cases.filter((item) => dataset === "" || item.dataset === Number(dataset));
    const names = [...new Set(cases.map((item) => item.finding))].sort((a, b) => a.localeCompare(b));
    select.replaceChildren(new Option("All classes", ""), ...names.map((name) => new Option(name, name)));
    select.value = names.includes(before) ? before : "";
  }

  listen() {
    this.root.querySelector(".filters").addEventListener("change", (event) => {
      if (event.target.name === "dataset") this.fillFindings();
      this.page = 0;
      this.refresh();
    });
    this.root.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
    const slider = this.control("tau");
    slider.addEventListener("input", () => this.setTau(false));
    this.root.querySelector(".fixed-tau").addEventListener("click", () => {
      slider.value = 50;
      this.setTau(false);
    });
    this.root.querySelector(".best-tau").addEventListener("click", () => this.setTau(true));
    this.root.querySelector(".layers").addEventListener("input", () => this.painter.repaint());
    for (const button of this.root.querySelectorAll(".pager button")) {
      button.addEventListener("click", () => this.turn(Number(button.value)));
    }
    window.addEventListener("beforeprint", () => this.painter.paintAll());
    this.setTau(false);
  }

  setTau(best) {
    const slider = this.control("tau");
    const tau = (Number(slider.value) / 100).toFixed(2);
    this.painter.level = best ? null : Number(slider.value);
    slider.setAttribute("aria-valuetext", best ? "best threshold of each class" : `tau ${tau}`);
    this.root.querySelector(".tau-value").textContent = best ? "best of each class" : tau;
    this.root.querySelector(".best-tau").setAttribute("aria-pressed", String(best));
    this.root.querySelector(".fixed-tau").setAttribute("aria-pressed", String(!best && tau === "0.50"));
    this.painter.repaint();
  }

  look() {
    return {
      heat: this.control("heat").checked,
      truth: this.control("truth").checked,
      contour: this.control("contour").checked,
      maximum: this.control("maximum").checked,
      opacity: Number(this.control("opacity").value) / 100,
    };
  }

  turn(step) {
    this.page += step;
    this.refresh();
    this.root.querySelector(".filters").scrollIntoView({ block: "start" });
  }

  /* The cases that pass the filters with those of their overlays that do. */
  matching() {
    const dataset = this.control("dataset").value;
    const finding = this.control("finding").value;
    const outcome = this.control("outcome").value;
    const shown = new Set([...this.root.querySelectorAll('[name="model"]:checked')].map((box) => Number(box.value)));
    const found = [];
    for (const item of this.data.cases) {
      if (dataset !== "" && item.dataset !== Number(dataset)) continue;
      if (finding !== "" && item.finding !== finding) continue;
      let overlays = (item.overlays || []).filter((overlay) => shown.has(overlay.model));
      if (outcome === "hit" || outcome === "miss") {
        overlays = overlays.filter((overlay) => overlay.hit === (outcome === "hit"));
      } else if (outcome === "split" && new Set(overlays.map((overlay) => overlay.hit)).size < 2) {
        continue;
      }
      if (overlays.length) found.push({ item, overlays });
    }
    return this.ordered(found);
  }

  ordered(found) {
    const order = this.control("order").value;
    if (order === "class") {
      found.sort((a, b) => a.item.dataset - b.item.dataset || a.item.finding.localeCompare(b.item.finding));
    } else {
      const sign = order === "worst" ? 1 : -1;
      const mean = (entry) =>
        entry.overlays.reduce((sum, overlay) => sum + this.painter.scores(overlay, overlay.best).dice, 0) /
        entry.overlays.length;
      found.forEach((entry) => (entry.mean = mean(entry)));
      found.sort((a, b) => sign * (a.mean - b.mean));
    }
    return found;
  }

  refresh() {
    const found = this.matching();
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const overlays = found.flatMap((entry) => entry.overlays);
    const hits = overlays.filter((overlay) => overlay.hit).length;
    this.root.querySelector(".count").textContent = found.length
      ? `${found.length} of ${this.data.cases.length} cases, ${overlays.length} overlays: ` +
        `${hits} ${hits === 1 ? "hit" : "hits"}, ${overlays.length - hits} missed`
      : "No case passes these filters.";
    for (const pager of this.root.querySelectorAll(".pager")) {
      pager.hidden = pages === 1;
      pager.querySelector("span").textContent = `Page ${this.page + 1} of ${pages}`;
      pager.querySelector('[value="-1"]').disabled = this.page === 0;
      pager.querySelector('[value="1"]').disabled = this.page === pages - 1;
    }
    this.painter.clear();
    const first = this.page * PER_PAGE;
    this.list.replaceChildren(...found.slice(first, first + PER_PAGE).map((entry) => this.caseElement(entry)));
  }

  caseElement({ item, overlays }) {
    const region = this.painter.truthArea(item);
    const share = ((100 * region) / this.data.grid ** 2).toFixed(1);
    const facts = `${this.data.datasets[item.dataset].title} · region ${region.toLocaleString("en")} px (${share} %)`;
    const why = make("span", { className: "why", textContent: item.why });
    const title = make("h3", {}, make("span", { textContent: item.finding }), " ", make("code", { textContent: item.id }));
    const head = make("header", {}, title, make("p", {}, `${facts} · chosen as `, why));
    const row = make("div", { className: "overlays" }, ...overlays.map((overlay) => this.overlayElement(item, overlay)));
    if (item.phrase) head.append(make("p", { className: "phrase", textContent: `“${item.phrase}”` }));
    return make("article", { className: "case" }, head, row);
  }

  overlayElement(item, overlay) {
    const side = 2 * this.data.grid;
    const canvas = make("canvas", { width: side, height: side, role: "img" });
    const name = this.data.models[overlay.model];
    const button = make("button", { type: "button", className: "enlarge", title: "Enlarge, with window and level" }, canvas);
    const outcome = overlay.degenerate ? "flat map" : overlay.hit ? "hit" : "miss";
    const badge = make("span", { className: `badge ${overlay.hit ? "hit" : "miss"}`, textContent: outcome });
    const values = make("p", { className: "values" });
    const caption = make("figcaption", {}, make("p", { className: "model" }, make("b", { textContent: name }), badge), values);
    const figure = make("figure", { className: "overlay" }, button, caption);
    figure.dataset.index = overlay.index;
    figure.dataset.hit = overlay.hit;
    canvas.setAttribute("aria-label", `${name}, ${item.finding}, case ${item.id}: ${outcome}`);
    button.setAttribute("aria-label", `Enlarge ${name}, ${item.finding}, case ${item.id}`);
    button.addEventListener("click", () => this.enlarged.show(overlay));
    this.painter.watch(figure, overlay, canvas, values);
    return figure;
  }
}
