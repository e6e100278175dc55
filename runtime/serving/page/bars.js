/* The scores of a model as a list, highest first; a row is a button that picks its finding. */

const SCORES = {
  sigmoid: { name: "sigmoid", digits: 3, of: (answer, i) => answer.sigmoid[i] },
  pair: { name: "pair", digits: 3, of: (answer, i) => answer.pair[i] },
  logit: { name: "logit", digits: 2, of: (answer, i) => answer.logits[i] },
};

/* A score as text; without a negative prompt there is none of a pair. */
function scoreText(answer, i, kind) {
  const value = SCORES[kind].of(answer, i);
  return Number.isFinite(value) ? value.toFixed(SCORES[kind].digits) : "–";
}

/* Places of the findings, the highest score first, those without one last. */
function ranking(answer, kind) {
  const value = (i) => {
    const found = SCORES[kind].of(answer, i);
    return Number.isFinite(found) ? found : -Infinity;
  };
  return answer.findings.map((_, i) => i).sort((a, b) => (value(a) === value(b) ? a - b : value(b) - value(a)));
}

class Bars {
  constructor(label, pick) {
    this.pick = pick;
    this.element = make("ol", { className: "bars", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.move(event));
  }

  fill(answer, kind, chosen) {
    const order = ranking(answer, kind);
    const values = order.map((i) => SCORES[kind].of(answer, i));
    const finite = values.filter(Number.isFinite);
    const low = kind === "logit" ? Math.min(0, ...finite) : 0;
    const high = kind === "logit" ? Math.max(0, ...finite) : 1;
    this.rows = order.map((i, place) => {
      const share = Number.isFinite(values[place]) && high > low ? (values[place] - low) / (high - low) : 0;
      const bar = make("span", { className: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", share);
      const name = make("span", { className: "name", textContent: answer.findings[i] });
      const value = make("span", { className: "value", textContent: scoreText(answer, i, kind) });
      const button = make("button", { type: "button", title: answer.findings[i] }, name, value, bar);
      button.dataset.finding = answer.findings[i];
      button.addEventListener("click", () => this.pick(answer.findings[i]));
      return button;
    });
    this.element.replaceChildren(...this.rows.map((row) => make("li", {}, row)));
    this.mark(chosen);
  }

  /* The chosen rows are pressed; the first of them is where the tab key arrives. */
  mark(chosen) {
    for (const row of this.rows) row.setAttribute("aria-pressed", String(chosen.has(row.dataset.finding)));
    const stop = this.rows.find((row) => row === document.activeElement || chosen.has(row.dataset.finding));
    for (const row of this.rows) row.tabIndex = row === (stop ?? this.rows[0]) ? 0 : -1;
  }

  move(event) {
    const at = this.rows.indexOf(document.activeElement);
    const last = this.rows.length - 1;
    const to = { ArrowDown: Math.min(at + 1, last), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    for (const row of this.rows) row.tabIndex = -1;
    this.rows[to].tabIndex = 0;
    this.rows[to].focus();
  }
}
