// The page: the view of its address (link.js), what is known (store.js), and the panels that draw both. Data flows one way: from requests
// and the stream (loading.js) through the events of the store to the panels.
import { drawAbsence, showBelow } from "./absent.js";
import { coarseness } from "./archive.js";
import { banner, lastKnownAt } from "./banner.js";
import { comparisonView, periods } from "./comparison.js";
import { contextLoader } from "./context.js";
import { answer, bindControls, look } from "./controls.js";
import { decisionDialog } from "./decision.js";
import { beforeAndAfter } from "./deploys.js";
import { detectorView, pulse } from "./detector.js";
import { by, el, show } from "./dom.js";
import { drawFrontDoor } from "./front_door.js";
import { graphView } from "./graph.js";
import { drawGraphBar } from "./graph_bar.js";
import { historyView } from "./history.js";
import { incidentsView } from "./incidents.js";
import { go, read } from "./link.js";
import { loader } from "./loading.js";
import { mutesView } from "./mutes.js";
import { overviewView } from "./overview.js";
import { rangeAround, rangeBar, rangeLoader, rangeOf } from "./range.js";
import { searchView, unfold } from "./search.js";
import { panelView } from "./service_panel.js";
import { sessionView } from "./session.js";
import { drawStart } from "./start.js";
import { isPast, known, shownIncident, stateNow, stateShown } from "./store.js";
import { originOf } from "./suspects.js";
import { drawTab } from "./tab.js";
import { timelineView } from "./timeline.js";
import { ends, setMoment } from "./words.js";
import { applyZone } from "./zone.js";

const OF_VIEW = ["entered", "signedOut", "timeline", "map", "view"]; // events after which all is drawn; after others the state alone

let hasLibraries = false, // whether the library of the timeline has run
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
const loading = loader({
  changed(event) {
    if (event === "entered" || event === "signedOut") ranges.forget();
    if (OF_VIEW.includes(event)) draw();
    else tick();
  },
  decided(mesh) {
    incidents.load();
    mutes.load(mesh);
  },
  refused: askForToken,
  isPaused: () => session.isAsking(),
});
const session = sessionView({ begin: loading.begin, end: askForToken });
searchView({ mesh: () => known.mesh, select: reveal, answer });

function askForToken() {
  loading.forget();
  session.ask();
}

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

/** Draw all of the view. */
function draw() {
  const view = read();
  applyZone();
  drawMeshes();
  if (known.verdict) setMoment(known.verdict.observed_at);
  const isOverview = drawOverview();
  drawHistory(isOverview ? null : view.history);
  if (isOverview) return;
  if (known.verdict) drawMesh(view);
  else drawAbsence(known, session.needsToken());
  drawDetector();
}

/** Draw the verdict in view, and all that belongs to it. */
function drawMesh(view) {
  const { mesh, map, verdict } = known,
    newest = known.newest.observed_at,
    range = shownRange(view),
    incident = shownIncident(),
    hasCentre = Boolean(incident ?? view.service),
    near = hasCentre && view.view !== "all" && !view.space,
    { suspects } = incident ?? verdict,
    isExplained = view.service && !view.source && suspects.some((one) => one.service === view.service),
    at = view.at ?? null;
  showBelow("data");
  by("connect").setAttribute("aria-pressed", String(view.view === "start"));
  if (view.view === "start") drawStart(session.needsToken());
  bar.draw(range?.name ?? null, view.at);
  by("live").hidden = !view.at && !view.range;
  drawState();
  drawGraphBar({ map, incident, near, hasCentre });
  if (map) graph.draw({ mesh, map, incident, service: view.service, source: view.source, near, space: view.space, labels: Boolean(view.labels) });
  panel.draw({
    mesh,
    at,
    newest,
    service: view.service,
    source: view.source ?? null,
    suspects,
    incident,
    range,
    map,
    isArchived: Boolean(at && verdict.archived),
    stale: stateNow().stopped ? lastKnownAt({ ...known, verdict: known.newest }) : "",
    contextOf,
  });
  incidents.draw({
    mesh,
    verdict,
    shown: incident,
    map,
    state: stateShown(),
    service: view.service,
    panel: isExplained ? { service: view.service, incident: incident?.id ?? null } : null,
    incident: view.incident,
    live: !at,
    canWrite: session.canWrite(),
    user: session.name(),
    newest,
    contextOf,
  });
  drawFrontDoor(map?.front_door, Boolean(incident));
  mutes.draw({ mesh, verdict: known.newest, service: view.service, canWrite: session.canWrite() });
  if (known.timeline && hasLibraries) drawTime(view, range, incident);
}

/** Draw the timeline, and the comparison of two periods on it. */
function drawTime(view, range, incident) {
  const [first, second] = [view.first?.split("~"), view.second?.split("~")],
    newest = known.newest.observed_at,
    titles = new Map(known.newest.incidents.map((one) => [one.id, one.title])),
    { changes } = range?.answer ?? known.timeline;
  timeline.draw(known.timeline, { at: view.at, first, second, titles, stopped: stateNow().stopped, range, newest });
  comparison.draw({ mesh: known.mesh, first, second: second ?? periods(known.timeline, incident).second, focus: view.focus, changes, newest });
}

/** Draw the menu of the meshes. */
function drawMeshes() {
  show(by("mesh"), ...known.meshes.map((one) => el("option", { value: one.mesh }, `${one.status === "anomalous" ? "● " : ""}${one.mesh}`)));
  by("mesh").value = known.mesh;
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
  const state = stateShown();
  drawnState = `${state.name} ${state.why}`;
  if (!state.name) return; // it is known in a moment, and must not look calm until then
  const incident = shownIncident(),
    suspect = originOf(incident).service;
  banner({ ...known, state, stateNow: stateNow(), incident, context: suspect && contextOf(suspect), view: read() });
  document.querySelector("main").classList.toggle("stale", state.stopped);
  const text = read().at && known.verdict.archived ? `archive, ${coarseness(known.verdict.archived)}` : state.stopped ? `last known state, ${lastKnownAt(known)}` : "";
  for (const label of document.querySelectorAll(".stale-label")) label.textContent = text;
}

function drawDetector() {
  if (known.verdict) detector.draw({ ...known, verdict: known.newest ?? known.verdict });
  else if (known.lost) pulse("lost", "The service does not answer, retrying", "");
  else pulse("", "", "");
}

/** Draw what changes with time alone, or all if the state is another one. */
function tick() {
  const state = known.verdict && stateShown();
  if (!state || drawnState !== `${state.name} ${state.why}`) {
    draw();
    return;
  }
  drawMeshes();
  if (drawOverview()) return;
  drawState();
  drawDetector();
}

bindControls({
  select,
  shownTimeline: () => shownRange(read())?.answer ?? known.timeline,
  themed() {
    graph.redraw();
    timeline.redraw();
  },
  isAsking: () => decision.isAsking() || session.isAsking(),
});
addEventListener("DOMContentLoaded", () => {
  hasLibraries = true; // the page runs them after this module, so that the verdict does not wait for them
  draw();
});
addEventListener("view", () => {
  if (!session.isAsking()) loading.turn();
});
addEventListener("resize", () => {
  graph.redraw();
  timeline.resize();
});
document.addEventListener("visibilitychange", draw);

loading.begin();
session.refresh().then(draw);
setInterval(tick, 1000);
