// The page: one view (link.js), what is known of its mesh, and the parts that draw it. Data goes one way, from feed to parts.
import { banner, headline, notes } from "./banner.js";
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { comparisonView, periods } from "./comparison.js";
import { graphView } from "./graph.js";
import { incidentsView } from "./incidents.js";
import { go, read } from "./link.js";
import { sessionView } from "./session.js";
import { joined, timelineView } from "./timeline.js";
import { pulse, watcherView } from "./watcher.js";

const MAP_PAUSE_MS = 400; // between two maps at least, where snapshots come faster
const RETRY_MS = 2000; // before what failed is asked for again
const MESHES_MS = 15000; // between two looks at the list of meshes

const known = {
  mesh: null,
  newest: null,
  timeline: null,
  map: null,
  mapOf: "",
  verdict: null,
  heard: Date.now(),
  live: false,
  lost: false,
  missed: null,
  problem: null,
  health: null,
  source: null,
};
let leave = null, // ends the stream of the mesh, where one is followed
  mapDue = 0,
  mapUnderWay = false,
  timelineUnderWay = false;

const select = (service) => go({ service }, { quietly: true });
const graph = graphView({
  select,
  expand: (namespace) => go({ expand: [...new Set([...(read().expand?.split(",") ?? []), namespace])].join(",") }),
});
const timeline = timelineView({
  look,
  visit: (id) => {
    const { incidents, observed_at } = known.timeline;
    const last = incidents.find((one) => one.id === id)?.last;
    go({ at: last === observed_at.at(-1) ? null : last, incident: id });
  },
  select: (period, first) =>
    go({
      [first ? "first" : "second"]: period.join("~"),
      ...(first || read().first ? {} : { first: periods(known.timeline, incident()).first.join("~") }),
    }),
});
const incidents = incidentsView({ select, changed: () => {} });
const comparison = comparisonView({ select });
const watcher = watcherView();
const session = sessionView({ begin, end: signedOut });

/** The incident that is looked at: the one that is named, else the worst. */
function incident() {
  const named = known.verdict?.incidents.find((one) => one.id === read().incident);
  return named ?? known.verdict?.incidents[0] ?? null;
}

function look(at) {
  const newest = known.timeline?.observed_at.at(-1);
  go({ at: at === newest ? null : at }, { quietly: true });
}

// What is known.

/** Nothing is known of this mesh, and nothing is shown of another. */
function forget(mesh) {
  leave?.();
  leave = null;
  Object.assign(known, {
    mesh,
    newest: null,
    timeline: null,
    map: null,
    mapOf: "",
    verdict: null,
    source: null,
    live: false,
    lost: false,
    missed: null,
    problem: null,
    heard: Date.now(),
  });
  document.querySelector("main").classList.add("waiting");
  pulse("", "", "");
  notes([]);
}

function enter(mesh) {
  forget(mesh);
  headline("", "Connecting", "");
  leave = feed.follow(mesh, {
    on: came,
    lost: () => {
      known.lost = true;
      ticked();
    },
    back: () => {
      known.lost = false;
      ticked();
    },
    refused: list,
  });
  incidents.remember(mesh);
}

function came(verdict) {
  known.lost = false;
  if (verdict.sequence <= known.newest?.sequence) return; // a stream that begins again begins with what is known
  known.live = known.newest !== null; // the first one was there before, who knows for how long
  known.heard = Date.now();
  known.newest = verdict;
  known.problem = null;
  if (!read().at) {
    known.verdict = verdict;
    tell(); // whatever becomes of the rest
  }
  fetchMap();
  fetchTimeline();
}

/** What is missing of the timeline up to the newest verdict; what fails is asked for again with the list of meshes. */
async function fetchTimeline() {
  if (timelineUnderWay) return; // a hundred verdicts may come at once: who asks already asks for all
  timelineUnderWay = true;
  try {
    for (let told = true; told;) {
      const { mesh, newest, timeline: before } = known,
        since = before?.observed_at.at(-1);
      if (!newest || newest.observed_at <= since) break;
      const news = await feed.timeline(mesh, since);
      told = mesh !== known.mesh || news.observed_at.length > 0;
      if (mesh === known.mesh && before === known.timeline) known.timeline = joined(before, news);
    }
  } catch (error) {
    failed(error);
  }
  timelineUnderWay = false;
  draw();
}

/** The map of the moment that is looked at, as often as it changes but not more often than anybody sees. */
async function fetchMap() {
  const view = read(),
    at = view.at ?? null,
    key = [known.mesh, at ?? known.newest?.observed_at, view.expand ?? ""].join(" ");
  if (key === known.mapOf || mapUnderWay || !known.newest) return;
  const wait = mapDue - Date.now();
  if (wait > 0) {
    mapUnderWay = true;
    setTimeout(() => {
      mapUnderWay = false;
      fetchMap();
    }, wait);
    return;
  }
  mapUnderWay = true;
  let pause = MAP_PAUSE_MS;
  try {
    const mesh = known.mesh;
    const [map, verdict] = await Promise.all([feed.map(mesh, at, view.expand), at ? feed.verdict(mesh, at) : null]);
    if (mesh === known.mesh && (read().at ?? null) === at)
      Object.assign(known, { map, mapOf: key, verdict: verdict ?? known.newest, problem: null });
  } catch (error) {
    if (at && [404, 422].includes(error.status)) {
      go({ at: null }, { quietly: true });
      known.missed = at;
    } else failed(error);
    pause = RETRY_MS;
  }
  mapUnderWay = false;
  mapDue = Date.now() + pause;
  draw(); // which asks again for what was not got
}

async function list() {
  if (session.isAsking()) return;
  let found = [];
  try {
    found = await feed.meshes();
    known.lost = false;
  } catch (error) {
    failed(error);
    return;
  }
  const view = read();
  show(
    by("mesh"),
    ...found.map((one) => el("option", { value: one.mesh }, `${one.status === "anomalous" ? "● " : ""}${one.mesh}`)),
  );
  const mesh = view.mesh ?? known.mesh ?? (found.find((one) => one.status === "anomalous") ?? found[0])?.mesh;
  if (mesh === undefined) {
    empty();
    return;
  }
  by("mesh").value = mesh;
  const here = found.find((one) => one.mesh === mesh);
  document.title = `${here?.status === "anomalous" ? "● " : ""}${mesh} · TAGAE`;
  if (!here?.sequence) {
    forget(mesh);
    if (here) awaited(mesh);
    else gone(mesh);
    return;
  }
  const seen = known.newest?.sequence ?? 0;
  if (mesh !== known.mesh || !leave || here.sequence < seen) enter(mesh); // fewer: it began anew
  // A stream may be refused, and one that was cut somewhere on its way may not know it.
  if (here.sequence > seen) feed.verdict(mesh).then((verdict) => mesh === known.mesh && came(verdict), failed);
  if (known.newest) fetchTimeline();
  feed.health().then(
    (health) => {
      known.health = health;
    },
    () => {},
  );
  feed.source(mesh).then(
    (source) => mesh === known.mesh && Object.assign(known, { source }),
    () => Object.assign(known, { source: null }),
  );
  if (known.verdict?.incidents.length) incidents.remember(mesh); // others speak of them, too
}

function empty() {
  headline("", "No mesh yet", "Nothing was pushed or collected so far. The first snapshot shows here by itself.");
}

/** A mesh without a verdict; who waits for the first one is told what hinders it. */
function awaited(mesh) {
  feed.source(mesh).then((source) => {
    if (mesh !== known.mesh || known.newest) return;
    if (source.problem) headline("partial", "Nothing is collected yet", source.problem);
    else {
      const has = source.collected ? "" : "It has a baseline. ";
      headline("warming_up", "Getting to know this mesh", `${has}Its first snapshot shows here by itself.`);
    }
  }, failed);
}

function gone(mesh) {
  headline(
    "",
    `There is no mesh ${mesh}`,
    "It was deleted, or never pushed or collected. Choose another, or wait for its first snapshot.",
  );
}

/** Begin with the view of the address. */
function begin() {
  if (read().mesh) enter(read().mesh); // a link knows where it leads
  list();
}

/** Show nothing of what was known, and ask for a token. */
function signedOut() {
  forget(null);
  show(by("mesh"));
  headline("", "Sign in", "This service needs an access token.");
  document.title = "TAGAE";
  session.ask();
}

function failed(error) {
  if (error.status === 401) {
    signedOut();
    return;
  }
  if (error.status === 0) known.lost = true;
  else known.problem = error.message; // told until there is something newer to tell
  if (known.verdict) tell();
  else notes([["", error.message]]);
  ticked();
}

// What is seen.

function draw() {
  const view = read();
  if (!known.verdict) {
    fetchMap(); // a link to a moment brings its verdict with the map
    return;
  }
  document.querySelector("main").classList.remove("waiting");
  by("mesh").value = known.mesh;
  by("live").hidden = !view.at;
  tell();
  const near = view.view !== "all",
    open = incident();
  by("near").setAttribute("aria-pressed", String(near));
  by("all").setAttribute("aria-pressed", String(!near));
  by("near").textContent = open || !view.service ? "Around the suspects" : "Around what is selected";
  if (known.map) graph.draw({ mesh: known.mesh, map: known.map, incident: open, service: view.service, near });
  incidents.draw({
    mesh: known.mesh,
    verdict: known.verdict,
    service: view.service,
    live: !view.at,
    canWrite: session.canWrite(),
    newest: known.newest.observed_at,
  });
  if (known.timeline) {
    const [first, second] = [view.first?.split("~"), view.second?.split("~")];
    timeline.draw(known.timeline, { at: view.at, first, second });
    comparison.draw({ mesh: known.mesh, first, second: second ?? periods(known.timeline, open).second });
  }
  ticked();
  fetchMap();
}

/** The banner, of the verdict that is looked at. */
function tell() {
  banner({ ...known, incident: incident(), view: read() });
}

function ticked() {
  if (known.verdict) watcher.draw({ ...known, verdict: known.newest ?? known.verdict });
  else if (known.lost) pulse("lost", "the service does not answer, trying again", "");
}

// What people do.

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  by("theme").setAttribute("aria-pressed", String(dark));
  graph.redraw();
  timeline.redraw();
}

function compare() {
  const view = read();
  if (view.first || !known.timeline) {
    go({ first: null, second: null });
    return;
  }
  const both = periods(known.timeline, incident());
  go({ first: both.first.join("~"), second: both.second.join("~") });
}

function step(by_) {
  const times = known.timeline?.observed_at ?? [],
    view = read();
  const i = (view.at ? times.indexOf(view.at) : times.length - 1) + by_;
  if (times[i] !== undefined) look(times[i]);
}

const KEYS = {
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Escape: () => go({ at: null, service: null }),
  c: compare,
  "/": () => by("find").focus(),
  "?": () => by("keys").showModal(),
  w: () => go({ view: read().view === "all" ? null : "all" }),
};

addEventListener("keydown", (event) => {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    /** @type {HTMLElement} */ (event.target).matches("input, select, textarea") ||
    by("keys").open ||
    session.isAsking()
  )
    return;
  const suspects = incident()?.suspects ?? known.verdict?.suspects ?? [];
  const deed =
    KEYS[event.key] ?? (suspects[Number(event.key) - 1] && (() => select(suspects[Number(event.key) - 1].service)));
  if (!deed) return;
  event.preventDefault();
  deed();
});
addEventListener("view", () => {
  const { mesh, at } = read();
  if (session.isAsking()) return;
  known.missed = null;
  if (mesh && mesh !== known.mesh) {
    enter(mesh);
    list();
  } else {
    if (!at && known.newest) known.verdict = known.newest;
    draw();
  }
});
addEventListener("resize", () => {
  graph.resize();
  timeline.resize();
});
document.addEventListener("visibilitychange", draw);
by("mesh").addEventListener("change", () =>
  go({ mesh: by("mesh").value, at: null, service: null, incident: null, first: null, second: null, expand: null }),
);
by("live").addEventListener("click", () => go({ at: null }));
by("near").addEventListener("click", () => go({ view: null }));
by("all").addEventListener("click", () => go({ view: "all" }));
by("compare").addEventListener("click", compare);
by("help").addEventListener("click", () => by("keys").showModal());
by("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme !== "dark";
  localStorage.setItem("theme", dark ? "dark" : "light");
  theme(dark);
});
by("find").addEventListener("change", () => {
  if (known.map?.nodes.name.includes(by("find").value)) go({ service: by("find").value });
});

const preferred = localStorage.getItem("theme");
theme(preferred ? preferred === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
session.refresh().then(draw);
begin();
setInterval(list, MESHES_MS);
setInterval(ticked, 1000);
