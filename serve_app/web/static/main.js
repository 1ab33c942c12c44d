// The page: the view of its address (link.js), what is known (store.js), and the panels that draw both. Data flows one way: from requests
// and the stream through the events of the store to the panels.
import { banner, headline, lastKnownAt, showNotes, stopText } from "./banner.js";
import { contextLoader } from "./context.js";
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { decisionDialog } from "./decision.js";
import { comparisonView, periods } from "./comparison.js";
import { beforeAndAfter } from "./deploys.js";
import { graphView } from "./graph.js";
import { historyView } from "./history.js";
import { incidentsView } from "./incidents.js";
import { go, read, visit } from "./link.js";
import { mutesView } from "./mutes.js";
import { overviewView } from "./overview.js";
import { archivedMoment, coarseness } from "./archive.js";
import { chart } from "./chart.js";
import { panelView } from "./panel.js";
import { rangeAround, rangeBar, rangeLoader, rangeOf } from "./range.js";
import { searchView, unfold } from "./search.js";
import { sessionView } from "./session.js";
import { alerts } from "./severity.js";
import { drawStart } from "./start.js";
import { dispatch, isPast, known, shownIncident, stateNow, stateShown } from "./store.js";
import { drawTab } from "./tab.js";
import { timelineView } from "./timeline.js";
import { detectorView, pulse } from "./detector.js";
import { ends, namespace, readable, setMoment, time } from "./words.js";
import { applyZone } from "./zone.js";

const MAP_PAUSE_MS = 400; // least time between two maps
const RETRY_MS = 2000; // before a failed request is repeated
const RECENT_MS = 2000; // a list of meshes from within this time gives the age of the first verdict of the stream
const MESHES_MS = 15000; // between two requests for the list of meshes
const SOON_MS = 3000; // between two such requests while a first snapshot is awaited
const UNREADY = [0, 503, 504]; // answers of a service that is starting, or of none
const GONE = [404, 422]; // answers about a moment that is not kept
const DRIFT_MS = 300000; // between two requests for the drift, which changes every six hours

let listsUnderWay = 0, // requests for the list
  leave = null, // ends the stream of the mesh, if there is one
  soon = 0, // timer of the next request for the list
  mapDue = 0,
  driftDue = 0,
  mapUnderWay = false,
  timelineUnderWay = false,
  hasLibraries = false, // whether the library of the timeline has run
  drawnState = ""; // name and reason of the state that is drawn

/** Select a service or the calls to it from one caller; null: nothing. The focus goes to their panel. */
function select(service, source = null) {
  if (service) panel.enter({ mesh: known.mesh, service, source });
  go({ service, source }, { quietly: true });
}

/** Select a service of the mesh that may be folded, or calls to it, and draw them. */
function reveal(service, source = null) {
  const named = source ? [source, service] : [service];
  panel.enter({ mesh: known.mesh, service, source });
  go({ service, source, ...unfold(read(), named, known.map?.collapsed ?? []) });
}

const graph = graphView({
  select,
  enter: (space) => go({ space, view: "all" }),
});
const timeline = timelineView({
  look,
  visit: ({ id, first, last }) => {
    const isOpen = last === known.timeline.observed_at.at(-1),
      kept = known.timeline.incidents.find((one) => one.id === id)?.last, // the last snapshot that has it
      middle = new Date(500 * (ends(first) + ends(last))).toISOString(); // its end in the archive may be calm again
    go({ at: isOpen ? null : (kept ?? middle), incident: id });
  },
  zoom: (range) => go({ range }),
  deploy: (change) => go(beforeAndAfter(change)),
  select: (period, first) =>
    go({
      [first ? "first" : "second"]: period.join("~"),
      ...(first || read().first ? {} : { first: periods(known.timeline, shownIncident()).first.join("~") }),
    }),
});
const ranges = rangeLoader(draw);
const context = contextLoader(draw);
const bar = rangeBar({
  choose: (range) => go({ range, at: range ? read().at : null }),
  jump: (at) => go({ at, range: isPast(at) ? rangeAround(at) : null }),
});
const decision = decisionDialog();
const mutes = mutesView(decision);
const incidents = incidentsView({ select, ask: decision.ask, mute: mutes.mute });
const past = historyView({ leave: () => go({ history: null }) });
const comparison = comparisonView({ select });
const panel = panelView({ select, look });
const detector = detectorView();
const overview = overviewView();
searchView({ mesh: () => known.mesh, select: reveal, answer });
const session = sessionView({ begin, end: askForToken });

/** The namespaces that are drawn service by service, with one more. */
const withExpanded = (name) => [...new Set([...(read().expand?.split(",") ?? []), name])].join(",");

/** What is known of the range of the view; null: it is the live window. */
function shownRange(view) {
  const name = rangeOf(view, known.timeline?.kept_from);
  return name && known.newest ? ranges.load(known.mesh, name, known.newest.observed_at) : null;
}

/** What people look up first about a suspect; null: not loaded. Only snapshots have it. */
function contextOf(/** @type {string} */ service) {
  if (!known.verdict) return null;
  const at = read().at ?? null,
    { archived, observed_at: shown } = known.verdict;
  if (archived || (at && ends(at) !== ends(shown))) return null; // the verdict of the moment is on its way
  return context({ mesh: known.mesh, at, newest: known.newest.observed_at }, service);
}

/** The map and the verdict of a moment: of a snapshot that is kept, else of the archive. */
const loadMoment = (mesh, at, expand) =>
  isPast(at) ? archivedMoment(mesh, at, expand) : Promise.all([feed.map(mesh, at, expand), at ? feed.verdict(mesh, at) : null]);

function look(at) {
  const newest = known.timeline?.observed_at.at(-1);
  go({ at: at === newest ? null : at }, { quietly: true });
}

// Data

/** Forget all data, and show nothing of the mesh before. */
function forget(mesh) {
  leave?.();
  leave = null;
  ranges.forget();
  dispatch("entered", mesh);
  drawnState = "";
  waitFor("data");
  drawTab(mesh);
  pulse("", "", "");
  showNotes([]);
}

/** Show frames for the data that come, or none if the page has nothing to show below the banner. */
function waitFor(what) {
  const { classList } = document.querySelector("main");
  classList.toggle("waiting", what === "data");
  classList.toggle("nothing", what === "mesh");
  by("start").hidden = true;
}

function enter(mesh) {
  forget(mesh);
  headline(null, "Connecting", "");
  leave = feed.follow(mesh, {
    on: (verdict) => {
      dispatch("streamed", verdict);
      addVerdict(verdict);
    },
    changed: () => loadDecisions(mesh),
    lost: () => {
      learn({ lost: true });
    },
    back: () => {
      const isListed = Date.now() - known.listed <= RECENT_MS;
      if (known.lost) refresh(mesh);
      dispatch("back", isListed);
      if (!isListed && !listsUnderWay) list(); // the first verdict may be old: the list has its age
      tick();
    },
    refused: list,
  });
  refresh(mesh);
}

/** Keep facts about the mesh `of`, unless the page shows another one by then. */
function learn(facts) {
  dispatch("facts", facts);
  tick();
}

/** Keep the facts of an answer, or others if it fails. */
const learnFrom = (request, factsOf, failed) => request.then((found) => learn(factsOf(found)), () => learn(failed));

/** Load what neither the stream nor the list of meshes contains. The data that the state depends on come first. */
function refresh(mesh) {
  learnFrom(feed.one(mesh), ({ source, scoring }) => ({ of: mesh, source, scoring }), { of: mesh, source: null, scoring: null });
  if (!known.drift || Date.now() >= driftDue) {
    driftDue = Date.now() + DRIFT_MS;
    learnFrom(feed.drift(mesh), (drift) => ({ of: mesh, drift }), { of: mesh, drift: null });
  }
  loadDecisions(mesh);
  learnFrom(feed.health(), (health) => ({ health }), {}); // what is known of it stays
}

/** Load what people decided, also on other pages. */
function loadDecisions(mesh) {
  incidents.load();
  mutes.load(mesh);
}

function addVerdict(verdict) {
  const before = known.newest;
  dispatch("verdict", verdict);
  if (known.newest === before) return;
  if (!read().at) drawState(); // before the slower requests
  fetchMap();
  fetchTimeline();
}

/** Load the timeline up to the newest verdict; a failed request is repeated with the list of meshes. */
async function fetchTimeline() {
  if (timelineUnderWay) return; // many verdicts may come at once; the request under way covers them
  timelineUnderWay = true;
  try {
    for (let more = true; more;) {
      const { mesh, newest, timeline: before } = known,
        since = before?.observed_at.at(-1);
      if (!newest || newest.observed_at <= since) break;
      const news = await feed.timeline(mesh, since);
      more = mesh !== known.mesh || news.observed_at.length > 0;
      dispatch("timeline", { of: mesh, before, news });
    }
  } catch (error) {
    showFailure(error);
  }
  timelineUnderWay = false;
  draw();
}

/** Load the map of the view when it has changed, but not too often. */
async function fetchMap() {
  const view = read(),
    at = view.at ?? null,
    expand = [...new Set([view.expand, view.space].filter(Boolean))].join(","),
    key = [known.mesh, at ?? known.newest?.observed_at, expand].join(" ");
  if (key === known.mapOf || mapUnderWay || !known.newest || (at && !known.timeline)) return; // the timeline says what is kept
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
    const [map, verdict] = await loadMoment(mesh, at, expand);
    dispatch("map", { of: mesh, at, map, verdict, key });
  } catch (error) {
    if (at && GONE.includes(error.status)) {
      go({ at: null }, { quietly: true });
      dispatch("facts", { missed: at });
    } else showFailure(error);
    pause = RETRY_MS;
  }
  mapUnderWay = false;
  mapDue = Date.now() + pause;
  draw(); // repeats a request that failed
}

/** Ask for the list of meshes. A request that hangs delays no other. */
function list() {
  listsUnderWay++;
  loadList().finally(() => listsUnderWay--);
}

async function loadList() {
  if (session.isAsking()) return;
  const seen = known.newest?.sequence ?? 0; // before the answer, which may be older than what comes meanwhile
  let found = [];
  try {
    found = await feed.meshes();
  } catch (error) {
    dispatch("facts", { received: known.received ?? -Infinity });
    showFailure(error);
    return;
  }
  const view = read();
  dispatch("meshes", found);
  drawOverview();
  show(
    by("mesh"),
    ...found.map((one) => el("option", { value: one.mesh }, `${one.status === "anomalous" ? "● " : ""}${one.mesh}`)),
  );
  const mesh = view.mesh ?? known.mesh ?? (found.find((one) => one.status === "anomalous") ?? found[0])?.mesh;
  if (mesh === undefined) {
    empty();
    listSoon();
    return;
  }
  by("mesh").value = mesh;
  const here = found.find((one) => one.mesh === mesh);
  if (!here?.sequence) {
    forget(mesh);
    if (here) showWithoutVerdict(mesh);
    else if (found.length) showUnknown(mesh);
    else empty();
    listSoon();
    return;
  }
  if (mesh !== known.mesh || !leave || here.sequence < seen) enter(mesh); // fewer: the mesh was deleted and created again
  dispatch("dated", here);
  // The stream may be refused, or broken without the browser noticing.
  if (here.sequence > (known.newest?.sequence ?? 0)) feed.verdict(mesh).then((verdict) => mesh === known.mesh && addVerdict(verdict), showFailure);
  if (known.newest) fetchTimeline();
}

/** Ask for the list again soon, because the first snapshot is awaited. */
function listSoon() {
  clearTimeout(soon);
  soon = setTimeout(list, SOON_MS);
}

/** Show how a first mesh is connected. */
function empty() {
  waitFor("mesh");
  headline(null, "No mesh yet", "Connect one in a minute. Its first snapshot appears here automatically.");
  drawStart(session.needsToken(), `No snapshot has arrived yet. Checked at ${time(Date.now(), true)}, and every 3 s.`);
}

/** Show a mesh without a verdict, and the problem of its source if there is one. */
function showWithoutVerdict(mesh) {
  feed.one(mesh).then(({ source }) => {
    if (mesh !== known.mesh || known.newest) return;
    if (source?.problem) showNothing("failing", "No data collected yet, status unknown", stopText(source, false));
    else {
      const has = source?.collected ? "" : "It has a baseline. ";
      showNothing("", "Learning this mesh", `${has}Its first snapshot appears here automatically.`);
    }
  }, showFailure);
}

/** Show that a mesh has no verdict, and why; without a reason it is learning. */
function showNothing(why, head, story) {
  const state = { name: why ? "unknown" : "learning", why, isOpen: false };
  waitFor("mesh");
  headline(state, head, story);
  drawTab(known.mesh, state);
}

function showUnknown(mesh) {
  waitFor("mesh");
  headline(
    null,
    `No mesh named ${mesh}`,
    "It was deleted, or has no snapshot yet. Choose another mesh, or wait for its first snapshot.",
  );
}

/** Ask again for all that the stream does not send. */
function update() {
  list();
  if (leave) refresh(known.mesh);
}

/** Go to the highest score of the incident that a link names, whether it is open or archived. */
function visitPeak() {
  const { mesh, peak } = read();
  if (!peak || !mesh) return;
  feed.incidentDetail(mesh, peak).then(
    ({ strongest_at: at }) => read().peak === peak && go({ peak: null, incident: peak, at, service: null, source: null }, { quietly: true }),
    (error) => {
      go({ peak: null }, { quietly: true });
      showFailure(error);
    },
  );
}

/** Start with the view of the address. */
function begin() {
  visitPeak();
  list();
  if (read().mesh) enter(read().mesh); // no need to wait for the list
}

/** Forget all data, and ask for a token. */
function askForToken() {
  forget(null);
  show(by("mesh"));
  waitFor("mesh");
  headline(null, "Sign in", "Sign in to see the meshes of this service.");
  session.ask();
}

function showFailure(error) {
  if (error.status === 401) {
    askForToken();
    return;
  }
  dispatch("failed", error);
  if (!known.verdict) {
    if (UNREADY.includes(error.status)) {
      headline(null, "TAGAE is not ready yet", "It is starting or restarting. This page continues by itself.");
      listSoon();
    } else showNotes([["", error.message]]);
  }
  tick();
}

// Drawing

function draw() {
  const view = read();
  applyZone();
  if (known.verdict) setMoment(known.verdict.observed_at);
  const isOverview = drawOverview();
  drawHistory(isOverview ? null : view.history);
  if (isOverview) return;
  if (!known.verdict) {
    fetchMap(); // loads the verdict of a link with the map
    return;
  }
  waitFor("nothing more");
  by("connect").setAttribute("aria-pressed", String(view.view === "start"));
  if (view.view === "start") drawStart(session.needsToken());
  const range = shownRange(view);
  bar.draw(range?.name ?? null, view.at);
  by("mesh").value = known.mesh;
  by("live").hidden = !view.at && !view.range;
  drawState();
  const open = shownIncident(),
    hasCentre = Boolean(open ?? view.service),
    near = hasCentre && view.view !== "all" && !view.space;
  by("near").disabled = !hasCentre;
  by("near").setAttribute("aria-pressed", String(near));
  by("all").setAttribute("aria-pressed", String(!near));
  by("near").textContent = open || !view.service ? "Suspects" : "Selection";
  if (known.map) {
    drawFilters(known.map, view);
    graph.draw({
      mesh: known.mesh,
      map: known.map,
      incident: open,
      service: view.service,
      source: view.source,
      near,
      space: view.space,
      labels: Boolean(view.labels),
    });
  }
  const { suspects } = open ?? known.verdict,
    isExplained = view.service && !view.source && suspects.some((one) => one.service === view.service);
  panel.draw({
    mesh: known.mesh,
    at: view.at ?? null,
    newest: known.newest.observed_at,
    service: view.service,
    source: view.source ?? null,
    suspects,
    incident: open,
    range,
    map: known.map,
    isArchived: Boolean(view.at && known.verdict.archived),
    stale: stateNow().stopped ? lastKnownAt({ ...known, verdict: known.newest }) : "",
    contextOf,
  });
  incidents.draw({
    mesh: known.mesh,
    verdict: known.verdict,
    shown: open,
    map: known.map,
    state: stateShown(),
    service: view.service,
    panel: isExplained ? { service: view.service, incident: open?.id ?? null } : null,
    incident: view.incident,
    live: !view.at,
    canWrite: session.canWrite(),
    user: session.name(),
    newest: known.newest.observed_at,
    contextOf,
  });
  drawFrontDoor(known.map?.front_door);
  mutes.draw({ mesh: known.mesh, verdict: known.newest, service: view.service, canWrite: session.canWrite() });
  if (known.timeline && hasLibraries) {
    const [first, second] = [view.first?.split("~"), view.second?.split("~")];
    const titles = new Map(known.newest.incidents.map((one) => [one.id, one.title]));
    timeline.draw(known.timeline, { at: view.at, first, second, titles, stopped: stateNow().stopped, range, newest: known.newest.observed_at });
    const over = range?.answer ?? known.timeline;
    comparison.draw({ mesh: known.mesh, first, second: second ?? periods(known.timeline, open).second, focus: view.focus, changes: over.changes, newest: known.newest.observed_at });
  }
  drawDetector();
  fetchMap();
}

/** Draw the traffic of users, now and usually; a past moment has none. */
function drawFrontDoor(door) {
  by("front-door").hidden = !door;
  if (!door) return;
  const { times, metrics } = door,
    view = { at: times.length - 1, cursor: null };
  show(by("front-door-charts"), ...metrics.map((one) => chart({ ...one, times, incidents: [], changes: [] }, view)));
}

/** Draw the overview instead of a mesh, if the link asks for it. Returns whether it did. */
function drawOverview() {
  const isAsked = read().view === "meshes";
  by("all-meshes").hidden = known.meshes.length < 2 || isAsked;
  by("overview").hidden = !isAsked;
  document.querySelector("main").classList.toggle("overview", isAsked);
  if (isAsked) overview.draw(known.meshes, known.listed);
  return isAsked;
}

/** The filters of the graph: the namespaces of the mesh, and whether calls have labels. */
function drawFilters({ nodes }, view) {
  const { space = "", labels } = view;
  const spaces = [...new Set(nodes.name.map(namespace))].sort(),
    all = space && !spaces.includes(space) ? [...spaces, space] : spaces;
  show(by("space"), el("option", { value: "" }, "All namespaces"), ...all.map((one) => el("option", { value: one }, one)));
  by("space").value = space;
  by("labels").checked = Boolean(labels);
}

/** Draw the history instead of the mesh if the link asks for it. */
function drawHistory(history) {
  const wasOpen = !by("history").hidden,
    isOpen = Boolean(history);
  by("history").hidden = !isOpen;
  by("open-history").setAttribute("aria-pressed", String(isOpen));
  document.querySelector("main").classList.toggle("in-history", isOpen);
  if (isOpen && known.mesh) past.draw({ mesh: known.mesh, history, newest: known.newest?.observed_at });
  if (wasOpen && !isOpen) {
    graph.redraw();
    timeline.resize();
  }
}

/** Draw the state: the tab, the banner of the verdict in view, and whether the rest of the page is out of date. */
function drawState() {
  if (known.newest) drawTab(known.mesh, stateNow(), known.newest);
  if (!known.verdict) return;
  const state = stateShown();
  drawnState = `${state.name} ${state.why}`;
  if (!state.name) return; // it is known in a moment, and must not look calm until then
  const incident = shownIncident(),
    suspect = incident?.suspects[0]?.service;
  banner({ ...known, state, stateNow: stateNow(), incident, context: suspect && contextOf(suspect), view: read() });
  document.querySelector("main").classList.toggle("stale", state.stopped);
  const text = read().at && known.verdict.archived ? `archive, ${coarseness(known.verdict.archived)}` : state.stopped ? `last known state, ${lastKnownAt(known)}` : "";
  for (const label of document.querySelectorAll(".stale-label")) label.textContent = text;
}

/** Draw what changes with time alone. */
function tick() {
  if (drawOverview()) return;
  if (known.verdict) {
    const state = stateShown();
    if (drawnState !== `${state.name} ${state.why}`) draw();
    else drawState();
  }
  drawDetector();
}

/** Send a test alert to all receivers of notifications, and say which ones took it. */
async function sendTestAlert() {
  const say = (text) => (by("test-alert-sent").textContent = text);
  say("Sending");
  try {
    const { receivers } = await feed.testAlert();
    const told = receivers.map((one) => `${one.kind} ${one.name}: ${one.failed ? one.detail || one.failed : "sent"}`);
    say(told.join("; ") || "No receivers are set; add some to [notify] in the settings.");
  } catch (error) {
    say(error.message);
  }
}

function drawDetector() {
  if (known.verdict) detector.draw({ ...known, verdict: known.newest ?? known.verdict });
  else if (known.lost) pulse("lost", "The service does not answer, retrying", "");
}

// Controls

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  by("theme").setAttribute("aria-pressed", String(dark));
  graph.redraw();
  timeline.redraw();
}

function compare() {
  const view = read();
  const over = shownRange(view)?.answer ?? known.timeline;
  if (view.first || !over) {
    go({ first: null, second: null, focus: null });
    return;
  }
  const both = periods(over, shownIncident());
  go({ first: both.first.join("~"), second: both.second.join("~") });
}

function toggleHistory() {
  const { history, view } = read();
  go({ history: history ? null : "now", view: view === "meshes" ? null : view });
}

function step(count) {
  const view = read(),
    times = (shownRange(view)?.answer ?? known.timeline)?.observed_at ?? [];
  const i = (view.at ? times.indexOf(view.at) : times.length - 1) + count;
  if (times[i] !== undefined) look(times[i]);
}

/** Go to the beginning of an incident: of the one in view or before it, or of the next. @param {-1 | 1} direction */
function visitNext(direction) {
  const newest = known.timeline?.observed_at.at(-1),
    at = ends(read().at ?? newest),
    all = alerts((shownRange(read())?.answer ?? known.timeline)?.incidents ?? []),
    found = direction < 0 ? all.findLast((one) => ends(one.first) < at) : all.find((one) => ends(one.first) > at);
  if (found) go({ at: found.first === newest ? null : found.first, incident: found.id }, { quietly: true });
  else answer(`There is no ${direction < 0 ? "earlier" : "later"} incident in the timeline.`);
}

/** Show the suspects, or the selection, with what is around them. */
function lookAround() {
  const { service, space, expand } = read();
  go({ view: null, space: null, expand: service && space ? withExpanded(space) : expand });
}

/** Say why a control did nothing. */
function answer(text) {
  by("answer").textContent = readable(text);
}

function selectSuspect(rank) {
  const suspects = shownIncident()?.suspects ?? known.verdict?.suspects ?? [];
  if (suspects[rank - 1]) select(suspects[rank - 1].service);
  else answer(`There is no suspect ${rank}.`);
}

const KEYS = {
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  "[": () => visitNext(-1),
  "]": () => visitNext(1),
  Escape: () => go(read().history ? { history: null } : { at: null, service: null, source: null, range: null }),
  p: () => {
    const { service, source } = read();
    if (service) select(service, source ?? null);
    else selectSuspect(1);
  },
  c: compare,
  h: toggleHistory,
  "/": () => by("find").focus(),
  "?": () => by("keys").showModal(),
  w: () => {
    if (by("near").disabled) answer("There is no incident, and no service is selected. The graph shows the whole mesh.");
    else if (read().view === "all") lookAround();
    else go({ view: "all" });
  },
};

addEventListener("keydown", (event) => {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    /** @type {HTMLElement} */ (event.target).matches("input, select, textarea") ||
    by("keys").open ||
    decision.isAsking() ||
    session.isAsking()
  )
    return;
  const action = KEYS[event.key] ?? (/^[1-9]$/.test(event.key) ? () => selectSuspect(Number(event.key)) : null);
  if (!action) return;
  event.preventDefault();
  answer("");
  action();
});
addEventListener("DOMContentLoaded", () => {
  hasLibraries = true; // the page runs them after this module, so that the verdict does not wait for them
  draw();
});
addEventListener("view", () => {
  const { mesh } = read();
  if (session.isAsking()) return;
  visitPeak();
  dispatch("view");
  if (mesh && mesh !== known.mesh) {
    enter(mesh);
    list();
  } else draw();
});
addEventListener("resize", () => {
  graph.redraw();
  timeline.resize();
});
document.addEventListener("visibilitychange", draw);
by("mesh").addEventListener("change", () => visit({ mesh: by("mesh").value, history: read().history ? "now" : null }));
by("live").addEventListener("click", () => go({ at: null, range: null }));
by("near").addEventListener("click", lookAround);
by("all").addEventListener("click", () => go({ view: "all" }));
by("space").addEventListener("change", () => {
  const space = by("space").value;
  go({ space: space || null, view: space ? "all" : read().view });
});
by("labels").addEventListener("change", () => go({ labels: by("labels").checked ? "calls" : null }));
by("compare").addEventListener("click", compare);
by("open-history").addEventListener("click", toggleHistory);
by("connect").addEventListener("click", () => go({ view: read().view === "start" ? null : "start" }));
by("menu").addEventListener("click", () => {
  const isOpen = by("menu").getAttribute("aria-expanded") !== "true";
  by("menu").setAttribute("aria-expanded", String(isOpen));
});
by("help").addEventListener("click", () => by("keys").showModal());
by("test-alert").addEventListener("click", sendTestAlert);
by("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme !== "dark";
  localStorage.setItem("theme", dark ? "dark" : "light");
  theme(dark);
});

const preferred = localStorage.getItem("theme");
theme(preferred ? preferred === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
begin();
session.refresh().then(draw);
setInterval(update, MESHES_MS);
setInterval(tick, 1000);
