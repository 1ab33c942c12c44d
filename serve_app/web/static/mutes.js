// Mutes: what raises no alert, until when, by whom and why; and the questions that add one.
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { originOf } from "./suspects.js";
import { ends, namespace, plural, someOf, suspectsFirst, timeOrDateTime } from "./words.js";

const MAX_NAMES = 3,
  REASON_LENGTH = 200, // limit of the service
  SUSPECTS = 3; // offered while nothing is selected
const TIMES = [
  ["900", "15 minutes"],
  ["3600", "1 hour"],
  ["14400", "4 hours"],
  ["86400", "1 day"],
  ["604800", "1 week"],
];
const ORIGINS = { settings: "from the settings; change it there", snapshot: "from the snapshots of this mesh" };

/** @param {{ask: (question: import("./decision.js").Question) => void}} on opens the dialog. */
export function mutesView(on) {
  let kept = [],
    of = null,
    drawn = null,
    failed = "";

  /** Load the mutes of a mesh; if that fails, keep what is known. */
  async function load(mesh) {
    if (mesh !== of) kept = [];
    of = mesh;
    const loaded = await feed.mutes(mesh).catch(() => null);
    if (loaded && mesh === of) kept = loaded.mutes;
    redraw();
  }

  /** @param {any} next `{mesh, verdict, service, canWrite}`; verdict: the newest one. */
  function draw(next) {
    drawn = next;
    redraw();
  }

  function redraw() {
    if (!drawn) return;
    const others = drawn.verdict.muted.filter((one) => one.origin !== "api"),
      count = kept.length + others.length;
    by("mutes-title").textContent = count ? plural(count, "mute") : "No mutes";
    by("mute").hidden = !drawn.canWrite;
    show(by("mute-list"), ...kept.map(row), ...others.map(foreignRow));
    by("mute-failed").textContent = failed;
  }

  function row(mute) {
    const hides = drawn.verdict.muted.find((one) => one.id === mute.id)?.hides ?? [],
      since = mute.in_force ? "" : `from ${time(mute.start)} `,
      who = mute.given_by ? `, by ${mute.given_by}` : "";
    return el(
      "li",
      {},
      el("b", {}, names(mute.services)),
      el("span", {}, ` ${since}until ${time(mute.end)}${who}: ${mute.reason}`),
      hides.length ? el("span", { class: "hides" }, `Hides an incident of ${names(suspectsFirst(hides, drawn.verdict))}.`) : null,
      drawn.canWrite
        ? el(
            "button",
            { type: "button", "data-key": `unmute ${mute.id}`, "aria-label": `Unmute ${names(mute.services)}`, click: () => unmute(mute) },
            "Unmute",
          )
        : null,
    );
  }

  const foreignRow = (mute) =>
    el(
      "li",
      {},
      el("b", {}, names(mute.services)),
      el("span", {}, `${mute.until ? ` until ${time(mute.until)}` : ""}: ${mute.reason} (${ORIGINS[mute.origin] ?? mute.origin})`),
    );

  /** 12:40 UTC, with its date if it is another day. */
  function time(at) {
    return timeOrDateTime(at, drawn.verdict.observed_at);
  }

  async function unmute(mute) {
    failed = "";
    try {
      await feed.removeMute(of, mute.id);
    } catch (error) {
      failed = `${names(mute.services)} stays muted. ${error.message}`;
    }
    await load(of);
  }

  /** Ask what to mute, for how long and why. @param {any} [incident] whose services are offered. */
  function askForMute(incident) {
    const { mesh, verdict, service } = drawn,
      options = targets(verdict, service, incident);
    on.ask({
      title: incident ? "Mute the services of this incident" : "Mute",
      about:
        "A muted service raises no alert. It is still watched." +
        (incident || service ? "" : " To mute another service, select it in the graph first."),
      choices: [
        { name: "what", label: "What", options: options.map(([text], i) => [String(i), text]) },
        { name: "seconds", label: "For", options: TIMES, value: "3600" },
      ],
      note: { label: "Reason", isRequired: true, limit: REASON_LENGTH },
      action: "Mute",
      send: async ({ what, seconds, note }) => {
        const end = new Date(1000 * (ends(verdict.observed_at) + Number(seconds))).toISOString(),
          services = options[Number(what)][1];
        await feed.addMute(mesh, { end, reason: note, ...(services.length ? { services } : {}) });
        await load(mesh);
      },
    });
  }

  by("mute").addEventListener("click", () => askForMute());
  return { draw, load, mute: askForMute };
}

/** What can be muted: texts with the services; none: the whole mesh. */
function targets(verdict, service, incident) {
  const first = originOf(incident).service,
    members = incident ? [...new Set([...(first ? [first] : []), ...incident.affected])] : [],
    single = [service, first, ...(incident || service ? [] : verdict.suspects.slice(0, SUSPECTS).map((one) => one.service))],
    services = [...new Set(single.filter(Boolean))];
  return [
    ...(members.length > 1 ? [[`all ${members.length} services of the incident`, members]] : []),
    ...services.map((one) => [one, [one]]),
    ...[...new Set(services.map(namespace))].map((one) => [`the namespace ${one}`, [`${one}/*`]]),
    ["the whole mesh", []],
  ];
}

const names = (services) => (services.length ? someOf(services, MAX_NAMES) : "The whole mesh");
