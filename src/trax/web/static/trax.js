// Convenience scripts. Every page and every single action also works without them.

const body = document.body;
const skew = Date.parse(body.dataset.now) - Date.now();
const UNITS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const DAY = { weekday: "short", day: "2-digit", month: "short" };
const HOUR = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const parts = new Intl.DateTimeFormat("en-GB", { ...DAY, ...HOUR });
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function ago(moment, now) {
  const seconds = Math.floor(Math.abs(now - moment) / 1000);
  if (seconds < 1) return "now";
  const [name, size] = UNITS.find(([, size]) => seconds >= size);
  const count = Math.floor(seconds / size);
  const age = `${count} ${name}${name === "day" && count > 1 ? "s" : ""}`;
  return moment < now ? `${age} ago` : `in ${age}`;
}

// Same format as the server: `Mon 16 Nov 05:30`, with seconds only if not zero.
function short(moment) {
  const part = Object.fromEntries(parts.formatToParts(moment).map(({ type, value }) => [type, value]));
  const seconds = part.second === "00" ? "" : `:${part.second}`;
  return `${part.weekday} ${part.day} ${part.month} ${part.hour}:${part.minute}${seconds}`;
}

function tick() {
  const now = Date.now() + skew;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const moment = Date.parse(time.dateTime);
    const text = ago(moment, now);
    if (time.textContent !== text) time.textContent = text;
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const exact = new Date(moment).toISOString().slice(0, 19).replace("T", " ");
    const title = `${local.format(moment)} (${zone})\n${exact} UTC`;
    if (time.title !== title) time.title = title;
  }
  for (const time of document.querySelectorAll("time[data-local]")) {
    const text = short(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
  const clock = document.getElementById("clock");
  if (clock) clock.textContent = new Date(now).toISOString().slice(11, 19);
}

function say(text) {
  const toast = document.createElement("div");
  toast.className = "flash";
  toast.appendChild(document.createElement("p")).textContent = text;
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), 4000);
}

// Colour themes in turn: system, light, dark.
function switchTheme() {
  const root = document.documentElement;
  const next = { undefined: "dark", dark: "light", light: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem("trax.theme", next);
    else localStorage.removeItem("trax.theme");
  } catch {
    // Without storage the theme lasts until the page is closed.
  }
  say(next ? `Colours: ${next}` : "Colours: system");
}

// Selected rows, and the buttons that act on them.
function count(form) {
  const boxes = [...form.querySelectorAll("input[name=ids]")];
  const chosen = boxes.filter((box) => box.checked);
  for (const box of boxes) box.closest("tr")?.classList.toggle("is-chosen", box.checked);
  const all = form.querySelector("[data-all]");
  if (all) {
    all.checked = boxes.length > 0 && chosen.length === boxes.length;
    all.indeterminate = chosen.length > 0 && !all.checked;
  }
  const summary = form.querySelector("[data-chosen]");
  if (summary) summary.textContent = chosen.length ? `${chosen.length} chosen` : "Choose rows to act on them";
  for (const button of form.querySelectorAll("button[data-needs-rows]")) button.disabled = !chosen.length;
  for (const menu of form.querySelectorAll("details[data-needs-rows]")) {
    menu.inert = !chosen.length;
    if (menu.inert) menu.open = false;
  }
}

function enhance(root) {
  for (const all of root.querySelectorAll("[data-all]")) all.hidden = false;
  for (const form of root.querySelectorAll("form[data-rows]")) count(form);
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
  tick();
}

let last = null;
document.addEventListener("click", (event) => {
  const box = event.target.closest("input[name=ids]");
  if (box) {
    const boxes = [...box.form.querySelectorAll("input[name=ids]")];
    if (event.shiftKey && last && boxes.includes(last)) {
      const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const between of boxes.slice(from, to + 1)) between.checked = box.checked;
    }
    last = box;
    count(box.form);
  }
  const all = event.target.closest("[data-all]");
  if (all) {
    for (const each of all.form.querySelectorAll("input[name=ids]")) each.checked = all.checked;
    count(all.form);
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(() => say("Copied"), () => say("Copying is blocked by the browser"));
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Confirmation dialog for destructive actions.
const dialog = document.getElementById("confirm");
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button?.dataset.confirm || !dialog) return;
  event.preventDefault();
  const form = event.target;
  const rows = form.querySelectorAll("input[name=ids]:checked").length;
  document.getElementById("confirm-title").textContent = `${button.textContent.trim()}?`;
  document.getElementById("confirm-text").textContent = button.dataset.confirm.replace("{rows}", rows);
  const reason = document.getElementById("confirm-reason");
  reason.value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "yes") return;
    for (const old of form.querySelectorAll("[data-added]")) old.remove(); // left over if the user navigated back
    const add = (name, value) => {
      const field = form.appendChild(document.createElement("input"));
      Object.assign(field, { type: "hidden", name, value });
      field.dataset.added = "";
    };
    add(button.name, button.value);
    add("confirmed", "yes");
    if (reason.value) add("reason", reason.value);
    form.submit();
  }, { once: true });
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("input[type=search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
});

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", switchTheme);
const current = document.querySelector(".nav [aria-current]"); // on phones the navigation scrolls sideways
if (current) current.parentElement.scrollLeft = current.offsetLeft - 60;
enhance(document);
setInterval(tick, 1000);
document.addEventListener("renewed", (event) => enhance(event.detail));
