// Live refresh: on a change event, fetch the page again and replace only what differs. Scroll position, edited
// fields and selected rows are kept.

const body = document.body;
const pace = Number(body.dataset.pace || 3) * 1000;
const SLOWEST = 30_000;
const SETTLED = 1000;
const LOST_AFTER_MILLISECONDS = 4000; // the stream reconnects now and then; that is not an outage
const seen = new Map();

let source = null;
let wait = 1000;
let lookedAt = 0;
let planned = null;
let silence = null;
let isLooking = false;
let changed = new Set();
const held = new Set();

for (const section of sections(document)) seen.set(section.id, section.outerHTML);
if (seen.size) {
  connect();
  document.addEventListener("visibilitychange", () => document.hidden || plan());
  for (const end of ["change", "close", "toggle"]) document.addEventListener(end, letGo, true);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && connect());
}

function sections(root) {
  return root.querySelectorAll("[data-live][id]");
}

function connect() {
  source?.close();
  source = new EventSource(body.dataset.events);
  source.onopen = () => {
    clearTimeout(silence);
    silence = null;
    signal("live", "Live");
    wait = 1000;
  };
  source.addEventListener("hello", () => setTimeout(lookAgain, SETTLED));
  source.onerror = () => {
    silence ??= setTimeout(() => signal("lost", "Not live"), LOST_AFTER_MILLISECONDS);
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, SLOWEST);
  };
  source.addEventListener("change", (event) => {
    for (const tag of JSON.parse(event.data).tags) changed.add(tag);
    plan();
  });
}

function signal(state, text) {
  const sign = document.getElementById("signal");
  sign.hidden = false;
  sign.dataset.state = state;
  sign.textContent = text;
  document.getElementById("stale").hidden = state !== "lost";
}

// Something may have changed between rendering the page and connecting the stream.
function lookAgain() {
  changed.add("everything");
  plan();
}

// Changes are batched into one refresh; a hidden page waits until it is visible.
function plan() {
  if (planned || isLooking || document.hidden || !changed.size) return;
  planned = setTimeout(look, Math.max(0, lookedAt + pace - Date.now()));
}

async function look() {
  planned = null;
  const tags = changed;
  changed = new Set();
  if (![...sections(document)].some((section) => concerns(section, tags))) return;
  isLooking = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Trax-Live": "1" } });
    if (answer.redirected) location.reload(); // the session has ended: reload to log in
    if (answer.ok) put(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    for (const tag of tags) changed.add(tag);
  } finally {
    isLooking = false;
    lookedAt = Date.now();
    plan();
  }
}

function concerns(section, tags) {
  return tags.has("everything") || section.dataset.live.split(" ").some((tag) => tags.has(tag));
}

function put(page) {
  for (const fresh of sections(page)) {
    const section = document.getElementById(fresh.id);
    if (!section || seen.get(fresh.id) === fresh.outerHTML) continue;
    if (isHeld(section)) {
      for (const tag of section.dataset.live.split(" ")) held.add(tag);
      continue;
    }
    seen.set(fresh.id, fresh.outerHTML);
    morph(section, document.importNode(fresh, true));
    document.dispatchEvent(new CustomEvent("renewed", { detail: section }));
  }
}

// Selected rows do not move.
function isHeld(section) {
  return section.querySelector("input[name=ids]:checked, details.menu[open]") || document.querySelector("dialog[open]");
}

function letGo() {
  for (const tag of held) changed.add(tag);
  held.clear();
  plan();
}

function isEdited(field) {
  if (field === document.activeElement) return true;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((option) => option.selected !== option.defaultSelected);
  return field.value !== field.defaultValue;
}

function key(node) {
  return node.id || node.dataset?.key;
}

function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.matches("input, select, textarea") && isEdited(old)) return;
  copyAttributes(old, fresh);
  copyChildren(old, fresh);
}

function copyAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (name === "value" && "value" in old) old.value = value;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
}

function copyChildren(old, fresh) {
  const known = new Map([...old.children].filter(key).map((child) => [key(child), child]));
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const same = known.get(key(wanted));
    if (same && same !== place) old.insertBefore(same, place);
    const current = same ?? place;
    if (!current || (!same && key(current))) {
      old.insertBefore(wanted, place);
      continue;
    }
    place = current.nextSibling;
    morph(current, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
