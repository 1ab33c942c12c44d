// All meshes at a glance: state, age of the data, open incidents, alerts against the budget, telemetry. Each line opens a mesh.
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { STATES, WHY, icon, iconName } from "./icons.js";
import { go, read } from "./link.js";
import { isNotice } from "./severity.js";
import { silentFor, stateOf } from "./state.js";
import { progressText } from "./learning.js";
import { shareText } from "./numbers.js";
import { ends, plural, span } from "./words.js";

const DAY_MS = 86_400_000,
  COUNT_MS = 60_000, // between two counts of the alerts of a mesh
  MAX_COUNTED = 100; // alerts of a mesh
const ORDER = ["incident", "last_incident", "unknown", "learning", "recovering", "unusual", "calm"];

export function overviewView() {
  const alerts = new Map(); // of the last day, by mesh: {count, at}; count: null: not known

  /** Count the alerts of the last day, of each mesh once a minute. */
  function count(meshes) {
    for (const { mesh, observed_at } of meshes) {
      if (!observed_at || Date.now() - (alerts.get(mesh)?.at ?? 0) < COUNT_MS) continue;
      alerts.set(mesh, { count: alerts.get(mesh)?.count ?? null, at: Date.now() });
      const since = new Date(1000 * ends(observed_at) - DAY_MS).toISOString();
      feed.incidents(mesh, { since, limit: MAX_COUNTED }).then(
        ({ incidents }) => alerts.set(mesh, { count: incidents.filter((one) => !isNotice(one) && !one.replayed).length, at: Date.now() }),
        () => {}, // the number stays unknown
      );
    }
  }

  /** @param {any[]} meshes as the service lists them. @param {number} asked when, ms. */
  function draw(meshes, asked) {
    count(meshes);
    const { team = "" } = read(),
      teams = [...new Set(meshes.flatMap((one) => one.teams))].sort(),
      hasTeams = Boolean(teams.length || team);
    drawTeams(hasTeams ? [...new Set([...teams, ...(team ? [team] : [])])] : [], team);
    by("overview").classList.toggle("has-teams", hasTeams);
    const rows = meshes.filter((one) => !team || one.teams.includes(team)).map((one) => ({ one, state: meshState(one, asked) }));
    const rank = ({ state }) => ORDER.indexOf(iconName(state));
    rows.sort((a, b) => rank(a) - rank(b) || a.one.mesh.localeCompare(b.one.mesh));
    by("overview-title").textContent = summary(rows) + (team ? `, of those with an open incident of team ${team}` : "");
    show(by("overview-rows"), ...rows.map(row));
  }

  /** The filter by team; without teams there is none. */
  function drawTeams(teams, team) {
    by("overview-teams").hidden = !teams.length;
    show(by("overview-team"), el("option", { value: "" }, "All"), ...teams.map((one) => el("option", { value: one }, one)));
    by("overview-team").value = team;
  }

  function row({ one, state }) {
    const name = iconName(state),
      isFailing = state.why === "stopped" && one.problem,
      why = state.name === "unknown" ? `: ${isFailing ? "no data, source failing" : (WHY[state.why] ?? state.why)}` : state.name === "learning" ? `: ${progressText(one)}` : "";
    return el(
      "tr",
      { class: state.name },
      cell("State", el("img", { src: icon(name), alt: "", width: 20, height: 20 }), ` ${STATES[name]}${why}`),
      el(
        "th",
        { scope: "row" },
        el("a", { href: `#${new URLSearchParams({ mesh: one.mesh })}`, "data-key": `mesh ${one.mesh}` }, one.mesh),
      ),
      cell("Services", one.services.toLocaleString("en")),
      cell("Last verdict", one.age_seconds === null ? "unknown" : `${span(silentFor(state))} ago`),
      cell("Open incidents", incidentText(one)),
      el("td", { class: "teams", "data-label": "Teams" }, one.teams.join(", ") || "–"),
      cell("Alerts in 24 h", alertText(one.mesh)),
      cell("False-alert budget", budgetText(one.alert_budget_per_day)),
      cell("Telemetry", telemetryText(one)),
    );
  }

  function alertText(mesh) {
    const known = alerts.get(mesh)?.count ?? null;
    return known === null ? "–" : known < MAX_COUNTED ? String(known) : `${MAX_COUNTED} or more`;
  }

  by("overview-team").addEventListener("change", () => go({ team: by("overview-team").value || null }));
  return { draw };
}

const cell = (label, ...content) => el("td", { "data-label": label }, ...content);

/** The state of a line, by the rules of the page of a mesh, with `received` as there. */
function meshState(one, asked) {
  const received = one.age_seconds === null ? -Infinity : asked - 1000 * one.age_seconds,
    incidents = Array.from({ length: one.incidents }, (_, i) => ({
      severity: "alert",
      recovering: i < one.recovering + one.unseen,
      kind: i < one.unseen ? "telemetry_missing" : "unclear",
    })),
    noticed = Array.from({ length: one.notices }, () => ({ severity: "notice", recovering: false })),
    muted = one.hidden ? [{ hides: [""] }] : [];
  if (!one.sequence) {
    const [name, why] = one.problem ? ["unknown", "failing"] : ["learning", ""];
    return { name, why, stopped: false, isOpen: false, isUnusual: false, received };
  }
  const state = stateOf(
    { ...one, mesh_score: one.mesh_score ?? 0, incidents: [...incidents, ...noticed], muted },
    { received, source: { problem: one.problem }, interval: one.interval_seconds ?? undefined },
  );
  return { ...state, received };
}

function summary(rows) {
  const counted = (names, word) => {
    const count = rows.filter(({ state }) => names.includes(iconName(state))).length;
    return count ? `${count} ${word}` : null;
  };
  const parts = [
    counted(["incident"], "with an incident"),
    counted(["unknown", "last_incident"], "unknown"),
    counted(["learning"], "learning"),
    counted(["recovering"], "recovering"),
    counted(["calm", "unusual"], "without an incident"),
  ];
  const words = parts.filter(Boolean).join(", ");
  return `${rows.length} ${rows.length === 1 ? "mesh" : "meshes"}${words && `: ${words}`}`;
}

const incidentText = ({ incidents, notices }) =>
  `${incidents}${notices ? ` and ${plural(notices, "notice")}` : ""}`;

/** "about 6 a day", or "about 1 in 5 days". */
function budgetText(budget) {
  if (!budget) return "–";
  const days = Math.round(1 / budget);
  return days < 2 ? `about ${Math.round(budget).toLocaleString("en")} a day` : `about 1 in ${days} days`;
}

/** "100%", or "97%, 8 silent". */
function telemetryText({ services, silent, coverage }) {
  if (!services) return "–";
  const share = Math.floor((100 * (services - silent)) / services),
    scored = coverage < 1 ? `, ${shareText(coverage)} scored` : "";
  return `${share}%${silent ? `, ${silent} silent` : ""}${scored}`;
}
