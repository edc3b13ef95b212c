// Looks at the page it is put into, and leaves what it saw in the page around it.
const seen = { width: innerWidth, hash: location.hash, problems: [] };
const say = (words) => seen.problems.push(words);
const shown = (element) => element.getClientRects().length > 0;
const all = (selector) => [...document.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);
const rows = () => all("#leaders tbody tr[data-method]").map((row) => row.dataset.method);
const marks = () => Object.fromEntries(all("#leaders tbody tr[data-method]").map((row) =>
  [row.dataset.method, [...row.querySelectorAll(".verdict")].map((mark) => mark.textContent).join("")]));
const snapshot = () => ({
  marks: marks(),
  bold: all("#leaders td.best").map((cell) => cell.closest("tr").dataset.method),
  rows: rows(),
  heads: all("#leaders thead th").map((head) => head.textContent),
  sorted: all("#leaders th[aria-sort]").map((head) => [head.dataset.key, head.getAttribute("aria-sort")]),
  graph: one("#graphs [aria-selected=true]").dataset.graph,
  metric: one("#metrics [aria-pressed=true]").dataset.metric,
  kind: one("#kinds").value,
  families: all("#families [aria-pressed=true]").map((chip) => chip.dataset.family),
  only: all("#legend [aria-pressed=true]").map((button) => button.dataset.method),
  bright: all("#plot .method:not(.dim)").map((line) => line.dataset.method),
  search: one("#search").value,
  titles: all("#plot title").map((title) => title.textContent).slice(0, 3),
  hash: location.hash,
});

// folded, as a reader finds it
seen.screens = document.documentElement.scrollHeight / innerHeight;
seen.board = one("#plot").getBoundingClientRect().bottom;
seen.start = snapshot();

const level = () => {
  // the page never scrolls sideways, and no text is cut
  const whole = document.documentElement;
  if (whole.scrollWidth > innerWidth) say(`page: ${whole.scrollWidth} in ${innerWidth}`);
  for (const element of all("td, th, dt, dd, p, li, figcaption, h1, h2, h3, b")) {
    const display = getComputedStyle(element).display;
    if (!shown(element) || display === "inline") continue;
    // a cell that is none pushes those after it below other headings
    if (element.matches("td, th") && display !== "table-cell") say(`no cell: ${element.textContent.trim()}`);
    if (element.scrollWidth > element.clientWidth + 1) say(`cut: ${element.textContent.trim()}`);
  }
};
const chart = (name) => {
  // in the chart no text leaves, overlaps or is too small
  const svg = one("#plot > svg");
  if (!svg) return;
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((text) => text.getBoundingClientRect());
  texts.forEach((text, i) => {
    seen.smallest = Math.min(seen.smallest ?? 99, parseFloat(getComputedStyle(text).fontSize));
    const a = boxes[i];
    if (a.left < -1 || a.right > innerWidth + 1) say(`${name}: ${text.textContent} leaves the page`);
    for (let j = 0; j < i; j++) {
      const b = boxes[j];
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > 0.5 && height > 2.5) say(`${name}: ${text.textContent} on ${texts[j].textContent}`);
    }
  });
};

if (!location.hash) {
  level();
  // what a reader clicks
  const press = (selector) => one(selector).click();
  const find = (words) => { one("#search").value = words; one("#search").dispatchEvent(new Event("input")); };
  find("GEM grad");
  seen.found = snapshot();
  find("no such method");
  seen.nothing = one("#leaders tbody").textContent;
  find("");
  press('#families [data-family="replay"]');
  seen.chip = snapshot();
  press('#families [data-family="replay"]');
  press('#graphs [data-graph="corafull-graph"]');
  press('#legend [data-method="gem"]');
  press('#metrics [data-metric="af"]');
  press('#leaders [data-key="on cora"] button');
  press('#choices [data-key="micro"]');
  seen.clicked = snapshot();
  press('#leaders [data-key="on cora"] button');
  seen.turned = snapshot();
  press('#metrics [data-metric="ap"]');
  press('#choices [data-key="marks"]');
  seen.bare = snapshot();
  press('#legend [data-method="gem"]');
  press('#reset');
  // every chart of every graph
  seen.charts = [];
  for (const graph of all("#graphs button").map((button) => button.dataset.graph)) {
    press(`#graphs [data-graph="${graph}"]`);
    for (const option of all("#kinds option").map((option) => option.value)) {
      one("#kinds").value = option;
      one("#kinds").dispatchEvent(new Event("change"));
      seen.charts.push([graph, option, all("#plot title").length]);
      chart(`${graph} ${option}`);
    }
  }
  for (const folded of all("details")) folded.open = folded.id !== "columns";
  level();
  const copy = all(".command button").find(shown);
  copy.focus({ focusVisible: true });
  if (getComputedStyle(copy).outlineStyle === "none") say("Copy does not show that it has the keyboard");
  for (const box of all(".scroll")) {
    if (box.scrollWidth <= box.clientWidth + 40) continue;
    box.scrollLeft = 40;
    const [frame, first] = [box, box.querySelector("tbody th")].map((e) => e.getBoundingClientRect());
    if (Math.abs(first.left - frame.left) > 1) say("the first column does not stay");
    box.scrollLeft = 0;
  }
}

// every text stands out from what it stands on
const light = (colour) => {
  const scale = colour.startsWith("color(") ? 1 : 255;
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map((c) => c / scale)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : colour;
};
seen.contrast = [99, ""];
for (const element of all("h1, h2, p, a, b, li, dt, dd, th, td, span, code, summary, button, #plot text")) {
  if (!shown(element) || !element.textContent.trim() || element.matches(".skip, .dim")) continue;
  const style = getComputedStyle(element);
  const ink = light(element.matches("text") ? style.fill : style.color);
  const [low, high] = [ink, light(ground(element.closest(":not(svg *, svg)")))].sort((a, b) => a - b);
  const contrast = (high + 0.05) / (low + 0.05);
  if (contrast < seen.contrast[0]) seen.contrast = [contrast, element.textContent];
}
seen.ground = light(ground(document.body));

// a heading sorts its table: numbers from the largest, then from the smallest; what is apart stays
const table = all(".table table").find((t) => t.querySelector(".apart"));
const numbers = [...table.tHead.rows[0].cells].filter((c) => c.classList.contains("number"));
const head = numbers[numbers.length - 1];
const keys = (of) => [...table.tBodies].map((b) => [...b.rows].map((r) => r.cells[of.cellIndex].dataset.key ?? r.cells[of.cellIndex].textContent));
seen.orders = [keys(head)];
seen.sorts = [head.getAttribute("aria-sort")];
for (let i = 0; i < 2; i++) {
  head.querySelector("button").click();
  seen.orders.push(keys(head));
  seen.sorts.push(head.getAttribute("aria-sort"));
}
// a column with empty cells: they come last, whichever way
const gappy = numbers.find((one) => keys(one)[0].includes("") && keys(one)[0].some(Boolean));
seen.gaps = [0, 1].map(() => { gappy.querySelector("button").click(); return keys(gappy)[0]; });
table.tHead.rows[0].cells[0].querySelector("button").click();
seen.names = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
seen.sorts.push(head.getAttribute("aria-sort"));

// what a method looks like, its colour left aside
seen.marks = all("#legend .mark").map((mark) => mark.innerHTML.replace(/var\(--hue-\w+\)/g, "hue"));
seen.copies = all(".command button").length;
const note = parent.document.createElement("pre");
note.id = "verdict";
note.textContent = JSON.stringify(seen);
parent.document.body.append(note);
