"use strict";
// Sorts a table by the column whose heading is pressed; empty cells come last.
const NUMBER = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?:\s*±.*|\s*%)?$/i;
const INSIDE = /(\d+(?:\.\d+)?(?:e[-+]?\d+)?)/i;

// Numbers by value, "12.3 ± 0.4" by its mean; texts by the words and numbers in them.
function compare(a, b) {
  const [x, y] = [a, b].map((text) => NUMBER.exec(text));
  if (x && y) return Number(x[1]) - Number(y[1]);
  const [left, right] = [a, b].map((text) => text.split(INSIDE));
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const order = i % 2 ? left[i] - right[i] : left[i].localeCompare(right[i], "en");
    if (order) return order;
  }
  return left.length - right.length;
}

function sorted(rows, column, direction) {
  const pairs = rows.map((row) => [row.cells[column].textContent.trim(), row]);
  const empty = pairs.filter(([text]) => text === "" || text === "–");
  const full = pairs.filter((pair) => !empty.includes(pair));
  full.sort((a, b) => direction * compare(a[0], b[0]));
  return [...full, ...empty].map(([, row]) => row);
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...sorted([...body.rows], column, down ? -1 : 1));
    });
  }
}

// A table or figure that is wider than its place says so: some systems hide the bar that scrolls it.
for (const place of document.querySelectorAll("div.wide, div.picture")) {
  new ResizeObserver(() => {
    place.toggleAttribute("data-wide", place.scrollWidth > place.clientWidth);
  }).observe(place);
}
