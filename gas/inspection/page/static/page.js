// The page of gas. Texts of others only ever become text nodes: there is no HTML from data anywhere.

const $ = (id) => document.getElementById(id);
const main = $("main");

/** Make an element. Attributes that are functions become listeners, `null` and `false` are left out. */
function el(tag, attributes = {}, ...content) {
  const svg = ["svg", "path"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...content.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** Isolate a text of others, so that letters that run from right to left do not reorder what stands beside it. */
const own = (text) => el("bdi", {}, String(text));

// Amounts

const isBytes = (resource) => resource.startsWith("memory");
function gigabytes(amount) {
  const number = amount / 1e9;
  return amount === 0 || Math.abs(number) >= 0.05 ? number.toFixed(1) : String(Number(number.toPrecision(2)));
}
const amount = (resource, value) => (isBytes(resource) ? `${gigabytes(value)} GB` : value.toLocaleString("en"));
const percent = (share) => `${Math.round(share * 100)}%`;
const inWords = (amounts) => Object.entries(amounts).map(([name, value]) => `${amount(name, value)} ${name === "tiles" && value === 1 ? "tile" : name}`).join(", ");

/** The share of a card that is used, by its own kind of measurement; null where nothing is measured. The largest if no resource is named. */
function usedShare(card, at) {
  if (at < 0) return board.resources.map((_, each) => usedShare(card, each)).reduce((most, share) => (share === null ? most : Math.max(most ?? 0, share)), null);
  const resource = board.resources[at] ?? "";
  if (isBytes(resource)) return card.used < 0 || !card.capacity[at] ? null : card.used / card.capacity[at];
  if (resource === "millicores") return card.busy < 0 ? null : card.busy / 100;
  return null;
}
const isWithout = (card, at) => !["unhealthy", "gone"].includes(card.health) && !card.capacity[at] && !card.booked[at];
const bookedShare = (card, at) => (card.capacity[at] ? card.booked[at] / card.capacity[at] : card.booked[at] ? 1 : 0);

/** The resource of a card, or of the sums of a node, of which the largest share is booked. */
const filled = (card, at) => (card.capacity[at] || card.booked[at] ? bookedShare(card, at) : -1);
const fullest = (card) => card.capacity.reduce((best, _, at) => (filled(card, at) > filled(card, best) ? at : best), 0);
/** The position of the resource that is drawn; -1 for the fullest of each card. */
const chosenResource = () => board.resources.indexOf(choices.resource);
const drawn = (card) => (chosenResource() < 0 ? fullest(card) : chosenResource());

// The address: a view, the names it needs, and everything that is chosen there

const DEFAULTS = { search: "", resource: "", show: "both", only: "all", size: "auto", sort: "", page: "1" };
const choices = { ...DEFAULTS };

/** Take over what the address says. Returns the view and the names. */
function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  for (const name of Object.keys(DEFAULTS)) choices[name] = given.get(name) ?? DEFAULTS[name];
  return path.split("/");
}
function address(path, chosen) {
  const query = new URLSearchParams(Object.entries(chosen).filter(([name, value]) => value !== DEFAULTS[name])).toString();
  return query ? `${path}?${query}` : path;
}
function choose(changed) {
  Object.assign(choices, { page: DEFAULTS.page }, changed);
  history.replaceState(null, "", address(location.hash.split("?")[0] || "#/map", choices));
  for (const link of document.querySelectorAll("nav a[href^='#']")) link.href = address(link.getAttribute("href").split("?")[0], { search: choices.search });
}

// The board: what the server sends of every node

const board = { name: "", version: 0, resources: [], models: [], healths: [], states: [], nodes: new Map(), sorted: [] };
const collator = new Intl.Collator("en", { numeric: true });
let state = { trouble: "", notes: [], waiting: 0, suspended: 0, changes: -1 };

function read([name, nodeState, cards]) {
  return {
    name,
    state: board.states[nodeState],
    cards: cards.map(([number, health, model, pods, used, busy, ...amounts]) => ({
      name: `card${number}`,
      health: board.healths[health],
      model: board.models[model] ?? "",
      pods,
      used,
      busy,
      booked: amounts.filter((_, at) => at % 2 === 0),
      capacity: amounts.filter((_, at) => at % 2 === 1),
    })),
  };
}

function takeAll(sent) {
  Object.assign(board, {
    name: sent.board, version: sent.version, resources: sent.resources,
    models: sent.models, healths: sent.healths, states: sent.states,
  });
  board.nodes = new Map(sent.nodes.map((each) => [each[0], read(each)]));
  board.sorted = [...board.nodes.keys()]; // as sent: in the order that people expect
}

/** Take in changes. Returns the names of changed nodes, and whether nodes came or went. */
function takePart(sent) {
  board.version = sent.version;
  if (sent.models) board.models = sent.models;
  let isNewList = false;
  for (const name of sent.gone) isNewList = board.nodes.delete(name) || isNewList;
  for (const each of sent.nodes) {
    isNewList = isNewList || !board.nodes.has(each[0]);
    board.nodes.set(each[0], read(each));
  }
  if (isNewList) board.sorted = [...board.nodes.keys()].sort(collator.compare);
  return { names: sent.nodes.map((each) => each[0]), isNewList };
}

// Connection

let stream = null;
let isBeginning = false;

async function fetchJson(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const response = await fetch(`data/${path}${query ? `?${query}` : ""}`, { signal });
  if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
  return response.json();
}

async function begin() {
  if (isBeginning) return;
  isBeginning = true;
  stream?.close();
  for (;;) {
    try {
      takeAll(await fetchJson("cluster"));
      break;
    } catch (error) {
      showLive(false);
      showTrouble(error.message);
      await new Promise((go) => setTimeout(go, 2000));
    }
  }
  isBeginning = false;
  follow();
  showTrouble("");
  showTotals();
  readPast();
  route();
  performance.mark("shown");
}

function follow() {
  stream = new EventSource(`data/changes?after=${encodeURIComponent(`${board.name}@${board.version}`)}`);
  stream.onopen = () => showLive(true);
  stream.onerror = () => {
    showLive(false);
    if (stream.readyState === EventSource.CLOSED) setTimeout(begin, 2000);
  };
  stream.addEventListener("anew", begin);
  stream.addEventListener("part", (event) => {
    const changed = takePart(JSON.parse(event.data));
    showTotals();
    view?.changed?.(changed);
  });
  stream.addEventListener("state", (event) => {
    const before = state;
    state = JSON.parse(event.data);
    showState();
    if (state.changes !== before.changes) refreshSoon();
  });
}

function showLive(isLive) {
  $("live").classList.toggle("on", isLive);
  setText($("live"), isLive ? "live" : "reconnecting");
}
function showTrouble(text) {
  $("trouble").hidden = !text;
  setText($("trouble"), text ? `This may be out of date: ${text}` : "");
}
function showState() {
  showTrouble(state.trouble);
  setText($("notes"), state.notes.join(" · "));
  $("waiting-count").hidden = !state.waiting;
  setText($("waiting-count"), String(state.waiting));
  $("grafana").hidden = !state.grafana;
  $("grafana").href = `${state.grafana}/d/gas`;
  showTitle();
  showTotals();
}
const showTitle = () => { document.title = [state.waiting ? `(${state.waiting})` : "", view?.title ?? "", "· gas"].filter(Boolean).join(" "); };
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showTotals() {
  const sums = board.resources.map(() => [0, 0]);
  let cards = 0, used = 0, usedOf = 0, isMeasured = false, bad = 0, idle = 0;
  const memory = board.resources.findIndex(isBytes);
  for (const node of board.nodes.values()) {
    bad += needsAttention(node);
    for (const card of node.cards) {
      cards += 1;
      idle += card.health === "ok" && card.pods === 0;
      card.booked.forEach((value, at) => { sums[at][0] += value; sums[at][1] += card.capacity[at]; });
      if (card.used >= 0) { isMeasured = true; used += card.used; }
      if (memory >= 0) usedOf += card.capacity[memory];
    }
  }
  board.isMeasured = isMeasured;
  // Each tile: its title, its links (address, number, words), and what it was in the last hours, with the form of that.
  const tiles = [["Nodes", [["#/nodes", count(board.nodes.size), ""]]], ["Cards", [["#/nodes?only=idle", count(cards), `${count(idle)} idle`]]]];
  board.resources.forEach((resource, at) => {
    const [booked, capacity] = sums[at];
    if (!capacity || !(isBytes(resource) || resource === "millicores")) return;
    const text = isBytes(resource) ? `${short(booked)} of ${short(capacity)}` : `${(booked / 1000).toFixed(1)} of ${count(capacity / 1000)} cards`;
    tiles.push([`${resource} booked`, [[address("#/map", { resource, show: "booked" }), percent(booked / capacity), text]], past.map((sample) => sample.booked[resource] ?? 0), percent]);
  });
  if (isMeasured && usedOf) tiles.push(["Memory used", [["#/map?show=used", percent(used / usedOf), short(used)]]]);
  tiles.push(["Need attention", [["#/nodes?only=attention", count(bad), bad === 1 ? "node" : "nodes"], ["#/waiting", count(state.waiting), state.waiting === 1 ? "waiting pod" : "waiting pods"], ...(state.suspended ? [["#/waiting", count(state.suspended), "suspended"]] : [])], past.map((sample) => sample.waiting), count]);
  sync($("totals"), tiles, ([title]) => title, ([title, links, line, form]) =>
    el("div", { class: title === "Need attention" && bad + state.waiting ? "bad" : null }, el("dt", {}, title),
      links.map(([href, value, text]) => el("dd", {}, el("a", { href, "aria-label": `${title}: ${value} ${text}`.trim() }, value, " ", el("small", {}, text)))),
      line?.length > 1 ? el("dd", { class: "past" }, lineChart(line, form)) : null));
}
const count = (number) => number.toLocaleString("en");
const short = (bytes) => (bytes >= 1e12 ? `${(bytes / 1e12).toFixed(1)} TB` : `${(bytes / 1e9).toFixed(0)} GB`);

/** How full the cluster was and how many pods waited, sampled by the server. */
let past = [], pastSeconds = 60;
async function readPast() {
  try {
    ({ samples: past, seconds: pastSeconds } = await fetchJson("history"));
    showTotals();
  } catch { /* the next one comes soon */ }
}
setInterval(() => { if (!document.hidden) readPast(); }, 60000);

/** Draw amounts over time, from 0 to 1 or to the largest, with the smallest and the largest in words. */
function lineChart(amounts, form) {
  const [low, high] = [Math.min(...amounts), Math.max(...amounts)];
  const points = amounts.map((each, at) => `${(100 * at / (amounts.length - 1)).toFixed(1)} ${(19 - 18 * each / Math.max(high, 1)).toFixed(1)}`);
  const range = form(low) === form(high) ? `${form(low)} for` : `${form(low)} to ${form(high)} in`;
  return [el("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, el("path", { d: `M ${points.join(" L ")}` })), `${range} ${ago((amounts.length - 1) * pastSeconds)}`];
}

/** Make the children of an element those of a list. Only children whose item has changed are made anew. */
function sync(parent, items, key, make) {
  const there = new Map([...parent.children].map((each) => [each.dataset.key, each]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    const content = JSON.stringify(item);
    let child = there.get(name);
    there.delete(name);
    if (!child || child.content !== content) {
      const made = make(item);
      made.dataset.key = name;
      made.content = content;
      if (child) {
        const focused = child.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        if (child === at) at = made;
        child.replaceWith(made);
        if (focused !== null) [...made.querySelectorAll("a")].find((each) => each.getAttribute("href") === focused)?.focus();
      }
      child = made;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const gone of there.values()) gone.remove();
}

// Parts that several views use

const nodeLink = (name) => el("a", { href: `#/node/${encodeURIComponent(name)}` }, own(name));
const podPath = (namespace, name) => `#/pod/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
function podLink(key) {
  const [namespace, name] = [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];
  return el("a", { href: podPath(namespace, name) }, own(key));
}
const KINDS = {
  ok: "good", ready: "good", Running: "good", unhealthy: "bad", gone: "bad", "not ready": "bad", Failed: "bad",
  disabled: "closed", descheduled: "closed", cordoned: "warn", Waiting: "warn", Terminating: "warn",
};
const badge = (text) => el("span", { class: `badge ${KINDS[text] ?? "plain"}` }, text);
function bar(kind, share, text) {
  const filled = el("span", { class: `is-${kind}` });
  filled.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
  return el("div", { class: share > 1 ? "bar over" : "bar" }, el("div", { class: "track" }, filled), el("span", { class: "text" }, text));
}
const gaugeBar = (resource, { booked, capacity }) =>
  bar("booked", capacity ? booked / capacity : booked ? 2 : 0, isBytes(resource) ? `${gigabytes(booked)}/${gigabytes(capacity)} GB` : `${booked}/${capacity}`);
function ago(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.max(Math.round(seconds), 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}
const seconds = (time) => (typeof time === "string" ? Date.parse(time) / 1000 : time);
const since = (time) => (time === null ? "" : ago(Date.now() / 1000 - seconds(time)));
const moment = (time) => new Date(seconds(time) * 1000).toLocaleString();
/** How long ago something was, kept up to date, with the time itself when pointed at. */
const age = (time) => (time === null ? "" : el("time", { datetime: new Date(seconds(time) * 1000).toISOString(), title: moment(time) }, since(time)));
setInterval(() => { for (const each of document.querySelectorAll("time")) setText(each, since(each.dateTime)); }, 10000);

/** A command for the terminal, with a button that copies it. */
function command(text) {
  const code = el("code", {}, text);
  const copy = el("button", { type: "button", click: async () => {
    getSelection().selectAllChildren(code); // where a browser lets a page not copy, the user can
    try { await navigator.clipboard.writeText(text); setText(copy, "Copied"); } catch { setText(copy, "Selected"); }
  } }, "Copy");
  return el("p", { class: "command" }, code, copy);
}
const grafanaLink = (name, value) => (state.grafana ? el("a", { href: `${state.grafana}/d/gas?var-${name}=${encodeURIComponent(value)}`, rel: "noreferrer" }, "Grafana") : null);
const announce = (text) => setText($("announcer"), text);

/**
 * A table that a view keeps: `show` draws rows, and draws again only those that have changed. Columns with a `sort` have
 * a button, which puts that name into the address and calls `again`; `value` is what rows are sorted by, here or by the server.
 */
function table(caption, columns, key, again) {
  const body = el("tbody");
  const head = columns.map((column) => {
    const [first, other] = column.number ? [`-${column.sort}`, column.sort] : [column.sort, `-${column.sort}`];
    const turn = () => { choose({ sort: choices.sort === first ? other : first }); mark(); again(); };
    return el("th", { scope: "col", class: column.number ? "number" : null }, column.sort ? el("button", { type: "button", click: turn }, column.title) : column.title);
  });
  const made = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, head)), body));
  const mark = () => columns.forEach((column, at) => {
    if (column.sort && column.sort === name()) head[at].setAttribute("aria-sort", sign() < 0 ? "descending" : "ascending");
    else head[at].removeAttribute("aria-sort");
  });
  const [name, sign] = [() => choices.sort.replace(/^-/, ""), () => (choices.sort.startsWith("-") ? -1 : 1)];
  return {
    element: made,
    sorted(rows) {
      const value = columns.find((column) => column.sort && column.sort === name())?.value;
      if (!value) return rows;
      const has = (row) => (value(row) === null ? 1 : 0); // rows without a value come last
      const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
      return [...rows].sort((a, b) => has(a) - has(b) || (has(a) ? 0 : sign() * compare(value(a), value(b))));
    },
    show(rows) {
      mark();
      sync(body, rows, key, (row) => el("tr", {}, columns.map((column) =>
        el("td", { class: column.number ? "number" : column.class ?? null, "data-title": column.title }, column.cell(row)))));
    },
  };
}

// Views. Each has `show()`, and may have `changed()` for changes of the board and `refresh()` for its document.

let view = null;
let refreshing = null, isOld = false;
let refreshedAt = 0;

/** Fetch the document again, but never before the last one has arrived, however long that takes. */
function refreshSoon() {
  isOld = true;
  if (!view?.refresh || refreshing) return;
  refreshing = setTimeout(async () => {
    isOld = false;
    refreshedAt = Date.now();
    if (!document.hidden) await view?.refresh?.();
    refreshing = null;
    if (isOld) refreshSoon();
  }, Math.max(refreshedAt + 2000 - Date.now(), 50));
}
document.addEventListener("visibilitychange", refreshSoon);

const search = $("search");
const words = () => choices.search.toLowerCase();
const needsAttention = (node) => node.state !== "ready" || node.cards.some((card) => card.health !== "ok");

function matches(node) {
  const text = words();
  if (text && !node.name.toLowerCase().includes(text) && !node.cards.some((card) => card.model.toLowerCase().includes(text))) return false;
  switch (choices.only) {
    case "attention": return needsAttention(node);
    case "idle": return node.cards.some((card) => card.health === "ok" && card.pods === 0);
    case "full": return node.cards.some((card) => bookedShare(card, drawn(card)) >= 0.9);
    case "unused": return node.cards.some((card) => (chosenResource() < 0 ? board.resources.map((_, at) => at) : [chosenResource()])
      .some((at) => (usedShare(card, at) ?? 1) + 0.25 < bookedShare(card, at)));
    default: return true;
  }
}

function choice(title, name, options, chosen) {
  if (!options.some(([value]) => value === choices[name])) choices[name] = DEFAULTS[name];
  const made = el("select", { change: () => { choose({ [name]: made.value }); chosen(); } },
    options.map(([value, text]) => el("option", { value }, text)));
  made.value = choices[name];
  return el("label", {}, title, made);
}
function nodeTools(chosen, ...more) {
  const having = board.resources.filter((_, at) => [...board.nodes.values()].some((node) => node.cards.some((card) => card.capacity[at])));
  return el("div", { class: "tools" },
    choice("Resource", "resource", [["", "the fullest of each card"], ...having.map((name) => [name, name])], chosen),
    choice("Nodes", "only", [["all", "all"], ["attention", "that need attention"], ["idle", "with an idle card"], ["full", "with a card over 90%"], ["unused", "with a booking that is not used"]], chosen),
    ...more);
}

// The map

const CLOSED = { unhealthy: "unhealthy, as its plugin reports", gone: "gone from its node", disabled: "disabled by a label or annotation", descheduled: "descheduled by a label" };
const LEVELS = [[3, 6], [5, 9], [8, 14], [14, 24], [26, 40], [40, 60], [64, 96]];
const BARS_FROM = 14;
const LABELS_FROM = 24;
const PER_ROW = 8;

function mapView() {
  const canvas = el("canvas", {
    tabindex: "0", role: "application", "aria-roledescription": "map of cards",
    "aria-label": "Map of all cards. Arrow keys move from card to card, Enter opens the node. The view Nodes has the same as a table.",
  });
  const spacer = el("div", { class: "spacer" });
  const box = el("div", { class: "map" }, canvas, spacer);
  const tip = el("div", { class: "tip", hidden: true });
  const shown = el("span", { class: "quiet" });
  const legend = el("div", { class: "legend" });
  const context = canvas.getContext("2d", { alpha: false });
  let names = [], level = 0, columns = 1, perRow = 1, rows = 1, block = [1, 1], width = 0, height = 0, colours = {}, at = null;

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(["panel", "empty", "booked", "used", "bad", "closed", "ink", "quiet", "focus"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const part = (name, at) => parseInt(colours[name].slice(1 + 2 * at, 3 + 2 * at), 16);
    const mix = (name) => Array.from({ length: 11 }, (_, step) =>
      `rgb(${[0, 1, 2].map((at) => Math.round(part("empty", at) + (part(name, at) - part("empty", at)) * step / 10)).join(" ")})`);
    colours.ramp = { booked: mix("booked"), used: mix("used") };
  }

  function measure(one) {
    const [w, h] = LEVELS[one];
    const label = h >= LABELS_FROM ? 17 : 0;
    const most = Math.max(1, ...names.map((name) => board.nodes.get(name).cards.length));
    const across = Math.min(most, PER_ROW), down = Math.ceil(most / PER_ROW);
    const gap = h >= BARS_FROM ? 2 : 1;
    const sides = [Math.max(across * (w + gap), label ? 92 : 0) + (h >= BARS_FROM ? 12 : h >= 9 ? 5 : 3), down * (h + gap) + label + (h >= BARS_FROM ? 10 : 3)];
    const fit = Math.max(1, Math.floor((width - 16) / sides[0]));
    return { across, gap, label, sides, fit, lines: Math.ceil(names.length / fit) };
  }
  let measured = null, legendIsFor = null;

  function layOut() {
    names = board.sorted.filter((name) => matches(board.nodes.get(name)));
    width = box.clientWidth;
    const visible = Math.max(220, innerHeight - box.getBoundingClientRect().top - scrollY - 48);
    level = Number(choices.size);
    if (choices.size === "auto") {
      level = LEVELS.length - 1;
      while (level > 0 && measure(level).lines * measure(level).sides[1] + 16 > visible) level -= 1;
    }
    measured = measure(level);
    block = measured.sides; columns = measured.fit; rows = measured.lines; perRow = measured.across;
    const total = Math.max(rows * block[1] + 16, 64); // with room for a sentence
    height = Math.min(total, visible);
    box.style.height = `${height + 2}px`;
    spacer.style.height = `${total}px`;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    setText(shown, !board.nodes.size ? "No node has cards." : names.length === board.nodes.size ? "" : `${names.length.toLocaleString("en")} of ${board.nodes.size.toLocaleString("en")} nodes`);
    drawAll();
  }

  function drawAll() {
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, width, height);
    const first = Math.max(0, Math.floor((box.scrollTop - 8) / block[1]) * columns);
    const last = Math.min(names.length, (Math.floor((box.scrollTop + height) / block[1]) + 1) * columns);
    for (let index = first; index < last; index += 1) drawNode(index);
    if (!names.length) {
      context.fillStyle = colours.quiet;
      context.font = "15px system-ui, sans-serif";
      context.fillText(board.nodes.size ? "No node matches." : "No node of the cluster has a known GPU card.", 16, 40);
    }
  }

  const place = (index) => [8 + (index % columns) * block[0], 8 + Math.floor(index / columns) * block[1] - box.scrollTop];

  function drawNode(index) {
    const [x, y] = place(index);
    if (y + block[1] < 0 || y > height) return;
    const node = board.nodes.get(names[index]);
    const [w, h] = LEVELS[level];
    context.fillStyle = colours.panel;
    context.fillRect(x, y, block[0], block[1]);
    if (measured.label) {
      context.fillStyle = node.state === "ready" ? colours.ink : colours.bad;
      context.font = "12px system-ui, sans-serif";
      context.fillText(cut(node.name, block[0] - 12), x, y + 11);
    }
    node.cards.forEach((card, number) => {
      drawCard(card, x + (number % perRow) * (w + measured.gap), y + measured.label + Math.floor(number / perRow) * (h + measured.gap), w, h);
    });
    if (at && at.index === index && document.activeElement === canvas) {
      context.strokeStyle = colours.focus;
      context.lineWidth = 2;
      context.strokeRect(x + (at.card % perRow) * (w + measured.gap) - 1, y + measured.label + Math.floor(at.card / perRow) * (h + measured.gap) - 1, w + 2, h + 2);
    }
  }

  function cut(text, most) {
    if (context.measureText(text).width <= most) return text;
    let end = text.length;
    while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > most) end = Math.min(end - 1, Math.ceil(end * 0.85));
    return `${text.slice(0, end)}…`;
  }

  function drawCard(card, x, y, w, h) {
    const closed = card.health === "disabled" || card.health === "descheduled";
    const used = choices.show === "booked" ? null : usedShare(card, chosenResource());
    if (card.health !== "ok" && !closed) {
      context.fillStyle = colours.bad;
      context.fillRect(x, y, w, h);
      if (w >= 8) {
        context.strokeStyle = colours.panel;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x + 2, y + 2); context.lineTo(x + w - 2, y + h - 2);
        context.moveTo(x + w - 2, y + 2); context.lineTo(x + 2, y + h - 2);
        context.stroke();
      }
      return;
    }
    if (isWithout(card, drawn(card))) {
      context.fillStyle = colours.empty;
      context.fillRect(x, y, w, h);
      context.fillStyle = colours.panel;
      context.fillRect(x + 1, y + 1, w - 2, h - 2);
    } else if (choices.show === "used") drawPart("used", used ?? 0, x, y, w, h);
    else if (used === null) drawPart("booked", bookedShare(card, drawn(card)), x, y, w, h);
    else {
      const left = Math.ceil(w / 2);
      drawPart("booked", bookedShare(card, drawn(card)), x, y, left, h);
      drawPart("used", used, x + left, y, w - left, h);
    }
    if (closed) {
      context.fillStyle = colours.closed;
      context.fillRect(x, y, w, Math.max(2, Math.round(h / 6)));
    }
  }

  function drawPart(kind, share, x, y, w, h) {
    const part = Math.min(Math.max(share, 0), 1);
    if (h < BARS_FROM) {
      context.fillStyle = colours.ramp[kind][part > 0 ? Math.max(1, Math.round(part * 10)) : 0];
      context.fillRect(x, y, w, h);
      return;
    }
    context.fillStyle = colours.empty;
    context.fillRect(x, y, w, h);
    const filled = part > 0 ? Math.max(1, Math.round(part * h)) : 0;
    context.fillStyle = colours[kind];
    context.fillRect(x, y + h - filled, w, filled);
  }

  function find(event) {
    const rect = canvas.getBoundingClientRect();
    const x = event.clientX - rect.left - 8, y = event.clientY - rect.top - 8 + box.scrollTop;
    const column = Math.floor(x / block[0]), line = Math.floor(y / block[1]);
    const index = line * columns + column;
    if (x < 0 || y < 0 || column >= columns || index >= names.length) return null;
    const [w, h] = LEVELS[level];
    const inX = Math.floor((x - column * block[0]) / (w + measured.gap));
    const inY = Math.floor((y - line * block[1] - measured.label) / (h + measured.gap));
    const cards = board.nodes.get(names[index]).cards;
    const card = Math.max(inY, 0) * perRow + Math.min(inX, perRow - 1);
    return { index, card: Math.min(Math.max(card, 0), cards.length - 1), isCard: inY >= 0 && inX < perRow && card < cards.length };
  }

  function lines(node, card) {
    const found = board.resources.map((resource, at) => card.capacity[at] || card.booked[at]
      ? `${resource}: ${isBytes(resource) ? `${gigabytes(card.booked[at])} of ${gigabytes(card.capacity[at])} GB` : `${card.booked[at]} of ${card.capacity[at]}`} booked${chosenResource() < 0 && at === fullest(card) && card.booked[at] ? ", the fullest" : ""}` : "").filter(Boolean);
    if (card.used >= 0) found.push(`about ${gigabytes(card.used)} GB used`);
    if (card.busy >= 0) found.push(`busy ${card.busy}%`);
    found.push(card.pods === 1 ? "1 pod" : `${card.pods} pods`);
    if (card.health !== "ok") found.push(CLOSED[card.health]);
    if (node.state !== "ready") found.push(`node ${node.state}`);
    if (card.model) found.push(card.model);
    return found;
  }

  function showTip(event) {
    const found = find(event);
    tip.hidden = !found;
    if (!found) return;
    const node = board.nodes.get(names[found.index]);
    const card = node.cards[found.card];
    tip.replaceChildren(el("b", {}, own(node.name), ` ${card.name}`), ...lines(node, card).map((text) => el("div", {}, own(text))));
    const right = event.clientX + 16 + 260 > innerWidth;
    tip.style.left = right ? "" : `${event.clientX + 16}px`;
    tip.style.right = right ? `${innerWidth - event.clientX + 12}px` : "";
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  }

  function move(step) {
    if (!names.length) return;
    const before = at;
    at = at && at.index < names.length ? { ...at } : { index: 0, card: 0 };
    if (before) step();
    at.index = Math.min(Math.max(at.index, 0), names.length - 1);
    const node = board.nodes.get(names[at.index]);
    at.card = Math.min(Math.max(at.card, 0), node.cards.length - 1);
    const top = Math.floor(at.index / columns) * block[1];
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + block[1] + 16 > box.scrollTop + height) box.scrollTop = top + block[1] + 16 - height;
    if (before) drawNode(Math.min(before.index, names.length - 1));
    drawNode(at.index);
    announce(`${node.name} ${node.cards[at.card].name}: ${lines(node, node.cards[at.card]).join(", ")}`);
  }
  const KEYS = {
    ArrowRight: () => { const cards = board.nodes.get(names[at.index]).cards.length; if (at.card + 1 < cards) at.card += 1; else if (at.index + 1 < names.length) { at.index += 1; at.card = 0; } },
    ArrowLeft: () => { if (at.card > 0) at.card -= 1; else if (at.index > 0) { at.index -= 1; at.card = board.nodes.get(names[at.index]).cards.length - 1; } },
    ArrowDown: () => { if (at.index + columns < names.length) at.index += columns; },
    ArrowUp: () => { if (at.index >= columns) at.index -= columns; },
    PageDown: () => { at.index += columns * Math.max(1, Math.floor(height / block[1])); },
    PageUp: () => { at.index -= columns * Math.max(1, Math.floor(height / block[1])); },
    Home: () => { at = { index: 0, card: 0 }; },
    End: () => { at = { index: names.length - 1, card: 99 }; },
  };
  const open = (index) => { location.hash = `#/node/${encodeURIComponent(names[index])}`; };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && at && at.index < names.length) open(at.index);
    else if (KEYS[event.key]) { event.preventDefault(); move(KEYS[event.key]); }
  });
  canvas.addEventListener("focus", () => move(() => {}));
  canvas.addEventListener("blur", () => { if (at && at.index < names.length) drawNode(at.index); });
  canvas.addEventListener("mousemove", showTip);
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => { const found = find(event); if (found) open(found.index); });
  box.addEventListener("scroll", () => { tip.hidden = true; drawAll(); });

  function showLegend() {
    legendIsFor = board.isMeasured;
    const item = (kind, text) => el("span", {}, el("i", { class: `is-${kind}`, "aria-hidden": "true" }), text);
    const without = () => (chosenResource() >= 0 && [...board.nodes.values()].some((node) => node.cards.some((card) => isWithout(card, chosenResource())))
      ? [item("without", `has no ${choices.resource}`)] : []);
    legend.replaceChildren(
      choices.show !== "used" ? item("booked", chosenResource() < 0 ? "booked of the fullest resource" : "booked") : "",
      choices.show !== "booked" ? item("used", legendIsFor ? "used" : "used (not measured)") : "",
      item("empty", "free"), ...without(), item("bad", "unhealthy or gone"), item("closed", "closed by a label"));
  }
  const again = () => { showLegend(); layOut(); };
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const themed = () => { readColours(); drawAll(); };

  return {
    title: "Map",
    show() {
      readColours();
      main.replaceChildren(
        nodeTools(again,
          choice("Show", "show", [["both", "booked and used"], ["booked", "booked"], ["used", "used"]], again),
          choice("Size", "size", [["auto", "fitting"], ...LEVELS.map((_, one) => [String(one), String(one + 1)])], again),
          shown, legend),
        box, tip);
      again();
      theme.addEventListener("change", themed);
      addEventListener("resize", layOut);
    },
    searched: layOut,
    changed({ names: changed, isNewList }) {
      if (legendIsFor !== board.isMeasured) showLegend();
      if (isNewList || words() || choices.only !== "all") { layOut(); return; }
      const wanted = new Set(changed);
      names.forEach((name, index) => { if (wanted.has(name)) drawNode(index); });
    },
    close() {
      theme.removeEventListener("change", themed);
      removeEventListener("resize", layOut);
    },
  };
}

// Nodes as a table

const PAGE = 100;

function nodesView() {
  const sumOf = (node, part) => node.cards.reduce((sum, card) => sum + part(card), 0);
  const sums = (node) => { const [booked, capacity] = ["booked", "capacity"].map((key) => board.resources.map((_, at) => sumOf(node, (card) => card[key][at] ?? 0))); return { booked, capacity }; };
  const usedOf = (node) => { const found = node.cards.map((card) => usedShare(card, chosenResource())).filter((each) => each !== null); return found.length ? found.reduce((a, b) => a + b, 0) / node.cards.length : null; };
  const counted = (texts) => [...texts.reduce((counts, each) => counts.set(each, (counts.get(each) ?? 0) + 1), new Map())];
  const rows = table("Nodes with GPUs", [
    { title: "Node", sort: "node", value: (row) => row.name, class: "name", cell: (row) => nodeLink(row.name) },
    { title: "State", sort: "state", value: (row) => row.state, cell: (row) => badge(row.state) },
    { title: "Cards", sort: "cards", value: (row) => row.cards, number: true, cell: (row) => row.cards },
    { title: "Booked", sort: "booked", value: (row) => (row.gauge.capacity ? row.gauge.booked / row.gauge.capacity : null), cell: (row) => (row.gauge.capacity || row.gauge.booked ? [gaugeBar(row.resource, row.gauge), chosenResource() < 0 ? el("span", { class: "quiet" }, row.resource) : null] : el("span", { class: "quiet" }, "–")) },
    { title: "Used", sort: "used", value: (row) => row.used, cell: (row) => (row.used === null ? el("span", { class: "quiet" }, "–") : bar("used", row.used, percent(row.used))) },
    { title: "Pods", sort: "pods", value: (row) => row.pods, number: true, cell: (row) => row.pods },
    { title: "Health", sort: "health", value: (row) => row.healths.join(), cell: (row) => row.healths.map(([name, count]) => [badge(name), count > 1 ? ` ×${count} ` : " "]) },
    { title: "Model", sort: "model", value: (row) => row.models, cell: (row) => own(row.models) },
  ], (row) => row.name, () => draw());
  const text = el("span", { "aria-live": "polite" });
  const turn = (step) => () => { choose({ page: String(Number(choices.page) + step) }); draw(); };
  const back = el("button", { type: "button", click: turn(-1) }, "Previous");
  const next = el("button", { type: "button", click: turn(1) }, "Next");

  function draw() {
    const found = rows.sorted(board.sorted.map((name) => board.nodes.get(name)).filter(matches).map((node) => {
      const all = sums(node);
      return {
        name: node.name, state: node.state, cards: node.cards.length, resource: board.resources[drawn(all)] ?? "",
        gauge: { booked: all.booked[drawn(all)] ?? 0, capacity: all.capacity[drawn(all)] ?? 0 },
        used: usedOf(node), pods: sumOf(node, (card) => card.pods),
        healths: counted(node.cards.map((card) => card.health)), models: [...new Set(node.cards.map((card) => card.model))].filter(Boolean).join(", "),
      };
    }));
    const first = PAGE * (Math.min(Math.max(Math.trunc(choices.page) || 1, 1), Math.ceil(found.length / PAGE) || 1) - 1);
    choices.page = String(first / PAGE + 1);
    rows.show(found.slice(first, first + PAGE));
    setText(text, found.length ? `${count(first + 1)}–${count(Math.min(first + PAGE, found.length))} of ${count(found.length)} nodes` : board.nodes.size ? "No node matches." : "No node has cards.");
    back.disabled = first === 0;
    next.disabled = first + PAGE >= found.length;
  }
  return {
    title: "Nodes",
    show() { main.replaceChildren(nodeTools(draw), rows.element, el("div", { class: "pager" }, back, next, text)); draw(); },
    searched: draw,
    changed: draw,
  };
}

// Views that show a document of the server

/** A view of a document. `draw` gets the document; it is fetched again when the cluster has changed. `searched` follows a search. */
function documentView(title, path, parameters, draw, searched) {
  let last = "", wanted = null;
  return {
    title,
    async show() { main.replaceChildren(el("p", { class: "quiet" }, "Reading …")); last = ""; await this.refresh(); },
    async refresh() {
      wanted?.abort();
      const mine = wanted = new AbortController();
      try {
        const found = await fetchJson(path, parameters(), mine.signal);
        const text = JSON.stringify(found);
        if (view !== this || mine.signal.aborted || text === last) return;
        last = text;
        draw(found);
      } catch (error) {
        if (view !== this || mine.signal.aborted) return;
        last = "";
        main.replaceChildren(el("p", { class: "reason" }, own(error.message)), el("p", {}, el("a", { href: "#/map" }, "Back to the map")));
      }
    },
    searched,
    close() { wanted?.abort(); },
  };
}

const none = () => el("span", { class: "quiet" }, "–");
const held = (row, name) => (row[name] === undefined ? "" : amount(name, row[name]));
const sumColumns = () => board.resources.filter((name) => isBytes(name) || name === "millicores")
  .map((name) => ({ title: name, sort: name, value: (row) => row[name] ?? null, number: true, cell: (row) => held(row, name) }));

function podsView(only) {
  const note = el("p", { class: "quiet", "aria-live": "polite" });
  const rows = table(only ? "Pods that wait" : "Pods that ask for GPUs", [
    { title: "Pod", sort: "namespace", class: "name", cell: (pod) => podLink(`${pod.namespace}/${pod.name}`) },
    { title: "Owner", sort: "owner", cell: (pod) => (pod.owner ? own(pod.owner) : "") },
    ...(only ? [
      { title: "Asks for", sort: "asks", class: "name", cell: (pod) => own(pod.asks) },
      { title: "Reason", class: "reasons", cell: (pod) => own(pod.note ?? "") },
    ] : [
      { title: "State", sort: "state", cell: (pod) => badge(pod.state) },
      { title: "Node", sort: "node", class: "name", cell: (pod) => (pod.node ? nodeLink(pod.node) : el("span", { class: "quiet" }, own(pod.note ?? ""))) },
      { title: "Cards", sort: "cards", class: "name", cell: (pod) => (pod.node ? (pod.cards ?? []).join(" ") : el("span", { class: "quiet" }, own(pod.asks && `asks for ${pod.asks}`))) },
      ...sumColumns(),
      { title: "Used", sort: "used", number: true, cell: (pod) => (typeof pod.used === "number" ? `${gigabytes(pod.used)} GB` : none()) },
      { title: "Busy", sort: "busy", number: true, cell: (pod) => (typeof pod.busy === "number" ? percent(pod.busy) : none()) },
    ]),
    { title: "Priority", sort: "priority", number: true, cell: (pod) => pod.priority },
    { title: "Age", sort: "created", class: "number", cell: (pod) => age(pod.created) },
  ], (pod) => `${pod.namespace}/${pod.name}`, () => view.refresh());
  const reasons = el("ul", { class: "suggestions" });
  const title = el("h2");
  const panel = el("section", { class: "panel" }, title, reasons);
  return documentView(only ? "Waiting" : "Pods", "pods", () => ({ text: choices.search, state: only, sort: choices.sort }), (found) => {
    if (!rows.element.isConnected) main.replaceChildren(...(only ? [panel] : []), rows.element, note);
    rows.show(found.pods);
    const isCut = found.total > found.pods.length;
    const counts = new Map();
    for (const pod of found.pods) if (!pod.node) counts.set(pod.note, (counts.get(pod.note) ?? 0) + 1);
    panel.hidden = !counts.size;
    setText(title, isCut ? `Why these ${found.pods.length} of ${count(found.total)} pods wait` : "Why pods wait");
    sync(reasons, [...counts].sort((a, b) => b[1] - a[1]), ([text]) => text, ([text, count]) =>
      el("li", {}, el("b", {}, count === 1 ? "1 pod: " : `${count} pods: `), own(text)));
    rows.element.hidden = !found.pods.length;
    setText(note, isCut ? `The first ${found.pods.length} of ${count(found.total)} pods. Search finds the others.`
      : found.total ? "" : choices.search ? "No pod matches." : only ? "No pod waits for a GPU." : "No pod asks for a GPU.");
  }, () => view.refresh());
}

/** A view of a document with one list, which is searched by `textOf` and sorted here. */
function listView(title, path, columns, textOf, empty) {
  const note = el("p", { class: "quiet" });
  const rows = table(title, columns, textOf, () => draw());
  let sent = {};
  function draw() {
    const shown = rows.sorted(sent[path].filter((each) => textOf(each).toLowerCase().includes(words())));
    rows.show(shown);
    rows.element.hidden = !shown.length;
    setText(note, [...sent.notes ?? [], shown.length ? "" : sent[path].length ? "Nothing matches." : empty].filter(Boolean).join(" · "));
  }
  return documentView(title, path, () => ({}), (found) => {
    if (!note.isConnected) main.replaceChildren(rows.element, note);
    sent = found;
    draw();
  }, () => { if (note.isConnected) draw(); });
}

function namespacesView() {
  const link = (view, row, text) => el("a", { href: address(`#/${view}`, { search: `${row.namespace}/` }) }, text);
  return listView("Namespaces", "namespaces", [
    { title: "Namespace", sort: "namespace", value: (row) => row.namespace, class: "name", cell: (row) => link("pods", row, own(row.namespace)) },
    { title: "Pods", sort: "pods", value: (row) => row.pods, number: true, cell: (row) => count(row.pods) },
    { title: "Waiting", sort: "waiting", value: (row) => row.waiting, number: true, cell: (row) => (row.waiting ? link("waiting", row, count(row.waiting)) : none()) },
    ...sumColumns(),
    { title: "Used", sort: "used", value: (row) => row.used ?? null, number: true, cell: (row) => (row.used === undefined ? none() : `${gigabytes(row.used)} GB`) },
  ], (row) => row.namespace, "No pod asks for a GPU.");
}

function decisionsView() {
  const total = (each) => Object.values(each.milliseconds).reduce((sum, took) => sum + took, 0);
  return listView("Decisions", "decisions", [
    { title: "When", sort: "when", value: (each) => each.time, cell: (each) => moment(each.time) },
    { title: "Pod", sort: "pod", value: (each) => each.pod, class: "name", cell: (each) => podLink(each.pod) },
    { title: "Node", sort: "node", value: (each) => each.node, cell: (each) => nodeLink(each.node) },
    { title: "Cards", sort: "cards", value: (each) => each.error || each.cards, cell: (each) => own(each.error || each.cards) },
    { title: "Score", sort: "score", value: (each) => each.score, number: true, cell: (each) => each.score ?? "–" },
    { title: "Had room", sort: "room", value: (each) => each.passing, number: true, cell: (each) => each.passing ?? "–" },
    { title: "Alternatives", sort: "alternatives", value: (each) => each.alternatives.length, cell: (each) => own(each.alternatives.map((other) => (other.score === null ? other.node : `${other.node} (${other.score})`)).join(", ") || "–") },
    { title: "Milliseconds", sort: "milliseconds", value: total, number: true, cell: (each) => Object.entries(each.milliseconds).map(([verb, took]) => `${verb} ${took.toFixed(1)}`).join(" · ") },
  ], (each) => `${each.pod} ${each.node} ${each.time}`, "No decision is recorded yet. The record begins when the extender starts.");
}

function nodeView(name) {
  const head = el("h2"), facts = el("dl", { class: "facts" }), drawing = el("div", { class: "drawing" }), labels = el("dl", { class: "facts mono" });
  const problems = el("ul", { class: "suggestions" });
  const problemPanel = el("section", { class: "panel" }, el("h3", {}, "Problems"), problems);
  let links = [];
  const pairs = (list, items) => sync(list, items.map(([key, value]) => ({ key, value })), (item) => item.key, ({ key, value }) =>
    el("div", {}, el("dt", {}, own(key)), el("dd", {}, own(value))));

  function cardBox(card, resources) {
    const tiles = Math.max(card.tileCount ?? 0, card.tiles?.capacity ?? 0);
    const held = new Set(card.held.flatMap((each) => each.tiles));
    const used = typeof card.used === "number" ? [el("dt", {}, "memory used"), el("dd", {}, bar("used", card.used / (card[resources.find(isBytes)]?.capacity || 1), `${gigabytes(card.used)} GB`))] : [];
    const busy = typeof card.busy === "number" ? [el("dt", {}, "busy"), el("dd", {}, bar("used", card.busy, percent(card.busy)))] : [];
    return el("section", { class: `card ${card.health}`, "aria-label": `${card.card}, ${card.health}` },
      el("h4", {}, card.card, badge(card.health)),
      el("p", { class: "quiet" }, own([card.model, card.pci].filter(Boolean).join(" · "))),
      card.cause ? el("p", { class: "cause" }, own(card.cause)) : null,
      el("dl", {}, resources.filter((each) => typeof card[each]?.capacity === "number").map((each) => [el("dt", {}, `${each} booked`), el("dd", {}, gaugeBar(each, card[each]))]), used, busy),
      tiles > 1 ? el("div", { class: "tiles", role: "img", "aria-label": `Tiles: ${held.size} of ${tiles} held` },
        Array.from({ length: tiles }, (_, at) => el("i", { class: held.has(at) ? "held" : null }, `gt${at}`))) : null,
      card.held.length ? el("ul", {}, card.held.map((each) => el("li", {}, podLink(each.pod), el("span", { class: "quiet" }, ` ${inWords(each.amounts)}`)))) : el("p", { class: "quiet" }, "no pods"));
  }

  function drawLinks() {
    drawing.querySelector("svg")?.remove();
    const around = drawing.getBoundingClientRect();
    const boxes = new Map([...drawing.querySelectorAll(".card")].map((each) => [each.dataset.card, each.getBoundingClientRect()]));
    const paths = links.map(([one, other]) => [boxes.get(one), boxes.get(other)]).filter(([a, b]) => a && b).map(([a, b]) => {
      const [x1, x2] = [a.left + a.width / 2 - around.left, b.left + b.width / 2 - around.left];
      if (b.top >= a.bottom) { // in a row below: between the two, not across a card
        const [from, to] = [a.bottom - around.top, b.top - around.top];
        return el("path", { d: `M ${x1} ${from} C ${x1} ${(from + to) / 2}, ${x2} ${(from + to) / 2}, ${x2} ${to}` });
      }
      const [y1, y2] = [a.bottom - around.top, b.bottom - around.top];
      const dip = Math.max(y1, y2) + Math.min(14 + Math.abs(x1 - x2) / 18, 36);
      return el("path", { d: `M ${x1} ${y1} C ${x1} ${dip}, ${x2} ${dip}, ${x2} ${y2}` });
    });
    if (paths.length) drawing.append(el("svg", { role: "img", "aria-label": `Links between cards: ${links.map((pair) => pair.join(" and ")).join("; ")}` }, ...paths));
  }

  const shown = documentView(name, "node", () => ({ name }), (found) => {
    if (!head.isConnected) {
      main.replaceChildren(head, problemPanel, command(`kubectl gas inspect ${name}`), el("section", { class: "panel" }, el("h3", {}, "Cards"), drawing),
        el("section", { class: "panel" }, el("h3", {}, "Node"), facts), el("section", { class: "panel" }, el("h3", {}, "Labels"), labels));
    }
    sync(head, [{ node: found.node, ready: found.ready, cordoned: found.cordoned }], () => "head", () =>
      el("span", {}, own(found.node), " ", badge(found.ready ? "ready" : "not ready"), found.cordoned ? badge("cordoned") : null, " ", el("small", {}, grafanaLink("node", found.node))));
    problemPanel.hidden = !found.problems.length;
    sync(problems, found.problems, (text) => text, (text) => el("li", {}, own(text)));
    const groups = new Map();
    for (const card of found.cards) {
      const numa = typeof card.numa === "number" ? `NUMA node ${card.numa}` : "";
      groups.set(numa, [...(groups.get(numa) ?? []), card]);
    }
    const resources = board.resources;
    drawing.querySelector("svg")?.remove();
    sync(drawing, [...groups].sort((a, b) => collator.compare(a[0], b[0])).map(([title, cards]) => ({ title, cards, resources })), (group) => group.title || "-", ({ title, cards }) =>
      el("div", { class: "numa" }, title ? el("h4", {}, title) : null, el("div", { class: "cards" }, cards.map((card) => {
        const made = cardBox(card, resources);
        made.dataset.card = card.card;
        return made;
      }))));
    drawing.classList.toggle("bare", !found.links.length); // links need room between the rows
    links = found.links.map((text) => text.match(/card\d+/g) ?? []).filter((pair) => pair.length === 2);
    drawLinks();
    pairs(facts, [["Kernel", found.kernel || "–"], ["Taints", found.taints.join(", ") || "none"], ["Boards", found.boards.map((each) => each.join(" ")).join("; ") || "–"], ["Links", found.links.join("; ") || "none"]]);
    pairs(labels, Object.entries(found.labels));
  });
  const { show, close } = shown;
  shown.show = async function () { addEventListener("resize", drawLinks); await show.call(this); };
  shown.close = () => { removeEventListener("resize", drawLinks); close(); };
  return shown;
}

function podView(namespace, name) {
  const head = el("h2"), way = el("ol", { class: "way" }), cards = el("div", { class: "cards" }), facts = el("dl", { class: "facts mono" });
  const why = el("div", { "aria-live": "polite" });
  const whyPanel = el("section", { class: "panel" }, el("h3", {}, "Why"), why);
  const cardPanel = el("section", { class: "panel" }, el("h3", {}, "What it holds"), cards);

  function steps(found) {
    const steps = [{ kind: "done", title: "Created", text: [found.created && moment(found.created), found.asks && `asks for ${found.asks}`].filter(Boolean).join(" · ") }];
    for (const each of [...found.decisions].reverse()) {
      const took = Object.entries(each.milliseconds).map(([verb, amount]) => `${verb} ${amount.toFixed(1)} ms`).join(", ");
      const others = each.alternatives.map((other) => other.node + (other.score === null ? "" : ` (${other.score})`)).join(", ");
      steps.push(each.error
        ? { kind: "bad", title: `Not bound to ${each.node}`, text: `${each.error} · ${took}` }
        : { kind: "done", title: `Decided: ${each.cards} of ${each.node}`, text: [moment(each.time), took, each.score === null ? "" : `score ${each.score}`, each.passing === null ? "" : each.passing === 1 ? "1 node had room" : `${each.passing} nodes had room`, others && `could also have had ${others}`].filter(Boolean).join(" · ") });
    }
    const written = found.written;
    if (!found.node) return [...steps, { kind: "wait", title: "Waits", text: found.note ?? "" }];
    if (!found.decisions.length) steps.push({ kind: "done", title: `Bound to ${found.node}`, text: written["gas-ts"] ? `decided at ${written["gas-ts"]}` : "" });
    const text = Object.entries(written).filter(([key]) => key.startsWith("gas-container") || key.startsWith("gas-init")).map(([key, value]) => `${key}=${value}`).join(" · ");
    if (text) steps.push({ kind: "done", title: "Written on the pod", text });
    const receipt = written["gas-allocated-cards"] ?? written["gas-allocated-init-cards"];
    if (receipt) steps.push({ kind: "bad", title: "kubelet gave other cards", text: `gas-allocated-cards=${receipt}${found.note ? "" : "; the ledger follows"}` });
    if (found.note) steps.push({ kind: "bad", title: "In trouble", text: found.note });
    return [...steps, { kind: found.state === "Running" ? "done" : "wait", title: found.state, text: typeof found.used === "number" ? `uses ${gigabytes(found.used)} GB${typeof found.busy === "number" ? `, busy ${percent(found.busy)}` : ""}` : "use is not measured" }];
  }

  async function explain() {
    try {
      const found = await fetchJson("why", { namespace, name });
      if (view !== shown) return;
      sync(why, [found], () => "why", () => el("div", {},
        el("p", { class: "reason" }, own(found.reason)),
        found.groups.length ? el("ul", { class: "suggestions" }, found.groups.map((each) => el("li", {}, `on ${each.nodes} of ${found.nodes} nodes: `, own(each.reason), each.best ? [" · nearest: ", own(each.best)] : null))) : null,
        found.details.length ? el("ul", { class: "suggestions" }, found.details.map((each) => el("li", {}, own(each)))) : null,
        found.suggestions.length ? [el("h3", {}, "Any one of these would let it run"), el("ul", { class: "suggestions" }, found.suggestions.map((each) => el("li", {}, own(each.change), el("span", { class: "quiet" }, " · fits on "), nodeLink(each.node), el("span", { class: "quiet" }, each.cards.length ? ` with ${each.cards.join(" ")}` : ""))))] : null,
        found.groups.length && !found.suggestions.length ? el("p", { class: "quiet" }, "No single change was found that would let it run.") : null,
        found.complete ? null : el("p", { class: "quiet" }, "There may be more or better suggestions: the search ended early. kubectl gas why looks longer."),
        found.not_checked.length ? el("p", { class: "quiet" }, `Not looked at: ${found.not_checked.join(", ")}.`) : null));
    } catch (error) {
      if (view === shown) why.replaceChildren(el("p", { class: "quiet" }, own(error.message)));
    }
  }

  const shown = documentView(`${namespace}/${name}`, "pod", () => ({ namespace, name }), (found) => {
    if (!head.isConnected) {
      why.replaceChildren(el("p", { class: "quiet" }, "Looking for reasons and suggestions …"));
      main.replaceChildren(head, command(`kubectl gas why ${name} -n ${namespace}`), el("section", { class: "panel" }, el("h3", {}, "Its way"), way), whyPanel, cardPanel,
        el("section", { class: "panel" }, el("h3", {}, "Pod"), facts));
    }
    sync(head, [[found.state, found.node]], () => "head", () => el("span", {}, own(`${found.namespace}/${found.name}`), " ", badge(found.state), found.node ? [" ", el("small", {}, nodeLink(found.node))] : null, " ", el("small", {}, grafanaLink("namespace", namespace))));
    sync(way, steps(found).map((step, at) => ({ ...step, at })), (step) => step.at, (step) => el("li", { class: step.kind }, el("b", {}, own(step.title)), el("span", { class: "quiet" }, own(step.text))));
    cardPanel.hidden = !found.held.length;
    sync(cards, found.held, (card) => card.card, (card) => el("div", { class: "card ok" }, el("h4", {}, card.card, card.tiles.length ? el("small", { class: "quiet" }, card.tiles.map((each) => `gt${each}`).join(" ")) : null),
      el("p", {}, inWords(card.amounts)),
      typeof card.used === "number" && card.amounts["memory.max"] ? bar("used", card.used / card.amounts["memory.max"], `${gigabytes(card.used)} GB used`) : null,
      typeof card.busy === "number" ? bar("used", card.busy, `busy ${percent(card.busy)}`) : null));
    sync(facts, [["UID", found.uid], ["Owner", found.owner ?? "none"], ["Priority", String(found.priority)], ...Object.entries(found.labels), ...Object.entries(found.written)], ([key]) => key, ([key, value]) => el("div", {}, el("dt", {}, own(key)), el("dd", {}, own(value))));
    explain();
  });
  return shown;
}

// Which view is shown

const VIEWS = {
  map: mapView, nodes: nodesView, pods: () => podsView(""), waiting: () => podsView("waiting"), namespaces: namespacesView, decisions: decisionsView,
  node: nodeView, pod: podView,
};

function unknownView() {
  const views = Object.keys(VIEWS).slice(0, -2).map((name) => [" ", el("a", { href: `#/${name}` }, `#/${name}`)]);
  return { title: "Unknown address", show: () => main.replaceChildren(el("p", { class: "reason" }, "The page has no address ", own(location.hash), "; expected one of", views)) };
}

function route() {
  if (!board.name) return;
  let [name, ...parts] = readAddress();
  try {
    parts = parts.map(decodeURIComponent);
  } catch {
    parts = [];
  }
  const isKnown = name === "" || (Object.hasOwn(VIEWS, name) && parts.length >= VIEWS[name].length);
  if (name === "") name = "map";
  view?.close?.();
  view = isKnown ? VIEWS[name](...parts) : unknownView();
  search.value = choices.search;
  choose({ page: choices.page });
  for (const link of document.querySelectorAll("nav a[href^='#']")) {
    if (link.getAttribute("href").split("?")[0] === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showTitle();
  view.show();
  showHits();
}

/** Name pods that the search finds, in views that do not list pods. */
async function showHits() {
  const [text, shown] = [choices.search, view];
  const isNeeded = () => text && text === choices.search && shown === view && !["Pods", "Waiting"].includes(view.title);
  const found = isNeeded() ? await fetchJson("pods", { text }).catch(() => null) : null;
  if (text !== choices.search || shown !== view) return;
  $("hits").hidden = !found?.total;
  if (!found?.total) return;
  $("hits").replaceChildren("Pods: ", ...found.pods.slice(0, 5).flatMap((pod) => [podLink(`${pod.namespace}/${pod.name}`), " "]),
    found.total > 5 ? el("a", { href: address("#/pods", { search: text }) }, `all ${count(found.total)}`) : "");
}

let searching = null;
function searchFor(text) {
  choose({ search: text.trim() });
  clearTimeout(searching);
  searching = setTimeout(() => { view?.searched?.(); showHits(); }, 150);
}

addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  announce(view?.title ?? "");
});
search.addEventListener("input", () => searchFor(search.value));
search.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { search.value = ""; searchFor(""); main.focus(); }
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName)) {
    event.preventDefault();
    search.focus();
  }
});
begin();
