// Looks at the page it is put into, and leaves what it saw in the page around it.
const seen = { width: innerWidth, problems: [] };
const say = (words) => seen.problems.push(words);
const shown = (element) => element.getClientRects().length > 0;

// the page never scrolls sideways, and no text is cut
const whole = document.documentElement;
if (whole.scrollWidth > innerWidth) say(`page: ${whole.scrollWidth} in ${innerWidth}`);
for (const element of document.querySelectorAll("td, th, dt, dd, p, li, figcaption, h1, h2, h3, b")) {
  if (!shown(element) || getComputedStyle(element).display === "inline") continue;
  if (element.scrollWidth > element.clientWidth + 1) say(`cut: ${element.textContent.trim()}`);
}
for (const label of document.querySelectorAll("tbody th .label")) {
  const [text, cell] = [label, label.closest("th")].map((e) => e.getBoundingClientRect());
  if (text.right > cell.right + 1) say(`label leaves its cell: ${label.textContent}`);
}
for (const box of document.querySelectorAll(".scroll")) {
  box.scrollLeft = 40;
  const [frame, first] = [box, box.querySelector("tbody th")].map((e) => e.getBoundingClientRect());
  if (Math.abs(first.left - frame.left) > 1) say("the first column does not stay");
  box.scrollLeft = 0;
}

// in figures no text leaves, overlaps or is too small
seen.smallest = Infinity;
for (const svg of document.querySelectorAll(".chart svg")) {
  if (!shown(svg)) continue;
  const frame = svg.getBoundingClientRect();
  const scale = frame.width / svg.viewBox.baseVal.width;
  const name = svg.closest("figure").id;
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map((text) => text.getBoundingClientRect());
  texts.forEach((text, i) => {
    seen.smallest = Math.min(seen.smallest, scale * parseFloat(getComputedStyle(text).fontSize));
    const a = boxes[i];
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1
        || a.bottom > frame.bottom + 1) say(`${name}: ${text.textContent} leaves the figure`);
    for (let j = 0; j < i; j++) {
      const b = boxes[j];
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > 0.5 && height > 1) say(`${name}: ${text.textContent} on ${texts[j].textContent}`);
    }
  });
}

// every text stands out from what it stands on
const light = (colour) => {
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : colour;
};
seen.contrast = Infinity;
for (const element of document.querySelectorAll("h1, h2, p, a, b, li, dt, dd, th, td, span, code, summary, button, .chart text")) {
  if (!shown(element) || !element.textContent.trim() || element.matches(".skip")) continue;
  const style = getComputedStyle(element);
  // numbers in a heat map stand on its colours, which the figure's own code looks after
  if (/rgb\((0, 0, 0|255, 255, 255)\)/.test(style.fill) && element.matches("text")) continue;
  const [low, high] = [light(element.matches("text") ? style.fill : style.color), light(ground(element.closest(":not(svg *, svg)")))].sort((a, b) => a - b);
  seen.contrast = Math.min(seen.contrast, (high + 0.05) / (low + 0.05));
}
seen.ground = light(ground(document.body));

// a heading sorts its table: numbers from the largest, then from the smallest; what is apart stays
const table = [...document.querySelectorAll("table")].find((t) => t.querySelector(".apart"));
const numbers = [...table.tHead.rows[0].cells].filter((c) => c.classList.contains("number"));
const head = numbers[numbers.length - 1];
const keys = (of) => [...table.tBodies].map((b) => [...b.rows].map((r) => r.cells[of.cellIndex].dataset.key));
seen.orders = [keys(head)];
seen.sorts = [head.getAttribute("aria-sort")];
for (let i = 0; i < 2; i++) {
  head.querySelector("button").click();
  seen.orders.push(keys(head));
  seen.sorts.push(head.getAttribute("aria-sort"));
}
// a column with empty cells: they come last, whichever way
seen.gaps = [0, 1].map(() => { numbers[0].querySelector("button").click(); return keys(numbers[0])[0]; });
table.tHead.rows[0].cells[0].querySelector("button").click();
seen.names = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
seen.sorts.push(head.getAttribute("aria-sort"));
seen.reachable = head.querySelector("button").tabIndex === 0;

// what a method looks like, its colour and the ids left aside
seen.marks = [...document.querySelectorAll("symbol")].map((s) => s.innerHTML.replace(/var\(--hue-\w+\)/g, "hue").replace(/m\d+-\d+/g, "id"));
seen.copies = document.querySelectorAll(".command button").length;
const verdict = parent.document.createElement("pre");
verdict.id = "verdict";
verdict.textContent = JSON.stringify(seen);
parent.document.body.append(verdict);
