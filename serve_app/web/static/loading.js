// Loads what the page shows: the list of meshes; of the mesh in view its verdicts, timeline, map and state. Each answer is an event of the
// store (store.js); nothing here draws.
import { archivedMoment } from "./archive.js";
import * as feed from "./feed.js";
import { go, read } from "./link.js";
import { dispatch, isPast, known } from "./store.js";

const MAP_PAUSE_MS = 400; // least time between two maps
const RETRY_MS = 2000; // before a failed request is repeated
const RECENT_MS = 2000; // a list of meshes from within this time gives the age of the first verdict of the stream
const MESHES_MS = 15000; // between two requests for the list of meshes
const SOON_MS = 3000; // between two such requests while a first snapshot is awaited
const UNREADY = [0, 503, 504]; // answers of a service that is starting, or of none
const GONE = [404, 422]; // answers about a moment that is not kept
const DRIFT_MS = 300000; // between two requests for the drift, which changes every six hours

/** The map and the verdict of a moment: of a snapshot that is kept, else of the archive. */
const loadMoment = (mesh, at, expand) =>
  isPast(at) ? archivedMoment(mesh, at, expand) : Promise.all([feed.map(mesh, at, expand), at ? feed.verdict(mesh, at) : null]);

/**
 * @param {{changed: (event: string) => void, decided: (mesh: string) => void, refused: () => void, isPaused: () => boolean}} on changed:
 * called after an event of the store. decided: people decided something about a mesh. refused: the service needs a token. isPaused:
 * whether it is being asked for.
 */
export function loader(on) {
  let listsUnderWay = 0, // requests for the list
    leave = null, // ends the stream of the mesh, if there is one
    soon = 0, // timer of the next request for the list
    mapDue = 0,
    driftDue = 0,
    isMapUnderWay = false,
    isTimelineUnderWay = false;

  function tell(event, what) {
    dispatch(event, what);
    on.changed(event);
  }

  function fail(error) {
    if (error.status === 401) {
      on.refused();
      return;
    }
    tell("failed", error);
    if (known.verdict || !UNREADY.includes(error.status)) return;
    tell("facts", { absent: "service" });
    listSoon();
  }

  /** Forget all data of the mesh in view, for the sake of another one. */
  function leaveFor(mesh) {
    leave?.();
    leave = null;
    tell("entered", mesh);
  }

  function enter(mesh) {
    leaveFor(mesh);
    leave = feed.follow(mesh, {
      on: (verdict) => {
        dispatch("streamed", verdict);
        add(verdict);
      },
      changed: () => on.decided(mesh),
      lost: () => tell("facts", { of: mesh, lost: true }),
      back: () => {
        const isListed = Date.now() - known.listed <= RECENT_MS;
        if (known.lost) refresh(mesh);
        if (!isListed && !listsUnderWay) list(); // the first verdict may be old: the list has its age
        tell("back", isListed);
      },
      refused: list,
    });
    refresh(mesh);
  }

  /** Keep the facts of an answer, or others if it fails. */
  const learn = (request, factsOf, failed) => request.then((found) => tell("facts", factsOf(found)), () => tell("facts", failed));

  /** Load what neither the stream nor the list of meshes contains. The data that the state depends on come first. */
  function refresh(mesh) {
    learn(feed.one(mesh), ({ source, scoring }) => ({ of: mesh, source, scoring }), { of: mesh, source: null, scoring: null });
    if (!known.drift || Date.now() >= driftDue) {
      driftDue = Date.now() + DRIFT_MS;
      learn(feed.drift(mesh), (drift) => ({ of: mesh, drift }), { of: mesh, drift: null });
    }
    on.decided(mesh);
    learn(feed.health(), (health) => ({ health }), {}); // what is known of it stays
  }

  function add(verdict) {
    const before = known.newest;
    tell("verdict", verdict); // before the slower requests
    if (known.newest === before) return;
    loadMap();
    loadTimeline();
  }

  /** Load the timeline up to the newest verdict; a failed request is repeated with the list of meshes. */
  async function loadTimeline() {
    if (isTimelineUnderWay) return; // many verdicts may come at once; the request under way covers them
    isTimelineUnderWay = true;
    try {
      for (let more = true; more;) {
        const { mesh, newest, timeline: before } = known,
          since = before?.observed_at.at(-1);
        if (!newest || newest.observed_at <= since) break;
        const news = await feed.timeline(mesh, since);
        more = mesh !== known.mesh || news.observed_at.length > 0;
        tell("timeline", { of: mesh, before, news });
      }
    } catch (error) {
      fail(error);
    }
    isTimelineUnderWay = false;
    loadMap(); // the timeline says which moments are kept
  }

  /** What the map of the view is of: the mesh, a moment, and open namespaces; null: it cannot be said yet, or is there already. */
  function wantedMap() {
    const view = read(),
      at = view.at ?? null,
      expand = [...new Set([view.expand, view.space].filter(Boolean))].join(","),
      key = [known.mesh, at ?? known.newest?.observed_at, expand].join(" ");
    return key === known.mapOf || !known.newest || (at && !known.timeline) ? null : { mesh: known.mesh, at, expand, key };
  }

  /** Load the map of the view when it has changed, but not too often, and until it is there. */
  async function loadMap() {
    if (isMapUnderWay || !wantedMap()) return;
    isMapUnderWay = true;
    await new Promise((resolve) => setTimeout(resolve, mapDue - Date.now()));
    const wanted = wantedMap(); // the view may have changed meanwhile
    let pause = MAP_PAUSE_MS;
    try {
      if (wanted) {
        const { mesh, at, expand, key } = wanted,
          [map, verdict] = await loadMoment(mesh, at, expand);
        tell("map", { of: mesh, at, map, verdict, key });
      }
    } catch (error) {
      if (wanted.at && GONE.includes(error.status)) {
        go({ at: null }, { quietly: true });
        tell("facts", { missed: wanted.at });
      } else fail(error);
      pause = RETRY_MS;
    }
    isMapUnderWay = false;
    mapDue = Date.now() + pause;
    loadMap();
  }

  /** Ask for the list of meshes. A request that hangs delays no other. */
  function list() {
    listsUnderWay++;
    loadList().finally(() => listsUnderWay--);
  }

  async function loadList() {
    if (on.isPaused()) return;
    const seen = known.newest?.sequence ?? 0; // before the answer, which may be older than what comes meanwhile
    let found = [];
    try {
      found = await feed.meshes();
    } catch (error) {
      dispatch("facts", { received: known.received ?? -Infinity });
      fail(error);
      return;
    }
    tell("meshes", found);
    const mesh = read().mesh ?? known.mesh ?? (found.find((one) => one.status === "anomalous") ?? found[0])?.mesh,
      here = found.find((one) => one.mesh === mesh);
    if (!here?.sequence) {
      awaitFirst(mesh ?? null, Boolean(here), found.length > 0);
      return;
    }
    if (mesh !== known.mesh || !leave || here.sequence < seen) enter(mesh); // fewer: the mesh was deleted and created again
    tell("dated", here);
    // The stream may be refused, or broken without the browser noticing.
    if (here.sequence > (known.newest?.sequence ?? 0)) feed.verdict(mesh).then((verdict) => mesh === known.mesh && add(verdict), fail);
    if (known.newest) loadTimeline();
  }

  /** Wait for the first snapshot of a mesh, which may be listed without one, or of any mesh. */
  function awaitFirst(mesh, isListed, hasOthers) {
    if (leave || mesh !== known.mesh) leaveFor(mesh);
    if (isListed) feed.one(mesh).then(({ source }) => tell("facts", { of: mesh, source, absent: "verdict" }), fail);
    else tell("facts", { absent: mesh && hasOthers ? "mesh" : "meshes" });
    listSoon();
  }

  /** Ask for the list again soon, because the first snapshot is awaited. */
  function listSoon() {
    clearTimeout(soon);
    soon = setTimeout(list, SOON_MS);
  }

  /** Go to the highest score of the incident that a link names, whether it is open or archived. */
  function visitPeak() {
    const { mesh, peak } = read();
    if (!peak || !mesh) return;
    feed.incidentDetail(mesh, peak).then(
      ({ strongest_at: at }) => read().peak === peak && go({ peak: null, incident: peak, at, service: null, source: null }, { quietly: true }),
      (error) => {
        go({ peak: null }, { quietly: true });
        fail(error);
      },
    );
  }

  /** Ask again for all that the stream does not send. */
  setInterval(() => {
    list();
    if (leave) refresh(known.mesh);
  }, MESHES_MS);

  return {
    /** Start with the view of the address. */
    begin() {
      visitPeak();
      list();
      if (read().mesh) enter(read().mesh); // no need to wait for the list
    },
    /** Load what the new view of the address needs. */
    turn() {
      const { mesh } = read();
      visitPeak();
      tell("view");
      if (mesh && mesh !== known.mesh) {
        enter(mesh);
        list();
      } else loadMap();
    },
    /** Forget all data, because the service needs a token. */
    forget() {
      leave?.();
      leave = null;
      tell("signedOut");
    },
  };
}
