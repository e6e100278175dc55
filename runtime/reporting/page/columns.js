/* Which columns of a table with groups are shown: as many numbers of each group as fit, the first ones first, until the
   reader chooses. All columns stay in the document, for sorting and for print. */

function startColumns() {
  const choosers = [...document.querySelectorAll(".table .scroll > table.sortable")].flatMap((table) => {
    const columns = columnsOf(table);
    const groups = new Set(columns.map((column) => column.group).filter(Boolean));
    const titles = new Set(columns.filter((column) => column.group).map((column) => column.title));
    return groups.size > 1 && titles.size > 1 ? [new Columns(table, columns, [...groups], [...titles])] : [];
  });
  const fit = () => {
    choosers.forEach((chooser) => chooser.show(() => true));
    choosers.map((chooser) => chooser.narrowed()).forEach((titles, i) => choosers[i].start(titles));
  };
  let waiting = 0;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    waiting ||= requestAnimationFrame(() => ((waiting = 0), fit()));
  });
  fit();
}

/* Heading, group and title of each column, in the order of a row's cells. */
function columnsOf(table) {
  const rows = [...table.tHead.rows].map((row) => [...row.cells]);
  const lower = rows.length > 1 ? [...rows[1]] : [];
  return rows[0].flatMap((head) => {
    if (head.scope !== "colgroup") return [{ head, group: null, title: head.innerText.trim() }];
    const own = lower.splice(0, head.colSpan);
    return own.map((cell) => ({ head: cell, over: head, group: head.innerText.trim(), title: cell.innerText.trim() }));
  });
}

class Columns {
  constructor(table, columns, groups, titles) {
    Object.assign(this, { table, columns, groups, titles });
    this.summary = make("summary");
    const sets = [this.boxes("Numbers", "title", titles), this.boxes("Groups", "group", groups)];
    this.element = make("details", { className: "columns" }, this.summary, ...sets);
    this.element.addEventListener("change", () => {
      this.chosen = true;
      this.apply();
    });
    table.parentElement.before(this.element);
  }

  boxes(legend, name, texts) {
    const labels = texts.map((text) => {
      const box = make("input", { type: "checkbox", name, value: text, checked: true });
      return make("label", { className: "check" }, box, ` ${text}`);
    });
    return make("fieldset", { className: "chips" }, make("legend", { textContent: legend }), ...labels);
  }

  checked(name) {
    return new Set([...this.element.querySelectorAll(`[name="${name}"]:checked`)].map((box) => box.value));
  }

  /* The titles with which the table fits, at least the first; the last group, the mean, keeps its own. */
  narrowed() {
    const own = getComputedStyle(this.table.parentElement);
    this.table.style.setProperty("--first", `${this.columns[0].head.offsetWidth}px`);
    const room = this.table.parentElement.clientWidth - parseFloat(own.paddingLeft) - parseFloat(own.paddingRight);
    const widths = this.columns.map((column) => column.head.offsetWidth);
    const titles = [...this.titles];
    const needed = () => widths.reduce((sum, width, i) => sum + (this.fits(this.columns[i], titles) ? width : 0), 0);
    while (titles.length > 1 && needed() > room) titles.pop();
    return titles;
  }

  fits(column, titles) {
    return column.group === null || titles.includes(column.title);
  }

  start(titles) {
    if (!this.chosen) {
      for (const box of this.element.querySelectorAll('[name="title"]')) box.checked = titles.includes(box.value);
    }
    this.apply();
  }

  apply() {
    const titles = this.checked("title");
    const groups = this.checked("group");
    this.show((column) => column.group === null || (titles.has(column.title) && groups.has(column.group)));
    const counts = `${titles.size} of ${this.titles.length} numbers, ${groups.size} of ${this.groups.length} groups`;
    this.summary.textContent = `Columns: ${counts}`;
  }

  show(wanted) {
    const shown = this.columns.map(wanted);
    this.columns.forEach((column, i) => (column.head.hidden = !shown[i]));
    for (const over of new Set(this.columns.map((column) => column.over).filter(Boolean))) {
      const span = this.columns.filter((column, i) => column.over === over && shown[i]).length;
      over.hidden = span === 0;
      over.colSpan = Math.max(span, 1);
    }
    for (const row of this.table.tBodies[0].rows) {
      shown.forEach((keep, i) => (row.cells[i].hidden = !keep));
    }
  }
}
