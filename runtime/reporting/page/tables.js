/* Tables sort by any column, through real buttons; rows that describe the data stay on top. */

function startTables() {
  const status = document.getElementById("status");
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    table.querySelectorAll("th button").forEach((button) => {
      button.disabled = false;
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const order = nextOrder(head.getAttribute("aria-sort"), head.dataset.kind);
        table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        if (order) head.setAttribute("aria-sort", order);
        body.append(...sortedRows(original, Number(head.dataset.column), order));
        status.textContent = order ? `${button.dataset.name}: sorted ${order}` : "Original order";
      });
    });
  }
  for (const box of document.querySelectorAll("#details input")) {
    box.addEventListener("change", () => document.body.classList.toggle(`hide-${box.value}`, !box.checked));
  }
}

/* Numbers start with the largest, texts with the first; a third press restores the original order. */
function nextOrder(order, kind) {
  const steps = kind === "number" ? ["descending", "ascending"] : ["ascending", "descending"];
  return order === null ? steps[0] : order === steps[0] ? steps[1] : null;
}

function sortedRows(rows, column, order) {
  const pinned = rows.filter((row) => row.dataset.pinned !== undefined);
  const rest = rows.filter((row) => row.dataset.pinned === undefined);
  if (!order) return [...pinned, ...rest];
  const sign = order === "ascending" ? 1 : -1;
  const key = (row) => row.cells[column].dataset.sort;
  const number = (row) => (key(row) === undefined ? NaN : Number(key(row)));
  const text = (row) => row.cells[column].innerText.trim();
  rest.sort((a, b) => {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return sign * text(a).localeCompare(text(b));
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return sign * (x - y);
  });
  return [...pinned, ...rest];
}
