// Requests to the service, and the stream of verdicts.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The address of the service, which may be below a path of a proxy. */
export const ROOT = new URL("../../", import.meta.url).href;
const AWAY = "The service does not answer.";
const of = (mesh) => `${ROOT}v1/meshes/${encodeURIComponent(mesh)}`;

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, AWAY);
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json().catch(() => null);
  // A proxy answers like this when the service is down, and Ray while the service starts.
  if (!problem && (response.status >= 502 || response.status === 404)) throw new Refused(0, AWAY);
  throw new Refused(response.status, problem?.detail ?? `${response.status} ${response.statusText}`);
}

function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

const json = (body) => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

export const meshes = () => send(`${ROOT}v1/meshes`);
export const user = () => send(`${ROOT}login`, { cache: "no-store" });
export const signIn = (token) => send(`${ROOT}login`, json({ token }));
export const signOut = () => send(`${ROOT}logout`, json({}));
export const health = () => send(`${ROOT}healthz`);
export const testAlert = () => send(`${ROOT}v1/receivers/test`, json({}));
export const ready = () => send(`${ROOT}readyz`, { cache: "no-store" });
export const verdict = (mesh, at) => send(`${of(mesh)}/verdict${query({ at })}`);
export const range = (mesh, asked, signal) => send(`${of(mesh)}/range${query(asked)}`, { signal });
export const rangeGraph = (mesh, at, expand) => send(`${of(mesh)}/map${query({ at, expand, metrics: true })}`);
export const timeline = (mesh, since) => send(`${of(mesh)}/timeline${query({ since })}`);
export const map = (mesh, at, expand) => send(`${of(mesh)}/map${query({ at, expand })}`);
export const services = (mesh, text, limit) => send(`${of(mesh)}/services${query({ text, limit })}`);
export const incidents = (mesh, asked = {}) => send(`${of(mesh)}/incidents${query(asked)}`);
export const incidentDetail = (mesh, id) => send(`${of(mesh)}/incidents/${encodeURIComponent(id)}`);
export const details = (mesh, service, caller, at, tools = null) => send(`${of(mesh)}/details${query({ service, source: caller, at, tools })}`);
export const drift = (mesh) => send(`${of(mesh)}/drift`);
export const one = (mesh) => send(of(mesh));
export const sendFeedback = (mesh, document) => send(`${of(mesh)}/feedback`, json(document));
export const undoFeedback = (mesh, incident) =>
  send(`${of(mesh)}/feedback/${encodeURIComponent(incident)}`, { method: "DELETE" });
export const act = (mesh, incident, document) => send(`${of(mesh)}/incidents/${encodeURIComponent(incident)}/actions`, json(document));
export const connectMesh = (mesh, prometheus) => send(`${of(mesh)}/source`, json({ prometheus }));
export const mutes = (mesh) => send(`${of(mesh)}/mutes`);
export const addMute = (mesh, document) => send(`${of(mesh)}/mutes`, json(document));
export const removeMute = (mesh, id) => send(`${of(mesh)}/mutes/${encodeURIComponent(id)}`, { method: "DELETE" });
export const report = (mesh, incident, format) => `${of(mesh)}/report${query({ incident, format })}`;

export function comparison(mesh, first, second, service, signal) {
  return send(
    `${of(mesh)}/comparison${query({ first_from: first[0], first_to: first[1], second_from: second[0], second_to: second[1], service })}`,
    { signal },
  );
}

const RETRY_SECONDS = [1, 2, 4, 8, 15]; // a browser stops retrying after the first refusal
const LOST_MS = 4000; // streams end now and then; a connection that is back by then does not count as lost

/**
 * Follow the verdicts of a mesh. The connection is restored whenever it is lost, without missing a verdict.
 * A hidden page has no connection: a browser has six for all tabs together.
 * @param {string} mesh its name.
 * @param {any} parts `{on(verdict), changed(), lost(), back(), refused()}`; changed: people did something. refused: the service refused, and other requests will say why.
 * @returns {() => void} a function that stops it.
 */
export function follow(mesh, { on, changed, lost, back, refused }) {
  let events = null,
    timer,
    lostTimer = null,
    last,
    failures = 0;
  const connect = () => {
    events = new EventSource(`${of(mesh)}/verdicts/stream${query({ since: last })}`);
    events.addEventListener("open", () => {
      failures = 0;
      clearTimeout(lostTimer);
      lostTimer = null;
      back();
    });
    events.addEventListener("verdict", (event) => {
      last = event.lastEventId;
      on(JSON.parse(event.data));
    });
    events.addEventListener("changed", () => changed());
    events.addEventListener("error", () => {
      lostTimer ??= setTimeout(lost, LOST_MS);
      if (events?.readyState !== EventSource.CLOSED) return; // the browser retries by itself
      refused();
      timer = setTimeout(connect, 1000 * RETRY_SECONDS[Math.min(failures++, RETRY_SECONDS.length - 1)]);
    });
  };
  const disconnect = () => {
    clearTimeout(timer);
    clearTimeout(lostTimer);
    lostTimer = null;
    events?.close();
    events = null;
  };
  const reconnect = () => {
    disconnect();
    if (document.visibilityState === "visible") connect();
  };
  document.addEventListener("visibilitychange", reconnect);
  reconnect();
  return () => {
    document.removeEventListener("visibilitychange", reconnect);
    disconnect();
  };
}
