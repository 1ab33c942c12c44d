// The demo's panel: what may be done to the simulated mesh, what was done, and what came of it.
// Its buttons press the keys of the terminal; whatever it shows is what the show tells.

const ASK_MS = 1000;
const AFTER_PRESS_MS = [120, 450]; // the show takes a key within a tenth of a second, and tells it with the next call
const SURPRISE = "x",
  TRUTH = "t",
  STORY = "a",
  PAUSE = " ",
  STEP = ".",
  FASTER = "+",
  SLOWER = "-",
  OTHERS = "\t";

function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function group(name, legend) {
  const buttons = made("div", { className: "buttons" });
  return { buttons, field: made("fieldset", { className: name }, made("legend", { textContent: legend }), buttons) };
}

function panel() {
  const said = made("span");
  const summary = made("summary", {}, made("strong", { textContent: "Demo" }), said);
  const learning = made("progress", { max: 1, value: 0 });
  learning.setAttribute("aria-label", "learning this mesh");
  const faults = group("faults", "Faults: somebody should be paged");
  const changes = group("changes", "Benign changes: nobody should be paged");
  const controls = made("div", { className: "buttons controls" });
  const meaning = made("span");
  const notice = made("strong");
  notice.setAttribute("role", "status");
  const deeds = made("ol");
  deeds.setAttribute("aria-label", "What was done, and what came of it");
  deeds.tabIndex = 0; // it scrolls
  const whole = made(
    "details",
    { open: true },
    summary,
    learning,
    made("div", { className: "groups" }, faults.field, changes.field),
    controls,
    made("p", {}, notice, " ", meaning),
    deeds,
  );
  const section = made("section", { id: "demo" }, whole);
  section.setAttribute("aria-label", "Demo");
  return { section, said, learning, faults, changes, controls, meaning, notice, deeds };
}

const parts = panel();
let menu = ""; // of the buttons that are there
let asking = null; // the request under way

function button(key, words, meaning) {
  const one = made("button", { type: "button", textContent: words, title: meaning });
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
  surprise: button(
    SURPRISE,
    "a fault you are not told",
    "A fault of any kind at any service: find it before the detector does.",
  ),
  truth: button(TRUTH, "tell the truth", "Show, or hide, which faults act."),
  story: button(STORY, "story", "Changes and faults come by themselves, until you press a button."),
  others: button(OTHERS, "other services", "Begin the next fault or change elsewhere."),
  pause: button(PAUSE, "pause", "Send no more snapshots, or go on."),
  step: button(STEP, "step", "Pause, and send one snapshot."),
  slower: button(SLOWER, "slower", "Less time of the mesh in a second of yours."),
  speed: made("output", { className: "speed" }),
  faster: button(FASTER, "faster", "More time of the mesh in a second of yours."),
};
parts.controls.append(...Object.values(controls));
parts.meaning.textContent = "Point at a button to read what it does.";

function showMenu(options) {
  const services = new Map(options.map((option) => [option.key, option.service]));
  const keys = options.map((option) => option.key).join();
  if (keys !== menu) {
    // made once: a button that is replaced under a finger or a cursor is not pressed
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
    one.title = `${meaning[0].toUpperCase()}${meaning.slice(1)}. ${service ? `Next at ${service}` : "No service is left for it"}; key ${key}.`;
    one.dataset.spent = service ? "" : "spent";
  }
}

function showControls({ speed, paused, story, hidden }) {
  controls.pause.textContent = paused ? "go on" : "pause";
  controls.truth.textContent = hidden ? "tell the truth" : "hide the truth";
  controls.story.setAttribute("aria-pressed", String(story));
  controls.pause.setAttribute("aria-pressed", String(paused));
  controls.speed.textContent = speed ? `${speed} times real time` : "full speed";
}

function enable(show) {
  for (const one of parts.section.querySelectorAll("button")) {
    one.disabled =
      !show ||
      one.dataset.spent === "spent" ||
      (show.warming_up && Boolean(one.closest("fieldset") ?? one.dataset.key === SURPRISE));
  }
}

function deed({ at, text, outcome, right }) {
  const when = made("time", { textContent: at ? at.slice(11, 19) : "next", dateTime: at ?? "" });
  const came = made("span", { className: right === null ? "open" : right ? "right" : "wrong", textContent: outcome });
  return made("li", {}, when, made("span", { className: "text", textContent: text }), came);
}

function showDeeds({ deeds, controls: { hidden }, warming_up: warmingUp }) {
  const rows = deeds.toReversed().map(deed);
  if (hidden)
    rows.unshift(
      made("li", { className: "none", textContent: "Whether a fault acts is hidden: “tell the truth” tells." }),
    );
  if (!rows.length && !warmingUp)
    rows.push(made("li", { className: "none", textContent: "Nothing was done to the mesh yet." }));
  const text = rows.map((row) => row.textContent).join();
  if (text !== parts.deeds.dataset.text) {
    parts.deeds.dataset.text = text;
    parts.deeds.replaceChildren(...rows);
  }
}

function render(show) {
  const { snapshots, warm_up_snapshots: all, warming_up: warmingUp } = show;
  parts.learning.hidden = !warmingUp;
  parts.learning.value = snapshots / all;
  parts.said.className = "";
  parts.said.textContent = warmingUp ? `learning this mesh: ${snapshots} of ${all} snapshots` : show.tally;
  if (parts.notice.textContent !== show.notice) parts.notice.textContent = show.notice;
  showMenu(show.menu);
  showControls(show.controls);
  showDeeds(show);
  enable(show);
}

function fail(words) {
  parts.said.className = "wrong";
  parts.said.textContent = words;
  enable(null);
}

async function ask() {
  asking ??= fetch("/demo/show", { cache: "no-store" })
    .then(async (answer) => {
      if (answer.ok) render(await answer.json());
      else fail(answer.status === 401 ? "sign in to see the demo" : "the demo is starting");
    })
    .catch(() => fail("the demo has ended"))
    .finally(() => {
      asking = null;
    });
  return asking;
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
    fail("the demo has ended");
  }
  for (const wait of AFTER_PRESS_MS) setTimeout(ask, wait);
}

(document.querySelector("#extras") ?? document.body).append(parts.section);
enable(null);
ask();
setInterval(() => {
  if (document.visibilityState === "visible") ask();
}, ASK_MS);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") ask();
});
