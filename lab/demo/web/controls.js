// The demo's panel: starts faults and changes, has controls, and shows the outcome of each event.

const POLL_MS = 1000;
const AFTER_PRESS_MS = [120, 450]; // the demo reads a button within a tenth of a second and sends its state with the next call
const FIRST = "error_burst"; // selected at first: its alert comes soonest

function element(tag, properties = {}, ...children) {
  const one = Object.assign(document.createElement(tag), properties);
  one.append(...children);
  return one;
}

function panel() {
  const status = element("span", { className: "status" });
  const learning = element("progress", { max: 1, value: 0 });
  learning.setAttribute("aria-label", "Learning this mesh");
  const event = element("select", { className: "event" });
  const place = element("span", { className: "place" });
  const start = element("button", { type: "button", className: "start", textContent: "Start" });
  const notice = element("strong");
  notice.setAttribute("role", "status");
  const meaning = element("span", { className: "meaning" });
  const newest = element("summary", { textContent: "More" });
  const controls = element("div", { className: "row" });
  const events = element("ol");
  events.setAttribute("aria-label", "Events and their outcome");
  events.tabIndex = 0; // it scrolls
  const row = element(
    "div",
    { className: "row" },
    element("strong", { textContent: "Demo" }),
    status,
    element("label", {}, "Start ", event),
    place,
    start,
  );
  const more = element("details", {}, newest, controls, events);
  const foot = element("div", { className: "foot" }, element("p", {}, notice, " ", meaning), more);
  const section = element("section", { id: "demo" }, row, learning, foot);
  section.setAttribute("aria-label", "Demo");
  return { section, row, status, learning, event, place, start, notice, meaning, newest, controls, events };
}

const parts = panel();
let menu = ""; // keys of the existing options
let options = new Map(); // of the menu, by key
let request = null; // under way
let held = null; // time of the newest snapshot while the demo is paused

function button(key, words, meaning) {
  const one = element("button", { type: "button", textContent: words, title: meaning });
  one.dataset.key = key;
  const explain = () => {
    parts.meaning.textContent = one.title;
  };
  one.addEventListener("pointerenter", explain);
  one.addEventListener("focus", explain);
  one.addEventListener("click", () => press(key));
  return one;
}

const controls = {
  pause: button("pause", "Pause", "Stop sending snapshots, or resume."),
  speed: element("output", { className: "speed" }),
};
const { pause, ...others } = controls;
parts.row.append(pause);
parts.controls.append(...Object.values(others));
parts.start.addEventListener("click", () => press(parts.event.value));
parts.event.addEventListener("change", () => {
  explainEvent();
  showPlace();
});

function showMenu(list) {
  options = new Map(list.map((option) => [option.key, option]));
  const keys = list.map((option) => option.key).join();
  if (keys !== menu) {
    menu = keys;
    const group = (label, isFault) =>
      Object.assign(
        element(
          "optgroup",
          {},
          ...list.filter((one) => one.is_fault === isFault).map((one) => element("option", { value: one.key, textContent: one.words })),
        ),
        { label },
      );
    parts.event.replaceChildren(group("Faults: must raise an alert", true), group("Harmless changes: must not raise one", false));
    parts.event.value = FIRST;
  }
}

/** Say what the selected fault or change does. */
function explainEvent() {
  const option = options.get(parts.event.value);
  if (!option) return;
  const where = option.service ? "" : " No service is left for it.";
  parts.meaning.textContent = `${option.meaning[0].toUpperCase()}${option.meaning.slice(1)}.${where}`;
}

function showPlace() {
  const service = options.get(parts.event.value)?.service;
  parts.place.textContent = service ? `at ${service}` : "";
}

function showControls({ speed, paused }) {
  pause.textContent = paused ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  controls.speed.textContent = speed ? `${speed}× real time` : "full speed";
}

/** Look at the newest snapshot while the demo is paused: later, the page would say that data has stopped. */
function hold({ controls: { paused }, newest }) {
  const view = new URLSearchParams(location.hash.slice(1)),
    now = paused ? newest : null;
  if (Boolean(now) === Boolean(held)) return;
  if (now && !view.has("at")) view.set("at", now);
  else if (held && view.get("at") === held) view.delete("at");
  held = now;
  location.hash = view.toString();
}

function enable(show) {
  for (const one of parts.section.querySelectorAll("button, select")) {
    one.disabled = !show || (one === parts.start && (show.warming_up || !options.get(parts.event.value)?.service));
  }
}

function eventRow({ at, text, outcome, right }) {
  const when = element("time", { textContent: at ? at.slice(11, 19) : "next", dateTime: at ?? "" });
  const result = element("span", { className: right === null ? "open" : right ? "right" : "wrong", textContent: outcome });
  return element("li", {}, when, element("span", { className: "text", textContent: text }), result);
}

function showEvents({ deeds, warming_up: warmingUp }) {
  const rows = deeds.toReversed().map(eventRow);
  if (!rows.length && !warmingUp)
    rows.push(element("li", { className: "none", textContent: "No fault or change active yet." }));
  const text = rows.map((row) => row.textContent).join();
  if (text !== parts.events.dataset.text) {
    parts.events.dataset.text = text;
    parts.events.replaceChildren(...rows);
  }
  const newest = deeds.at(-1),
    news = newest ? `More. ${newest.text}: ${newest.outcome}` : "More";
  if (parts.newest.textContent !== news) parts.newest.textContent = news;
}

function render(show) {
  const { snapshots, warm_up_snapshots: all, warming_up: warmingUp } = show;
  parts.learning.hidden = !warmingUp;
  parts.learning.value = snapshots / all;
  parts.status.className = "status";
  parts.status.textContent = warmingUp ? `Learning this mesh: ${snapshots} of ${all} snapshots` : show.tally;
  if (parts.notice.textContent !== show.notice) parts.notice.textContent = show.notice;
  showMenu(show.menu);
  showPlace();
  if (!parts.meaning.textContent) explainEvent();
  showControls(show.controls);
  showEvents(show);
  hold(show);
  enable(show);
}

function fail(words) {
  parts.status.className = "status wrong";
  parts.status.textContent = words;
  enable(null);
}

async function poll() {
  request ??= fetch("/demo/show", { cache: "no-store" })
    .then(async (answer) => {
      if (answer.ok) render(await answer.json());
      else fail(answer.status === 401 ? "Sign in to see the demo" : "The demo is starting");
    })
    .catch(() => fail("The demo has ended"))
    .finally(() => {
      request = null;
    });
  return request;
}

async function press(key) {
  try {
    const answer = await fetch("/demo/keys", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key }),
    });
    if (!answer.ok) parts.notice.textContent = (await answer.json()).detail;
  } catch {
    fail("The demo has ended");
  }
  for (const wait of AFTER_PRESS_MS) setTimeout(poll, wait);
}

(document.querySelector("#extras") ?? document.body).append(parts.section);
enable(null);
poll();
setInterval(() => {
  if (document.visibilityState === "visible") poll();
}, POLL_MS);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") poll();
});
