// The demo's panel: buttons for faults, changes and controls, and the outcome of each event.

const POLL_MS = 1000;
const AFTER_PRESS_MS = [120, 450]; // the demo reads a button within a tenth of a second and sends its state with the next call
const MYSTERY = "mystery";

function element(tag, properties = {}, ...children) {
  const one = Object.assign(document.createElement(tag), properties);
  one.append(...children);
  return one;
}

function group(name, legend) {
  const buttons = element("div", { className: "buttons" });
  return { buttons, field: element("fieldset", { className: name }, element("legend", { textContent: legend }), buttons) };
}

function panel() {
  const status = element("span");
  const summary = element("summary", {}, element("strong", { textContent: "Demo" }), status);
  const learning = element("progress", { max: 1, value: 0 });
  learning.setAttribute("aria-label", "Learning this mesh");
  const faults = group("faults", "Faults: must raise an alert");
  const changes = group("changes", "Harmless changes: must not raise an alert");
  const controls = element("div", { className: "buttons controls" });
  const meaning = element("span");
  const notice = element("strong");
  notice.setAttribute("role", "status");
  const events = element("ol");
  events.setAttribute("aria-label", "Events and their outcome");
  events.tabIndex = 0; // it scrolls
  const whole = element(
    "details",
    { open: true },
    summary,
    learning,
    element("div", { className: "groups" }, faults.field, changes.field),
    controls,
    element("p", {}, notice, " ", meaning),
    events,
  );
  const section = element("section", { id: "demo" }, whole);
  section.setAttribute("aria-label", "Demo");
  return { section, status, learning, faults, changes, controls, meaning, notice, events };
}

const parts = panel();
let menu = ""; // keys of the existing buttons
let request = null; // under way

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
  mystery: button(MYSTERY, "Mystery fault", "Start a fault of any kind at any service. Find it before the detector does."),
  faults: button("faults", "Reveal faults", "Show or hide which faults are active."),
  story: button("story", "Auto-play", "Changes and faults start by themselves until you press a button."),
  other: button("other", "Other services", "Start the next fault or change at other services."),
  pause: button("pause", "Pause", "Stop sending snapshots, or resume."),
  step: button("step", "Step", "Pause, and send one snapshot."),
  slower: button("slower", "Slower", "Slow down simulated time."),
  speed: element("output", { className: "speed" }),
  faster: button("faster", "Faster", "Speed up simulated time."),
};
parts.controls.append(...Object.values(controls));
parts.meaning.textContent = "Point at a button to see what it does.";

function showMenu(options) {
  const services = new Map(options.map((option) => [option.key, option.service]));
  const keys = options.map((option) => option.key).join();
  if (keys !== menu) {
    // only when the menu changes: a button that is replaced while it is pressed gets no click
    menu = keys;
    for (const { place, isFault } of [
      { place: parts.faults, isFault: true },
      { place: parts.changes, isFault: false },
    ]) {
      const mine = options.filter((option) => option.is_fault === isFault);
      place.buttons.replaceChildren(...mine.map((option) => button(option.key, option.words, option.meaning)));
    }
  }
  for (const { meaning, key } of options) {
    const one = [...parts.section.querySelectorAll("button")].find((each) => each.dataset.key === key);
    const service = services.get(key);
    one.title = `${meaning[0].toUpperCase()}${meaning.slice(1)}. ${service ? `Next at ${service}.` : "No service is left for it."}`;
    one.dataset.spent = service ? "" : "spent";
  }
}

function showControls({ speed, paused, story, hidden }) {
  controls.pause.textContent = paused ? "Resume" : "Pause";
  controls.faults.textContent = hidden ? "Reveal faults" : "Hide faults";
  controls.story.setAttribute("aria-pressed", String(story));
  controls.pause.setAttribute("aria-pressed", String(paused));
  controls.speed.textContent = speed ? `${speed}× real time` : "full speed";
}

function enable(show) {
  for (const one of parts.section.querySelectorAll("button")) {
    one.disabled =
      !show ||
      one.dataset.spent === "spent" ||
      (show.warming_up && Boolean(one.closest("fieldset") ?? one.dataset.key === MYSTERY));
  }
}

function eventRow({ at, text, outcome, right }) {
  const when = element("time", { textContent: at ? at.slice(11, 19) : "next", dateTime: at ?? "" });
  const result = element("span", { className: right === null ? "open" : right ? "right" : "wrong", textContent: outcome });
  return element("li", {}, when, element("span", { className: "text", textContent: text }), result);
}

function showEvents({ deeds, controls: { hidden }, warming_up: warmingUp }) {
  const rows = deeds.toReversed().map(eventRow);
  if (hidden) rows.unshift(element("li", { className: "none", textContent: "Active faults are hidden." }));
  if (!rows.length && !warmingUp)
    rows.push(element("li", { className: "none", textContent: "No fault or change active yet." }));
  const text = rows.map((row) => row.textContent).join();
  if (text !== parts.events.dataset.text) {
    parts.events.dataset.text = text;
    parts.events.replaceChildren(...rows);
  }
}

function render(show) {
  const { snapshots, warm_up_snapshots: all, warming_up: warmingUp } = show;
  parts.learning.hidden = !warmingUp;
  parts.learning.value = snapshots / all;
  parts.status.className = "";
  parts.status.textContent = warmingUp ? `Learning this mesh: ${snapshots} of ${all} snapshots` : show.tally;
  if (parts.notice.textContent !== show.notice) parts.notice.textContent = show.notice;
  showMenu(show.menu);
  showControls(show.controls);
  showEvents(show);
  enable(show);
}

function fail(words) {
  parts.status.className = "wrong";
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
