"use strict";

// Text of clients gets into the page by textContent and createTextNode alone, each in
// an element bdi of its own, so that it can be neither markup nor turn what is beside it.

const $ = (id) => document.getElementById(id);
const rowsOfPage = 100, silence = 25000, firstLine = 3000, pollEvery = 5000, detailEvery = 2000, mostListed = 100;

let token = sessionStorage.getItem("holdfast-token") || "";
let me = { rights: [] };
let locks = new Map(); // name → entry
let ahead = 0; // of the server's clock, in milliseconds
let sort = { by: "wait", down: true };
let page = 0, paused = false, live = false, shownNames = [];
const rows = new Map(); // name → row
const open = new Set(); // names

// shown returns a text as the command prints it: as it is, or quoted and escaped if it
// has something invisible or ambiguous.
function shown(text) {
  const unprintable = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|\ufffd/gu;
  if (text !== "" && text[0] !== '"' && text === text.trim() && !unprintable.test(text)) return text;
  const escaped = text.replace(/["\\]/g, "\\$&").replace(unprintable, (c) => {
    const n = c.codePointAt(0);
    return n > 0xffff ? "\\U" + n.toString(16).padStart(8, "0") : "\\u" + n.toString(16).padStart(4, "0");
  });
  return '"' + escaped + '"';
}

// make returns an element with children: elements, or the page's own text.
function make(tag, ...children) {
  const e = document.createElement(tag);
  e.append(...children);
  return e;
}

// theirs returns an element with a client's text.
function theirs(text) { return make("bdi", shown(String(text))); }

// setText changes a text, if it is another, so that readers are not disturbed.
function setText(e, text) { if (e.textContent !== text) e.textContent = text; }

function span(ms) {
  if (!(ms >= 0)) ms = 0;
  const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (d > 0) return d + " d " + (h % 24) + " h";
  if (h > 0) return h + " h " + (m % 60) + " min";
  if (m > 0) return m + " min " + (s % 60) + " s";
  return s + " s";
}

const since = (at) => (at ? span(Date.now() + ahead - at) : "–");
const plural = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");

// party returns what is known of a ticket's client.
function party(holder) {
  const parts = [];
  const add = (before, text) => { if (text !== undefined && text !== "") parts.push(parts.length ? " " + before : before, theirs(text)); };
  add("", holder.principal);
  add("pid ", holder.pid);
  add("on ", holder.host);
  if (parts.length === 0) add("owner ", holder.owner);
  if (parts.length === 0) parts.push("unknown");
  if (parts[0] === "") parts.shift();
  return make("span", ...parts);
}

// partyKey tells processes apart; it is empty for one that is not known well enough.
function partyKey(holder) {
  return holder.host && holder.pid ? JSON.stringify([holder.principal || "", holder.host, holder.pid]) : "";
}

// entryOf returns what the table needs of a lock; lists are numbers where only the
// counts are known.
function entryOf(lock) {
  const known = Array.isArray(lock.holders);
  const holders = known ? lock.holders : [], waiters = known ? lock.waiters : [];
  const oldest = (tickets) => tickets.reduce((a, t) => Math.min(a, t.holder.since_ms || Infinity), Infinity);
  const words = [lock.name];
  for (const t of holders.concat(waiters.slice(0, mostListed))) words.push(t.holder.principal, t.holder.host, t.holder.pid, t.holder.note);
  return {
    name: lock.name, kind: lock.kind, token: lock.token, holders, waiters,
    held: known ? holders.length : lock.holders, waiting: known ? waiters.length : lock.waiters,
    age: oldest(holders), wait: oldest(waiters), text: words.join("\n").toLowerCase(),
  };
}

const noLock = (name) => entryOf({ name, kind: "", holders: [], waiters: [] });

// Requests

async function ask(path, options = {}) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const r = await fetch(path, { cache: "no-store", redirect: "error", ...options, headers: { ...headers, ...options.headers } });
  if (r.headers.get("Holdfast") !== "1") throw new Error("the answer is not the server's");
  if (r.ok) return r;
  const problem = await r.json();
  throw Object.assign(new Error(problem.detail), { code: problem.code });
}

async function begin() {
  try {
    const r = await ask("v1/server");
    const date = Date.parse(r.headers.get("Date"));
    ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
    me = await r.json();
  } catch (e) {
    if (e.code === "unauthenticated") {
      if (token) setText($("problem"), "The server does not know this token.");
      forget();
      setText($("state"), "Not signed in.");
      $("sign-in").hidden = false;
      $("token").focus();
      return;
    }
    setText($("state"), "Not connected: " + e.message + ". Trying again.");
    setTimeout(begin, pollEvery);
    return;
  }
  $("sign-in").hidden = true;
  $("view").hidden = false;
  setText($("problem"), "");
  $("server").replaceChildren("Server ", theirs(me.server), ", you are ", theirs(me.principal), ".");
  follow("");
}

function forget() {
  token = "";
  sessionStorage.removeItem("holdfast-token");
}

const may = (right, name) => (me.rights || []).some((r) => name.startsWith(r.prefix) && r.may.includes(right));

// follow reads the stream of changes, from a bookmark if there is one.
async function follow(after) {
  const stop = new AbortController();
  let last = Date.now(), next = null, error = null, polled = 0;
  if (!after) next = new Map();
  const guard = setInterval(() => {
    const quiet = Date.now() - last;
    if (live && quiet > silence) stop.abort();
    if (!live && quiet > firstLine && Date.now() - polled > pollEvery) { polled = Date.now(); poll(); }
  }, 500);
  try {
    const r = await ask("v1/watch" + (after ? "?after=" + encodeURIComponent(after) : ""), { signal: stop.signal });
    for await (const e of lines(r.body)) {
      last = Date.now();
      const into = next || locks;
      if (e.event === "lock") into.set(e.lock.name, entryOf(e.lock));
      if (e.event === "free") into.delete(e.name);
      if (e.event === "bookmark") {
        after = e.after;
        if (next) { locks = next; next = null; }
        live = true;
        setText($("state"), "Live.");
      }
      if (!next) changed();
    }
  } catch (e) {
    error = e;
  } finally {
    clearInterval(guard);
  }
  live = false;
  if (error && error.code === "unauthenticated") return begin();
  if (error && error.code === "too_old") return follow("");
  setText($("state"), "Not live" + (error && error.code ? ": " + error.message : "") + ". Connecting again.");
  setTimeout(() => follow(after), 1000 + Math.random() * 1000);
}

// lines yields the objects of a stream.
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const p of parts) if (p) yield JSON.parse(p);
  }
}

// poll stands in for a stream of which nothing arrives.
async function poll() {
  try {
    const prefix = $("search").value;
    const r = await (await ask("v1/locks?limit=" + rowsOfPage + (prefix ? "&prefix=" + encodeURIComponent(prefix) : ""))).json();
    if (live) return;
    locks = new Map(r.locks.map((l) => [l.name, entryOf(l)]));
    setText($("state"), "Not live: changes do not arrive. The first " + rowsOfPage + " names are shown, every 5 s.");
    changed();
  } catch { /* the stream's error is shown */ }
}

// refresh asks for the locks that are open, ahead of the server's next look at them.
async function refresh() {
  for (const name of open) {
    try {
      const lock = await (await ask("v1/lock?name=" + encodeURIComponent(name))).json();
      if (!open.has(name)) continue;
      const entry = entryOf(lock);
      if (entry.held + entry.waiting > 0) locks.set(name, entry); else locks.delete(name);
      changed();
    } catch { /* the state of the stream is shown */ }
  }
  setTimeout(refresh, detailEvery);
}

// The table

let due = false;

// changed draws the table soon: several changes are one drawing.
function changed() {
  if (due || paused) return;
  due = true;
  setTimeout(() => { due = false; draw(false); }, rows.size ? 200 : 0);
}

const orders = {
  name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  waiters: (a, b) => a.waiting - b.waiting,
  age: (a, b) => (a.age === b.age ? 0 : a.age < b.age ? 1 : -1),
  wait: (a, b) => (a.wait === b.wait ? 0 : a.wait < b.wait ? 1 : -1),
};

function selected() {
  const wanted = $("search").value.trim().toLowerCase();
  const found = [];
  for (const e of locks.values()) if (!wanted || e.text.includes(wanted)) found.push(e);
  const order = orders[sort.by], sign = sort.down ? -1 : 1;
  return found.sort((a, b) => sign * order(a, b) || orders.name(a, b));
}

// draw shows the page. Rows keep their places while the focus is among them, unless
// the user has asked for others.
function draw(wanted) {
  const found = selected();
  const pages = Math.max(1, Math.ceil(found.length / rowsOfPage));
  page = Math.min(page, pages - 1);
  if (wanted || !$("rows").contains(document.activeElement)) {
    shownNames = found.slice(page * rowsOfPage, (page + 1) * rowsOfPage).map((e) => e.name);
    place();
  }
  for (const name of shownNames) fill(rows.get(name), locks.get(name) || noLock(name));
  const total = locks.size;
  setText($("count"), found.length === total ? plural(total, "lock") + " in use." : found.length.toLocaleString("en") + " of " + plural(total, "lock") + " in use.");
  setText($("where"), "Page " + (page + 1) + " of " + pages);
  $("previous").disabled = page === 0;
  $("next").disabled = page === pages - 1;
  if (live && !document.body.dataset.usable) document.body.dataset.usable = Math.round(performance.now());
}

// place puts the rows of shownNames into the table, in order.
function place() {
  const wanted = new Set(shownNames);
  for (const [name, row] of rows) {
    if (wanted.has(name)) continue;
    row.line.remove();
    if (row.detail) row.detail.remove();
    rows.delete(name);
    open.delete(name);
  }
  let at = $("rows").firstChild;
  for (const name of shownNames) {
    let row = rows.get(name);
    if (!row) rows.set(name, row = newRow(name));
    for (const e of [row.line, row.detail]) {
      if (!e) continue;
      if (e === at) at = at.nextSibling; else $("rows").insertBefore(e, at);
    }
  }
}

let numbered = 0;

function newRow(name) {
  const button = make("button", theirs(name));
  button.setAttribute("aria-expanded", "false");
  const head = make("th", button);
  head.scope = "row";
  const cells = ["", "", "number", "number", "number"].map((kind) => { const td = make("td"); td.className = kind; return td; });
  const row = { name, button, cells, line: make("tr", head, ...cells), detail: null, drawn: null, key: "", times: [], news: "" };
  button.addEventListener("click", () => toggle(row));
  return row;
}

function fill(row, e) {
  if (row.drawn !== e) {
    setText(row.cells[0], e.held + e.waiting ? e.kind : "free");
    row.cells[1].replaceChildren(...(e.holders.length ? [party(e.holders[0].holder), e.held > 1 ? " and " + (e.held - 1) + " more" : ""] : [e.held ? String(e.held) : "–"]));
    setText(row.cells[3], e.waiting.toLocaleString("en"));
    if (row.detail) fillDetail(row, e);
    row.drawn = e;
  }
  for (const tell of row.times) tell();
  setText(row.cells[2], e.age < Infinity ? since(e.age) : "–");
  setText(row.cells[4], e.wait < Infinity ? since(e.wait) : "–");
}

function toggle(row) {
  if (row.detail) {
    row.detail.remove();
    row.detail = null;
    row.times = [];
    open.delete(row.name);
  } else {
    const cell = make("td");
    cell.colSpan = 6;
    row.detail = make("tr", cell);
    row.detail.className = "open";
    row.detail.id = "detail-" + numbered++;
    row.button.setAttribute("aria-controls", row.detail.id);
    row.line.after(row.detail);
    open.add(row.name);
    row.news = row.key = "";
    fillDetail(row, locks.get(row.name) || noLock(row.name));
  }
  row.button.setAttribute("aria-expanded", String(row.detail !== null));
}

// fillDetail shows the queue of a lock, unless it is shown already. The focus stays on
// the button of its ticket, or goes to that of the row.
function fillDetail(row, e) {
  const cell = row.detail.firstChild;
  const chain = chainOf(e);
  const key = JSON.stringify([e.holders.map((t) => t.ticket), e.waiters.map((t) => t.ticket), chain.map((li) => li.textContent)]);
  if (key === row.key) return;
  row.key = key;
  row.times = [];
  const focused = cell.contains(document.activeElement) ? document.activeElement.dataset.ticket : undefined;
  const parts = [make("h3", "Holders"), tickets(row, e, e.holders), make("h3", "Waiters, in order"), tickets(row, e, e.waiters)];
  if (chain.length) parts.push(make("h3", "Who waits for whom"), make("ul", ...chain));
  cell.replaceChildren(...parts);
  if (focused !== undefined) ([...cell.querySelectorAll("button")].find((b) => b.dataset.ticket === focused) || row.button).focus();
  const news = e.holders.map((t) => party(t.holder).textContent).join(", ") || "nobody";
  if (row.news && row.news !== news) setText($("news"), shown(row.name) + " is now held by " + news + "; " + plural(e.waiting, "waiter") + ".");
  row.news = news;
}

const asked = (t, holding) => (holding ? "asked " + since(t.holder.since_ms) + " ago" : "waits " + since(t.holder.since_ms));

function tickets(row, e, list) {
  if (list.length === 0) return make("p", "None.");
  const items = list.slice(0, mostListed).map((t) => {
    const holding = e.holders.includes(t);
    const time = make("span", asked(t, holding));
    row.times.push(() => setText(time, asked(t, holding)));
    const li = make("li", party(t.holder), ", ", time);
    if (t.token) li.append(", token " + t.token);
    if (t.units > 1) li.append(", " + plural(t.units, "unit"));
    if (t.holder.note) li.append(", note ", theirs(t.holder.note));
    if (t.holder.via) li.append(", via ", theirs(t.holder.via));
    if (may("break", e.name)) {
      const button = make("button", holding ? "Break" : "Remove", make("span", " the ticket of ", party(t.holder)));
      button.lastChild.className = "unseen";
      button.dataset.ticket = t.ticket;
      button.addEventListener("click", () => confirmBreak(e, t, holding));
      li.append(" ", button);
    }
    return li;
  });
  if (list.length > mostListed) items.push(make("li", plural(list.length - mostListed, "more ticket")));
  return make("ol", ...items);
}

// chainOf returns who the holders of a lock wait for, and so on. Processes are told
// apart by what they say of themselves, and one may do several things at a time, so
// that a circle only may be one.
function chainOf(e) {
  const waits = new Map(); // party → the lock that it waits for
  for (const l of locks.values()) for (const t of l.waiters) {
    const key = partyKey(t.holder);
    if (key && !waits.has(key)) waits.set(key, l);
  }
  const items = [], seen = new Set([e.name]);
  for (let at = e; items.length < 20;) {
    const step = at.holders.find((t) => waits.has(partyKey(t.holder)));
    if (!step) break;
    const next = waits.get(partyKey(step.holder));
    const by = next.holders.length ? party(next.holders[0].holder) : "nobody";
    const item = make("li", party(step.holder), " holds ", theirs(at.name), " and waits for ", theirs(next.name), ", held by ", by, ".");
    items.push(item);
    if (seen.has(next.name)) { item.append(make("strong", " This may be a circle.")); break; }
    seen.add(next.name);
    at = next;
  }
  return items;
}

// Breaks

let pending = null;

function confirmBreak(e, t, holding) {
  pending = { name: e.name, ticket: t.ticket, owner: t.owner };
  setText($("confirm-title"), holding ? "Break this lock?" : "Remove this waiter?");
  $("confirm-text").replaceChildren(
    make("p", "Lock: ", theirs(e.name)),
    make("p", holding ? "Holder: " : "Waiter: ", party(t.holder), ", " + asked(t, holding)),
    make("p", plural(e.waiting, "waiter") + "."),
    make("p", holding ? "The holder may go on working until it notices. The next one in the queue holds at once." : "It loses its place in the queue."));
  setText($("break"), holding ? "Break" : "Remove");
  $("confirm").showModal();
  $("cancel").focus();
}

async function breakNow() {
  const { name, ticket, owner } = pending;
  $("confirm").close();
  try {
    await ask("v1/break", {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(owner ? { name, owner } : { name, ticket }),
    });
    setText($("problem"), "");
    setText($("news"), "Broken.");
    const lock = entryOf(await (await ask("v1/lock?name=" + encodeURIComponent(name))).json());
    if (lock.held + lock.waiting > 0) locks.set(name, lock); else locks.delete(name);
    draw(false);
  } catch (e) {
    setText($("problem"), "Not broken: " + e.message + ".");
  }
}

// Controls

function start() {
  $("sign-in").addEventListener("submit", (e) => {
    e.preventDefault();
    token = $("token").value.trim();
    $("token").value = "";
    if (token && $("keep").checked) sessionStorage.setItem("holdfast-token", token);
    begin();
  });
  $("search").addEventListener("input", () => { page = 0; draw(true); });
  $("previous").addEventListener("click", () => { page--; draw(true); });
  $("next").addEventListener("click", () => { page++; draw(true); });
  $("cancel").addEventListener("click", () => $("confirm").close());
  $("break").addEventListener("click", breakNow);
  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", String(paused));
    if (!paused) draw(true);
  });
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const by = button.dataset.sort;
      sort = { by, down: sort.by === by ? !sort.down : by !== "name" };
      for (const th of document.querySelectorAll("thead th")) th.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      page = 0;
      draw(true);
    });
  }
  setInterval(() => { if (!paused && live) for (const name of shownNames) { const row = rows.get(name); if (row && row.drawn) fill(row, row.drawn); } }, 1000);
  setTimeout(refresh, detailEvery);
  begin();
}

start();
