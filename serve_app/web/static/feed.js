// What the service tells: documents by request, verdicts as they are made.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const ROOT = new URL("../../", import.meta.url).href; // of the service, which may be below a path of somebody's proxy
const AWAY = "the service does not answer";
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
  // So a proxy says that nobody is behind it, and Ray's front that the service is starting.
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
export const who = () => send(`${ROOT}login`, { cache: "no-store" });
export const signIn = (token) => send(`${ROOT}login`, json({ token }));
export const signOut = () => send(`${ROOT}logout`, json({}));
export const health = () => send(`${ROOT}healthz`);
export const verdict = (mesh, at) => send(`${of(mesh)}/verdict${query({ at })}`);
export const timeline = (mesh, since) => send(`${of(mesh)}/timeline${query({ since })}`);
export const map = (mesh, at, expand) => send(`${of(mesh)}/map${query({ at, expand })}`);
export const series = (mesh, service, source) => send(`${of(mesh)}/series${query({ service, source })}`);
export const source = (mesh) => send(`${of(mesh)}/source`);
export const feedback = (mesh) => send(`${of(mesh)}/feedback`);
export const tell = (mesh, said) => send(`${of(mesh)}/feedback`, json(said));
export const takeBack = (mesh, incident) =>
  send(`${of(mesh)}/feedback/${encodeURIComponent(incident)}`, { method: "DELETE" });
export const report = (mesh, incident) => `${of(mesh)}/report${query({ incident })}`;

export function comparison(mesh, first, second) {
  return send(
    `${of(mesh)}/comparison${query({ first_from: first[0], first_to: first[1], second_from: second[0], second_to: second[1] })}`,
  );
}

const PATIENCE = [1, 2, 4, 8, 15]; // seconds between tries; a browser's own tries end with the first refusal
const CALM_MS = 4000; // a connection that is back by then was not lost: streams end now and then by themselves

/**
 * Verdicts of a mesh from now on; the connection is made anew as often as it is lost, and nothing in between is missed.
 * While nobody sees the page there is none: a browser has six for all tabs together.
 * @param {string} mesh its name.
 * @param {any} parts `{on(verdict), lost(), back(), refused()}`; refused: the service said no, for a reason that other requests tell.
 * @returns {() => void} a function that ends it.
 */
export function follow(mesh, { on, lost, back, refused }) {
  let events = null,
    timer,
    alarm = null,
    last,
    failures = 0;
  const connect = () => {
    events = new EventSource(`${of(mesh)}/verdicts/stream${query({ since: last })}`);
    events.addEventListener("open", () => {
      failures = 0;
      clearTimeout(alarm);
      alarm = null;
      back();
    });
    events.addEventListener("verdict", (event) => {
      last = event.lastEventId;
      on(JSON.parse(event.data));
    });
    events.addEventListener("error", () => {
      alarm ??= setTimeout(lost, CALM_MS);
      if (events?.readyState !== EventSource.CLOSED) return; // it tries by itself
      refused();
      timer = setTimeout(connect, 1000 * PATIENCE[Math.min(failures++, PATIENCE.length - 1)]);
    });
  };
  const end = () => {
    clearTimeout(timer);
    clearTimeout(alarm);
    alarm = null;
    events?.close();
    events = null;
  };
  const seen = () => {
    end();
    if (document.visibilityState === "visible") connect();
  };
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    end();
  };
}
