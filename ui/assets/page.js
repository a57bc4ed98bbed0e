"use strict";

const find = (id) => document.getElementById(id);
const rows = new Map(); // key of the lock: its row
const view = { text: "", page: 1, pages: 1, key: "", detail: null };
let stream = null;
let failing = 0; // the timer of a stream that the browser opens again

function forTime(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + (seconds % 60) + " s";
  return Math.floor(seconds / 3600) + " h " + (Math.floor(seconds / 60) % 60) + " min";
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function setState(state, text) {
  find("state").dataset.state = state;
  if (find("state").textContent !== text) find("state").textContent = text;
}

// connect opens the stream of what the page shows, and ends the one before.
function connect() {
  if (stream) stream.close();
  stream = null;
  clearFailing();
  if (document.hidden) return;
  const query = new URLSearchParams({ q: view.text, page: view.page, key: view.key });
  const source = new EventSource("api/live?" + query);
  stream = source;
  source.onmessage = (event) => {
    if (source !== stream) return;
    clearFailing();
    show(JSON.parse(event.data));
  };
  // Each stream ends after a minute, and the browser opens the next one. So a failure is
  // shown only if it lasts.
  source.onerror = () => {
    if (source !== stream) return;
    const fail = () => setState("failed", "not connected, trying again");
    if (source.readyState !== EventSource.CLOSED) {
      failing = failing || setTimeout(fail, 5000);
      return;
    }
    fail();
    setTimeout(() => { if (source === stream) connect(); }, 2000);
  };
}

// clearFailing forgets a failure that is not shown yet.
function clearFailing() {
  clearTimeout(failing);
  failing = 0;
}

function show(update) {
  if (update.error) setState("failed", update.error);
  else setState("live", "live");
  if (update.listing) showListing(update.listing);
  if (update.lock && update.lock.key === view.key) showDetail(update.lock);
}

function showListing(list) {
  view.pages = list.pages;
  view.page = list.page;
  const body = find("locks").tBodies[0];
  const keys = new Set(list.locks.map((lock) => lock.key));
  for (const [key, row] of rows) {
    if (!keys.has(key)) {
      row.remove();
      rows.delete(key);
    }
  }
  list.locks.forEach((lock, i) => {
    let row = rows.get(lock.key);
    if (!row) rows.set(lock.key, row = newRow(lock));
    fillRow(row, lock);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
  });
  find("locks").hidden = list.locks.length === 0;
  find("none").hidden = list.locks.length > 0;
  find("none").textContent = list.all === 0 ? "No lock is held or waited for." : "No name contains this text.";
  const total = list.matching === list.all ? `${list.all} locks` : `${list.matching} of ${list.all} locks`;
  find("place").textContent = `${total}, page ${list.page} of ${list.pages}`;
  find("previous").disabled = list.page <= 1;
  find("next").disabled = list.page >= list.pages;
  find("break").hidden = !list.can_break;
  find("readonly").hidden = list.can_break;
}

function newRow(lock) {
  const name = element("button", { type: "button", className: "name", textContent: lock.name });
  name.addEventListener("click", () => openDetail(lock));
  const row = element("tr", {}, element("td", { className: "first" }, name));
  for (const [title, kind] of [["Mode", ""], ["Holder", ""], ["Held for", "time"], ["Lease", "time"], ["Waiters", "count"]]) {
    const cell = element("td", { className: kind });
    cell.dataset.of = title;
    row.append(cell);
  }
  return row;
}

function fillRow(row, lock) {
  const [, mode, holder, age, lease, waiters] = row.cells;
  const entry = lock.holder;
  const more = lock.holders > 1 ? ` and ${lock.holders - 1} more` : "";
  mode.replaceChildren(entry ? element("span", { className: "mode " + entry.mode, textContent: entry.mode }) : "free");
  holder.className = lock.error ? "error" : "";
  holder.textContent = lock.error || (entry ? (entry.label || "no label") + more : "");
  age.textContent = entry ? forTime(entry.age_ms) : "";
  lease.textContent = entry ? forTime(entry.remaining_ms) : "";
  waiters.replaceChildren(lock.waiters > 0 ? element("span", { className: "waited", textContent: lock.waiters }) : "0");
}

function openDetail(lock) {
  view.key = lock.key;
  view.detail = null;
  find("name").textContent = lock.name;
  find("summary").textContent = "";
  find("picture").replaceChildren();
  find("entries").tBodies[0].replaceChildren();
  find("break").disabled = true;
  find("detail").showModal();
  connect();
}

function showDetail(lock) {
  view.detail = lock;
  find("summary").textContent = lock.all_holders + lock.all_waiters === 0
    ? "The lock is free."
    : `Holders: ${lock.all_holders}. Waiters: ${lock.all_waiters}.`;
  find("picture").replaceChildren(drawQueue(lock, forTime));
  find("break").disabled = lock.all_holders === 0;
  const role = (name) => (entry, i) => element("tr", {},
    ...[name + (i + 1), entry.mode, entry.label, entry.token || "", entry.owner, entry.id, forTime(entry.remaining_ms)]
      .map((text) => element("td", { textContent: text })));
  find("entries").tBodies[0].replaceChildren(...lock.holders.map(role("holder ")), ...lock.queue.map(role("waiter ")));
}

// asked is the lock as the question has shown it.
let asked = null;

function ask() {
  asked = view.detail;
  if (!asked) return;
  const holders = asked.holders.map((entry) => entry.label || "no label").slice(0, 3).join(", ");
  find("asked").textContent = `Break ${asked.name}?`;
  find("consequence").textContent = `Held by ${holders}${asked.all_holders > 3 ? " and others" : ""}. ` +
    "The holder may still work, and the next waiter is granted at once. The holder learns of it with its next renewal.";
  find("refused").textContent = "";
  find("token").value = "";
  find("question").showModal();
  find("keep").focus();
}

async function breakLock() {
  find("confirm").disabled = true;
  try {
    const response = await fetch("api/break", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Authorization": "Bearer " + find("token").value },
      body: JSON.stringify({ key: asked.key, state: asked.state }),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    find("question").close();
  } catch (error) {
    find("refused").textContent = error.message;
  } finally {
    find("confirm").disabled = false;
  }
}

let typing = 0;
find("text").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    view.text = find("text").value;
    view.page = 1;
    connect();
  }, 150);
});
function turn(by) {
  view.page = Math.min(Math.max(view.page + by, 1), view.pages);
  connect();
}
find("previous").addEventListener("click", () => turn(-1));
find("next").addEventListener("click", () => turn(1));
find("close").addEventListener("click", () => find("detail").close());
find("detail").addEventListener("close", () => {
  view.key = "";
  view.detail = null;
  connect();
});
find("break").addEventListener("click", ask);
find("keep").addEventListener("click", () => find("question").close());
// The event comes some time after the question was closed: it may be open again, with a new token.
find("question").addEventListener("close", () => { if (!find("question").open) find("token").value = ""; });
find("question").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  breakLock();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT" && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    find("text").focus();
  }
});
document.addEventListener("visibilitychange", connect);
window.addEventListener("pagehide", () => { if (stream) stream.close(); });
connect();
