// What the page shows while it has no verdict: why there is none, and frames for data that are on their way.
import { headline, showNotes, stopText } from "./banner.js";
import { by } from "./dom.js";
import { drawStart } from "./start.js";
import { drawTab } from "./tab.js";
import { time } from "./words.js";

const SOON = "Its first snapshot appears here automatically.";

/** By reason, see store.js: the headline, and the sentence below it. */
const TEXTS = {
  meshes: () => ["No mesh yet", `Connect one in a minute. ${SOON}`],
  mesh: ({ mesh }) => [`No mesh named ${mesh}`, "It was deleted, or has no snapshot yet. Choose another mesh, or wait for its first snapshot."],
  service: () => ["TAGAE is not ready yet", "It is starting or restarting. This page continues by itself."],
  token: () => ["Sign in", "Sign in to see the meshes of this service."],
  verdict: ({ source }) =>
    source?.problem
      ? ["No data collected yet, status unknown", stopText(source, false)]
      : ["Learning this mesh", `${source?.collected ? "" : "It has a baseline. "}${SOON}`],
};

/** Show frames for the data that come, or nothing below the banner. @param {"frames" | "nothing" | "data"} what */
export function showBelow(what) {
  const { classList } = document.querySelector("main");
  classList.toggle("waiting", what === "frames");
  classList.toggle("nothing", what === "nothing");
  by("start").hidden = true;
}

/** @param {any} known of store.js. @param {boolean} needsToken whether programs need an access token. */
export function drawAbsence(known, needsToken) {
  const { mesh, absent, source, problem, listed } = known,
    [head, story] = TEXTS[absent]?.(known) ?? ["Connecting", ""],
    state = { name: source?.problem ? "unknown" : "learning", why: source?.problem ? "failing" : "", isOpen: false },
    shown = absent === "verdict" ? state : null;
  showBelow(absent && absent !== "service" ? "nothing" : "frames");
  headline(shown, head, story);
  drawTab(mesh, shown);
  showNotes(problem ? [["", problem]] : []);
  if (absent === "meshes") drawStart(needsToken, `No snapshot has arrived yet. Checked at ${time(listed, true)}, and every 3 s.`);
}
