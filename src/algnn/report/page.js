"use strict";
// The leaderboard and its chart, drawn from the data in the page; the address keeps what is shown.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const METHODS = new Map(data.methods.map((method) => [method.name, method]));
const GRAPHS = new Map(data.graphs.map((graph) => [graph.name, graph]));
const MEANS = { rank: "rank", ap: "mean AP", micro: "mean micro" };

function make(tag, attributes, ...children) {
  const drawn = ["svg", "g", "path", "line", "circle", "rect", "text", "title", "polygon"];
  const element = drawn.includes(tag)
    ? document.createElementNS(at("frame").namespaceURI, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  // one by one: a matrix has more cells than a call can have arguments
  for (const child of children.flat()) if (child !== null) element.append(child);
  return element;
}

// -- what is shown, and the address that says so ------------------------------------------------

const USUAL = { graph: data.graphs[0]?.name ?? "", chart: "stages", metric: "ap", sort: "", q: "",
                family: [], only: [], hide: [] };
let state = structuredClone(USUAL);

function recall() {
  const given = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  state = structuredClone(USUAL);
  for (const name of Object.keys(USUAL)) {
    if (given.has(name)) state[name] = Array.isArray(USUAL[name]) ? given.getAll(name) : given.get(name);
  }
  if (!GRAPHS.has(state.graph)) state.graph = USUAL.graph;
  if (!Object.hasOwn(data.metrics, state.metric)) state.metric = USUAL.metric;
  state.only = state.only.filter((name) => METHODS.has(name));
}

function change(changes) {
  Object.assign(state, changes);
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (Array.isArray(value)) value.forEach((one) => kept.append(name, one));
    else if (value !== USUAL[name]) kept.set(name, value);
  }
  try { history.replaceState(null, "", "#" + kept); } catch { /* a page without an address of its own */ }
  draw();
}

const toggled = (list, one) => (list.includes(one) ? list.filter((x) => x !== one) : [...list, one]);
const isolate = (name) => change({ only: toggled(state.only, name) });
const cellOf = (graph, name) => data.cells[graph]?.[name];
const dimmed = (name) => state.only.length > 0 && !state.only.includes(name);

function shownMethods() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  return data.methods.filter((method) => {
    const text = `${method.name} ${method.family} ${method.about}`.toLowerCase();
    return (!state.family.length || state.family.includes(method.family))
      && words.every((word) => text.includes(word));
  });
}

// -- how values are written -----------------------------------------------------------------------

function three(value) {
  const size = Math.abs(value);
  const places = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : value ? 4 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}
function bytes(value) {
  const unit = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]].find(([, scale]) => value >= 0.9995 * scale);
  return unit ? `${three(value / unit[1])} ${unit[0]}` : `${value.toFixed(0)} B`;
}
// toFixed rounds an exact half up, such as 0.25; here it goes to the even digit, as in every table
const fixed = (v, places) => (Math.abs(v * 2 ** (places + 1) % 2) === 1 ? 2 * Math.round(v * 10 ** places / 2) / 10 ** places : v).toFixed(places);
const WRITE = { point: (v) => fixed(v, 1).replace(/^-(0\.0$)?/, (sign, zero) => zero ?? "−"), share: (v) => fixed(v, 3), seconds: three, bytes };
const bare = (graph) => graph.split("/").pop().replace(/\.npz$/, "");
const plain = (graph) => (data.graphs.filter(({ name }) => bare(name) === bare(graph)).length > 1 ? graph : bare(graph));
const short = (name) => {
  const last = name.split(":").pop() || name;
  return last.length > 16 ? last.slice(0, 15) + "…" : last;
};

// -- a method's line and marker -------------------------------------------------------------------

const CORNERS = { s: [4, 45], "^": [3, 0], v: [3, 180], "<": [3, -90], ">": [3, 90], D: [4, 0], d: [4, 0, 0.62],
                  p: [5, 0], h: [6, 0], H: [6, 30], 8: [8, 22.5], P: [4, 0, 1, 0.42], X: [4, 45, 1, 0.42], "*": [5, 0, 1, 0.45] };

function outline(marker, x, y, r) {
  const [corners, turn, narrow = 1, star = 0] = CORNERS[marker] ?? [24, 0];
  const steps = star ? 2 * corners : corners;
  const radius = (corners === 3 || star ? 1.3 : corners === 4 ? 1.2 : 1) * r;
  return Array.from({ length: steps }, (_, i) => {
    const angle = (turn - 90) * Math.PI / 180 + 2 * Math.PI * i / steps;
    const far = radius * (star && i % 2 ? star : 1);
    return `${(x + narrow * far * Math.cos(angle)).toFixed(1)},${(y + far * Math.sin(angle)).toFixed(1)}`;
  }).join(" ");
}
function marker(style, x, y, r = 3.4) {
  const hue = `var(--hue-${style.hue})`;
  return make("polygon", { points: outline(style.marker, x, y, r), stroke: hue, "stroke-width": style.filled ? 0.8 : 1.4,
                           fill: style.filled ? hue : "var(--page)" });
}
function mark(method) {
  const style = method.style;
  return make("svg", { class: "mark", viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" },
    make("line", { x1: 0, x2: 24, y1: 6, y2: 6, stroke: `var(--hue-${style.hue})`, "stroke-width": style.width,
                   "stroke-dasharray": style.dashes.join(" ") || null }),
    marker(style, 12, 6, 3.6));
}

// -- the table ------------------------------------------------------------------------------------

function columns() {
  const [name, kind, best] = data.metrics[state.metric];
  const means = Object.entries(MEANS).map(([key, title]) => ({
    key, title, kind: "point", best: key === "rank" ? "low" : "high", of: (m) => m[key],
    hint: key === "rank" ? "Mean rank by AP over the graphs that most methods ran on; 1 is best"
                         : `${data.metrics[key][3]}; mean over these graphs` }));
  const graphs = data.graphs.map((graph) => ({
    key: `on ${graph.name}`, title: plain(graph.name), kind, best, graph: graph.name, hint: `${name} on ${graph.name}, ${graph.about}`,
    of: (m) => cellOf(graph.name, m.name)?.[state.metric]?.[0] ?? null }));
  // on how many graphs ours leads a method, and trails it; sorted by the difference
  const [ahead, behind] = [data.marks.leads[0], data.marks.trails[0]].map((sign) => new RegExp(`(\\d+)${sign}`));
  const against = { key: "against", title: `against ${data.ours}`, kind: "text", best: "low",
    hint: `On how many graphs ${data.ours} leads the method in a paired test on AP, is not told apart from it, and trails it`,
    of: (m) => (m.against ? m.against.match(ahead)[1] - m.against.match(behind)[1] : null) };
  return [...means, ...(data.methods.some((m) => m.against) ? [against] : []), ...graphs];
}

function verdict(graph, name) {
  // the mark of the paired test against ours, and the test in words; null without one
  const found = cellOf(graph, name)?.[`${state.metric} against`];
  if (!found || state.hide.includes("marks")) return null;
  const [word, difference, low, high, pairs, units] = found;
  const signed = (v) => `${v > 0 ? "+" : ""}${fixed(v, 1)}`.replace("-", "−");
  return { mark: data.marks[word][pairs < data.few ? 1 : 0],
           words: `${data.ours} is ${word === "undecided" ? "not told apart" : word === "leads" ? "ahead" : "behind"}: ${signed(difference)} [${signed(low)}, ${signed(high)}], ${pairs} pair${pairs === 1 ? "" : "s"} of runs, ${units} ${units === 1 ? "split and order of classes" : "splits or orders of classes"}` };
}

function compare(one, other, sign) {
  // two numbers or two texts; what is not there goes last, whichever way
  if (one === null || other === null) return (one === null) - (other === null);
  return sign * (typeof one === "string" ? one.localeCompare(other) : one - other);
}

function ordered(methods, all) {
  const wanted = state.sort.replace(/^-/, "");
  const column = [{ key: "name", best: "low", of: (m) => m.name }, ...all].find((one) => one.key === wanted);
  if (!column) return methods;
  const sign = (column.best === "high" ? -1 : 1) * (state.sort[0] === "-" ? -1 : 1);
  return [...methods].sort((a, b) => compare(column.of(a), column.of(b), sign));
}

function heading(key, best, title, hint, more) {
  const given = state.sort || "rank";
  const now = given.replace(/^-/, "") === key;
  const up = (best !== "high") !== (given[0] === "-");
  const turned = now && given[0] !== "-" ? `-${key}` : key;
  return make("th", { scope: "col", title: hint, "data-key": key, "aria-sort": now ? (up ? "ascending" : "descending") : null, ...more },
    make("button", { type: "button", onclick: () => change({ sort: turned === "rank" ? "" : turned }) }, title));
}

function drawTable(methods) {
  const all = columns();
  const shown = all.filter((column) => !state.hide.includes(column.key));
  for (const column of shown) {
    column.values = methods.map(column.of).filter((v) => v !== null);
    // bold is a claim: accuracy only where a paired test says so, means over graphs never
    const own = data.methods.filter((method) => eligible(method, column)).map(column.of).filter((v) => v !== null);
    const tested = ["ap", "micro"].includes(state.metric);
    column.top = column.graph && !tested && own.length > 1 ? Math[column.best === "low" ? "min" : "max"](...own) : null;
    column.marked = column.graph && methods.some((method) => verdict(column.graph, method.name));
    column.lead = tested && GRAPHS.get(column.graph)?.leads.includes(state.metric) ? data.ours : null;
  }
  const head = make("thead", {}, make("tr", {}, heading("name", "low", "method", "By name", {}),
    ...shown.map((c) => heading(c.key, c.best, c.title, c.hint, { class: c.graph ? "number graph" : "number" }))));
  const rows = ordered(methods, all);
  const bodies = [false, true].map((apart) => make("tbody", { class: apart ? "apart" : null },
    ...rows.filter((method) => method.apart === apart).map((method) => row(method, shown))));
  const none = make("tbody", {}, make("tr", {}, make("td", { class: "none", colspan: shown.length + 1 }, "No method of this name or family")));
  at("leaders").replaceChildren(head, ...(rows.length ? bodies.filter((body) => body.rows.length) : [none]));
  at("hint").textContent = `Columns of graphs: ${data.metrics[state.metric][3]}.`;
  const apart = rows.filter((method) => method.apart).length;
  const marked = rows.some((method) => data.graphs.some((graph) => verdict(graph.name, method.name)));
  const { leads, trails, undecided } = data.marks;
  at("under").textContent = [
    apart ? "Below the line, in italics: trained on every label again in each session, an upper reference without a rank." : "",
    marked ? `${leads[0]} ${data.ours} leads the method in a paired test at 95%, ${trails[0]} it trails, ${undecided[0]} undecided; ${leads[1]} ${trails[1]} from fewer than ${data.few} pairs of runs. Bold: ${data.ours} leads every class-incremental rival.` : "",
  ].join(" ").trim();
}

function eligible(method, column) {
  // who can be best: not with all labels, and of those that forget little only who has learned something
  const [own, least] = [method.name, "bare"].map((name) => cellOf(column.graph, name)?.ap[0] ?? 0);
  return !method.apart && (state.metric !== "af" || own >= least);
}

function row(method, shown) {
  const name = make("th", { scope: "row" }, make("button", { type: "button", class: "name", title: method.about,
    onclick: () => isolate(method.name) }, mark(method), make("span", { class: "label" }, method.name)));
  return make("tr", { class: state.only.includes(method.name) ? "chosen" : null, "data-method": method.name }, name,
    ...shown.map((column) => cell(method, column)));
}

function cell(method, column) {
  const value = column.of(method);
  if (value === null || value === undefined) {
    return make("td", { class: column.graph ? "number graph empty" : "number empty", title: column.graph ? `not run on ${column.graph}, or not measured` : "ran on too few graphs" }, "–");
  }
  if (column.kind === "text") return make("td", { class: "number", "data-key": value }, method.against);
  const text = WRITE[column.kind](value);
  const best = method.name === column.lead || (column.top !== null && text === WRITE[column.kind](column.top) && eligible(method, column));
  if (!column.graph) {
    const meter = make("span", { class: "meter", style: `--hue:var(--hue-${method.style.hue})`, "aria-hidden": "true" }, make("i", { style: `width:${value}%` }));
    const parts = column.key === "rank" ? [make("span", { class: "rank" }, text)] : [meter, text];
    return make("td", { class: "number", "data-key": value }, ...parts);
  }
  const found = cellOf(column.graph, method.name);
  const half = found[state.metric][1];
  const seeds = `${found.seeds} seed${found.seeds === 1 ? "" : "s"}`;
  const where = found.machine ?? GRAPHS.get(column.graph).machine;
  const title = `${method.name} on ${column.graph}: ${text}${half === null ? "" : ` ± ${WRITE[column.kind](half)}`}, ${seeds}, ${where}`;
  const test = verdict(column.graph, method.name);
  return make("td", { class: `number graph${best ? " best" : ""}`, title: test ? `${title}. ${test.words}` : title, "data-key": value, style: heat(value, column) },
    text, column.marked ? make("span", { class: "verdict" }, test?.mark ?? "") : null);
}

function heat(value, column) {
  const scale = column.kind === "seconds" || column.kind === "bytes" ? (v) => Math.log(Math.max(v, 1e-4)) : (v) => v;
  const [low, high] = [Math.min(...column.values), Math.max(...column.values)].map(scale);
  if (high === low) return null;
  const share = (scale(value) - low) / (high - low);
  const warm = Math.round(34 * (column.best === "low" ? 1 - share : share) ** 1.6);
  return `background:color-mix(in srgb,var(--heat) ${warm}%,var(--page))`;
}

// -- the chart ------------------------------------------------------------------------------------

function kindsOf(graph) {
  const has = (cell, kind) => (kind === "tradeoff" ? cell.seconds : cell[data.kinds[kind][1]]?.length);
  return Object.keys(data.kinds).filter((kind) => Object.values(data.cells[graph] ?? {}).some((cell) => has(cell, kind)));
}

function drawChart(methods) {
  const graph = state.graph;
  const kinds = kindsOf(graph);
  const kind = kinds.includes(state.chart) ? state.chart : kinds[0];
  at("kinds").replaceChildren(...kinds.map((key) => {
    const option = make("option", { value: key }, data.kinds[key][0]);
    option.selected = key === kind;
    return option;
  }));
  const present = methods.filter((method) => cellOf(graph, method.name));
  at("legend").classList.toggle("some", state.only.length > 0);
  at("legend").replaceChildren(...present.map((method) => make("button", { type: "button", title: method.about, "data-method": method.name,
    "aria-pressed": String(state.only.includes(method.name)), onclick: () => isolate(method.name) }, mark(method), short(method.name))));
  if (!kind) return;
  const about = GRAPHS.get(graph);
  at("caption").textContent = `${data.kinds[kind][5]} ${about.about}, ${about.machine}.`;
  if (kind === "matrix") drawMatrices(present, graph);
  else {
    const lines = series(kind, present, graph);
    if (lines.length) plot(kind, lines);
    else at("plot").replaceChildren();
  }
}

function series(kind, methods, graph) {
  const [, key, , , top] = data.kinds[kind];
  const found = [];
  for (const method of methods) {
    const cell = cellOf(graph, method.name);
    if (kind === "tradeoff") {
      if (cell.seconds) found.push({ method, points: [{ x: Math.max(cell.seconds[0], 1e-3), y: cell.ap[0], half: cell.ap[1] }] });
    } else if (cell[key]) {
      const [means, halves = [], xs] = cell[key];
      found.push({ method, points: means.map((y, i) => ({ x: xs ? xs[i] : i, y: top ? y : Math.max(y, 1e-3), half: halves[i] ?? null })) });
    }
  }
  return found;
}

function ticks(low, high, most) {
  for (const parts of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const part of parts) found.push(Number(`${part}e${power}`));
    }
    const inside = found.filter((tick) => tick >= low && tick <= high);
    if (inside.length <= most) return inside.length ? inside : [low];
  }
  return [low, high];
}

function scales(kind, lines, width, height) {
  const [, , , , top] = data.kinds[kind];
  const every = lines.flatMap((line) => line.points);
  const xs = every.map((point) => point.x);
  let [low, high] = [Math.min(...xs), Math.max(...xs)];
  const valued = ["steps", "gamma", "width"].includes(kind);
  const logX = kind === "tradeoff" || valued;
  if (kind === "curve") [low, high] = [0, 1];
  if (logX) [low, high] = [low / 1.25, high * 1.25];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const place = (value, a, b, log) => (log ? Math.log(value / a) / Math.log(b / a) : (value - a) / (b - a));
  // as much of the second axis as those that are not dimmed take
  const bright = lines.filter((line) => !dimmed(line.method.name));
  const ys = (bright.length ? bright : lines).flatMap((line) => line.points.flatMap((p) => [p.y - (p.half ?? 0), p.y + (p.half ?? 0)]));
  let [under, over] = [0, top];
  if (!top) [under, over] = [Math.min(...every.map((p) => p.y)) / 1.2, Math.max(...ys) * 1.2];
  if (top === 100) [under, over] = [Math.max(0, Math.floor((Math.min(...ys) - 2) / 10) * 10), Math.min(100, Math.ceil((Math.max(...ys) + 1) / 10) * 10)];
  const gap = over - under > 60 ? 20 : over - under > 20 ? 10 : 5;
  const step = Math.max(1, Math.ceil((high - low) / Math.max(4, width / 90)));
  const whole = Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, i) => Math.ceil(low) + i * step);
  return {
    x: (value) => width * place(value, low, high, logX),
    y: (value) => height * (1 - place(top ? value : Math.max(value, under), under, over, !top)),
    xTicks: kind === "tradeoff" ? ticks(low, high, width / 62) : valued ? [...new Set(xs)] : kind === "curve" ? [0, 0.25, 0.5, 0.75, 1] : whole.filter((t) => t <= high),
    yTicks: top === 100 ? Array.from({ length: Math.floor((over - under) / gap) + 1 }, (_, i) => under + i * gap)
      : top ? [0, 0.25, 0.5, 0.75, 1] : ticks(under, over, 7),
  };
}

function spread(wanted, gap, low, high) {
  // positions nearest to those wanted (ascending), a gap apart
  const clusters = [];
  for (const value of wanted) {
    let [mean, size] = [value, 1];
    while (clusters.length && mean - clusters.at(-1)[0] < gap * (size + clusters.at(-1)[1]) / 2 - 1e-9) {
      const [other, more] = clusters.pop();
      [mean, size] = [(mean * size + other * more) / (size + more), size + more];
    }
    clusters.push([mean, size]);
  }
  const spots = clusters.flatMap(([mean, size]) => Array.from({ length: size }, (_, i) => mean + gap * (i - (size - 1) / 2)));
  for (let i = spots.length - 1; i >= 0; i--) spots[i] = Math.min(spots[i], high - gap * (spots.length - 1 - i));
  for (let i = 0; i < spots.length; i++) spots[i] = Math.max(spots[i], low + gap * i, i ? spots[i - 1] + gap : low);
  return spots;
}

function plot(kind, lines) {
  const [, , xName, yName, top] = data.kinds[kind];
  const box = at("plot");
  const full = Math.max(box.clientWidth, 280);
  const [left, right, above, below] = [kind === "kept" ? 62 : 40, kind === "tradeoff" ? 16 : full < 480 ? 104 : 130, 22, 40];
  const tall = Math.max(full < 480 ? 330 : 470, kind === "tradeoff" ? 0 : 15 * lines.length + 70);
  const [width, height] = [full - left - right, tall - above - below];
  const { x, y, xTicks, yTicks } = scales(kind, lines, width, height);
  const write = kind === "kept" ? bytes : kind === "times" ? three : (v) => fixed(v, top === 1 ? 3 : 1);
  const tickText = kind === "kept" ? bytes : (v) => `${v}`;
  const area = make("g", { transform: `translate(${left} ${above})` });
  for (const tick of yTicks) {
    area.append(make("line", { class: "grid", x1: 0, x2: width, y1: y(tick), y2: y(tick) }),
      make("text", { x: -8, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of xTicks) area.append(make("text", { x: x(tick), y: height + 17, "text-anchor": "middle" }, `${tick}`));
  area.append(make("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
    make("text", { x: width, y: height + 34, "text-anchor": "end" }, xName + (kind === "tradeoff" ? " (logarithmic)" : "")),
    make("text", { x: -left, y: -10 }, yName + (top ? "" : ", logarithmic")));
  if (kind === "curve") area.append(make("line", { class: "guide", x1: x(0), x2: x(1), y1: y(0), y2: y(1) }));
  if (kind === "novelty") area.append(make("line", { class: "guide", x1: 0, x2: width, y1: y(0.5), y2: y(0.5) }));
  // those that are not dimmed come last, on top
  const stacked = [...lines].sort((a, b) => dimmed(b.method.name) - dimmed(a.method.name) || a.method.style.width - b.method.style.width);
  // what leaves the axes is cut off, but no marker at their edge
  for (const [side, size] of [["width", width], ["height", height]]) at("frame").setAttribute(side, size + 18);
  area.append(make("g", { "clip-path": "url(#axes)" }, ...stacked.map((line) => drawLine(line, x, y, write, xName, kind))));
  if (kind === "tradeoff") nameDots(area, lines, x, y, width, height);
  else nameEnds(area, lines, x, y, width, height);
  const image = make("svg", { viewBox: `0 0 ${full} ${tall}`, height: tall, role: "img", "aria-label": inWords(kind, lines, write) }, area);
  box.replaceChildren(image);
  if (kind !== "tradeoff") followPointer(image, box, area, lines, { x, write, left, height, xName });
}

function drawLine({ method, points }, x, y, write, xName, kind) {
  const style = method.style;
  const hue = `var(--hue-${style.hue})`;
  const group = make("g", { class: dimmed(method.name) ? "method dim" : "method", "data-method": method.name, onclick: () => isolate(method.name) });
  const banded = points.filter((point) => point.half !== null);
  if (state.only.includes(method.name) && banded.length > 1) {
    const edge = (sign, list) => list.map((p) => `${x(p.x).toFixed(1)},${y(p.y + sign * p.half).toFixed(1)}`);
    group.append(make("polygon", { points: [...edge(1, banded), ...edge(-1, [...banded].reverse())].join(" "), fill: hue, opacity: 0.14 }));
  }
  if (points.length > 1) {
    group.append(make("path", { class: "line", d: `M${points.map((p) => `${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("L")}`,
      stroke: hue, "stroke-width": style.width, "stroke-dasharray": style.dashes.join(" ") || null }));
  }
  const every = points.length > 15 ? Math.ceil(points.length / 7) : 1;
  const turn = data.methods.indexOf(method) % every;
  points.forEach((point, i) => {
    if (kind === "tradeoff" && point.half !== null) {
      group.append(make("line", { x1: x(point.x), x2: x(point.x), y1: y(point.y - point.half), y2: y(point.y + point.half), stroke: hue, opacity: 0.5 }));
    }
    if (i % every === turn) group.append(marker(style, x(point.x), y(point.y), kind === "tradeoff" ? 5 : 3.4));
    const half = point.half === null ? "" : ` ± ${write(point.half)}`;
    const place = kind === "tradeoff" ? `${three(point.x)} s` : `${xName} ${point.x}`;
    group.append(make("circle", { class: "spot", cx: x(point.x), cy: y(point.y), r: 7 }, make("title", {}, `${method.name}, ${place}: ${write(point.y)}${half}`)));
  });
  return group;
}

function nameEnds(area, lines, x, y, width, height) {
  const ends = lines.map((line) => ({ line, last: line.points.at(-1) })).sort((a, b) => y(a.last.y) - y(b.last.y));
  const inside = (value) => Math.min(Math.max(value, -9), height + 9);
  const spots = spread(ends.map(({ last }) => inside(y(last.y))), 15, 0, height + 20);
  ends.forEach(({ line, last }, i) => {
    const dim = dimmed(line.method.name) ? " dim" : "";
    const from = x(last.x);
    area.append(make("path", { class: `leader${dim}`, d: `M${from + 7} ${inside(y(last.y))}L${width + 16} ${spots[i]}` }),
      make("text", { class: `end${dim}`, x: width + 20, y: spots[i] + 4, onclick: () => isolate(line.method.name) }, short(line.method.name)));
  });
}

function nameDots(area, lines, x, y, width, height) {
  const dots = lines.map(({ points: [p] }) => [x(p.x), y(p.y)]);
  const taken = dots.map(([a, b]) => [a - 6, b - 6, a + 6, b + 6]);
  lines.forEach(({ method }, i) => {
    const [a, b] = dots[i];
    const name = short(method.name);
    const long = 6.9 * name.length;
    for (const [left, base] of [[a + 9, b + 4], [a - 9 - long, b + 4], [a - long / 2, b - 10], [a - long / 2, b + 19], [a + 8, b - 9], [a + 8, b + 16], [a - 8 - long, b - 9], [a - 8 - long, b + 16]]) {
      const room = [left, base - 11, left + long, base + 3];
      const free = room[0] > -6 && room[2] < width + 14 && room[1] > -6 && room[3] < height
        && taken.every((other, j) => j === i || room[2] < other[0] || room[0] > other[2] || room[3] < other[1] || room[1] > other[3]);
      if (!free) continue;
      taken.push(room);
      area.append(make("text", { class: `end${dimmed(method.name) ? " dim" : ""}`, x: left, y: base, onclick: () => isolate(method.name) }, name));
      break;
    }
  });
}

function followPointer(image, box, area, lines, { x, write, left, height, xName }) {
  const rule = make("line", { class: "guide", y1: 0, y2: height, visibility: "hidden" });
  const tip = make("div", { class: "tip", hidden: "" });
  area.append(rule);
  box.append(tip);
  const places = [...new Set(lines.flatMap((line) => line.points.map((point) => point.x)))];
  image.addEventListener("pointerleave", () => { tip.hidden = true; rule.setAttribute("visibility", "hidden"); });
  image.addEventListener("pointermove", (event) => {
    const frame = image.getBoundingClientRect();
    const pointer = event.clientX - frame.left - left;
    const near = places.reduce((a, b) => (Math.abs(x(b) - pointer) < Math.abs(x(a) - pointer) ? b : a));
    const found = lines.filter((line) => !dimmed(line.method.name)).map(({ method, points }) => ({ method, point: points.find((p) => p.x === near) }))
      .filter(({ point }) => point).sort((a, b) => b.point.y - a.point.y);
    tip.hidden = pointer < -left / 2 || pointer > x(Math.max(...places)) + 24 || !found.length;
    rule.setAttribute("visibility", tip.hidden ? "hidden" : "visible");
    if (tip.hidden) return;
    for (const end of ["x1", "x2"]) rule.setAttribute(end, x(near));
    tip.replaceChildren(make("b", {}, `${xName} ${near}`), ...found.slice(0, 10).map(({ method, point }) =>
      make("div", {}, mark(method), short(method.name), make("span", {}, write(point.y)))),
      found.length > 10 ? make("div", {}, `and ${found.length - 10} below`) : "");
    const aside = left + x(near) + 14;
    tip.style.left = `${aside + tip.offsetWidth > frame.width ? Math.max(0, left + x(near) - 14 - tip.offsetWidth) : aside}px`;
    tip.style.top = "26px";
  });
}

function inWords(kind, lines, write) {
  const last = (line) => line.points.at(-1).y;
  const best = [...lines].sort((a, b) => last(b) - last(a)).slice(0, 5);
  return `${data.kinds[kind][0]} on ${state.graph}; highest at the end: ${best.map((line) => `${line.method.name} ${write(last(line))}`).join("; ")}.`;
}

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function colour(percent) {
  const place = Math.min(Math.max(percent, 0), 99.99) / 25;
  const [a, b] = [VIRIDIS[Math.floor(place)], VIRIDIS[Math.floor(place) + 1]];
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * (place % 1))).join(" ")})`;
}

function drawMatrices(methods, graph) {
  at("plot").replaceChildren(make("div", { class: methods.length <= 6 ? "heats few" : "heats" }, ...methods.map((method) => {
    const matrix = cellOf(graph, method.name).matrix;
    const size = matrix.length;
    const cells = matrix.flatMap((line, t) => line.map((value, i) => make("rect", { x: i, y: t, width: 1.02, height: 1.02, fill: colour(value) },
      make("title", {}, `${method.name}, session ${i} after session ${t}: ${value} %`))));
    if (size <= 7) {
      matrix.forEach((line, t) => line.forEach((value, i) => cells.push(make("text", { x: i + 0.5, y: t + 0.62, "text-anchor": "middle",
        style: `font-size:.34px;fill:${value > 45 ? "#000" : "#fff"}`, "aria-hidden": "true" }, `${value}`))));
    }
    return make("figure", { class: dimmed(method.name) ? "dim" : null }, short(method.name),
      make("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `Accuracy matrix of ${method.name} on ${graph}` }, cells));
  })));
}

// -- the controls ---------------------------------------------------------------------------------

function drawControls() {
  if (at("search").value !== state.q) at("search").value = state.q;
  at("families").replaceChildren(...Object.entries(data.families).map(([family, hue]) => make("button", { type: "button", "data-family": family,
    "aria-pressed": String(state.family.includes(family)), onclick: () => change({ family: toggled(state.family, family) }) },
    make("i", { style: `--hue:var(--hue-${hue})` }), family)));
  at("metrics").replaceChildren(...Object.entries(data.metrics).filter(([key]) => Object.values(data.cells).some((cells) => Object.values(cells).some((c) => c[key])))
    .map(([key, [name, , , hint]]) => make("button", { type: "button", title: hint, "data-metric": key, "aria-pressed": String(key === state.metric),
      onclick: () => change({ metric: key, sort: state.sort.includes("on ") ? "" : state.sort }) }, name)));
  at("graphs").replaceChildren(...data.graphs.map(({ name, about }) => make("button", { type: "button", role: "tab", title: about, "data-graph": name,
    "aria-selected": String(name === state.graph), onclick: () => change({ graph: name }) }, plain(name))));
  const marks = { key: "marks", title: `marks ${Object.values(data.marks).map(([sign]) => sign).join("")}` };
  at("choices").replaceChildren(...[...columns(), marks].map(({ key, title }) => {
    const box = make("input", { type: "checkbox", "data-key": key, onchange: () => change({ hide: toggled(state.hide, key) }) });
    box.checked = !state.hide.includes(key);
    return make("label", {}, box, " ", title);
  }));
  at("reset").hidden = !["q", "family", "only", "hide"].some((name) => state[name].length);
}

function draw() {
  const focused = document.activeElement?.closest("#bar, #board") && document.activeElement;
  const place = focused && [focused.closest("[id]")?.id, [...(focused.closest("[id]")?.querySelectorAll("button, input") ?? [])].indexOf(focused)];
  const methods = shownMethods();
  drawControls();
  drawTable(methods);
  drawChart(methods);
  // what was drawn anew has lost the keyboard
  if (focused && !focused.isConnected) at(place[0])?.querySelectorAll("button, input")[place[1]]?.focus();
}

if (data.graphs.length) {
  at("bar").hidden = false;
  at("search").addEventListener("input", () => change({ q: at("search").value }));
  at("kinds").addEventListener("change", () => change({ chart: at("kinds").value }));
  at("reset").addEventListener("click", () => change({ q: "", family: [], only: [], hide: [] }));
  addEventListener("hashchange", () => { recall(); draw(); });
  addEventListener("keydown", (event) => { if (event.key === "Escape") { at("columns").open = false; change({ only: [] }); } });
  recall();
  draw();
  let before = at("plot").clientWidth;
  new ResizeObserver(() => {
    if (at("plot").clientWidth === before) return;
    before = at("plot").clientWidth;
    drawChart(shownMethods());
  }).observe(at("plot"));
} else at("board").hidden = true;
