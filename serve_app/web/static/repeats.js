// The same time yesterday and last week, drawn as faint lines into the charts of a service.
import { chartsOf } from "./archive.js";
import { el } from "./dom.js";
import { latest } from "./answers.js";
import { go, read } from "./link.js";
import { ends } from "./words.js";

const SHIFTS = { day: ["yesterday", 86400], week: ["last week", 604800] }; // s
const iso = (s) => new Date(1000 * s).toISOString();

/** @param {() => void} redraw called when the lines have been loaded. */
export function repeatsView(redraw) {
  const answers = latest(redraw);
  const chosen = () => (read().with ?? "").split(",").filter((key) => key in SHIFTS);

  function choice(key) {
    const keys = chosen(),
      isOn = keys.includes(key),
      next = isOn ? keys.filter((one) => one !== key) : [...keys, key];
    return el(
      "button",
      { type: "button", class: `other ${key}`, "data-key": `with ${key}`, "aria-pressed": String(isOn), click: () => go({ with: next.join(",") || null }, { quietly: true }) },
      SHIFTS[key][0],
    );
  }

  return {
    /** The buttons, and whether the lines could not be loaded. */
    bar(state) {
      return el(
        "div",
        { class: "repeats", role: "group", "aria-label": "Compare with" },
        el("span", {}, "Compare with "),
        ...Object.keys(SHIFTS).map(choice),
        state?.failed ? el("span", { class: "failed", role: "alert" }, ` ${state.failed} `, el("button", { type: "button", "data-key": "retry repeats", click: answers.retry }, "Try again")) : null,
        state?.isLoading ? el("span", { class: "affected", role: "status" }, " Loading") : null,
        ...(state?.answer ?? []).filter((one) => !one.charts.metrics.length).map((one) => el("span", { class: "affected" }, ` No data from ${one.name}.`)),
      );
    },
    /** What is known of the chosen times: `answer` is a list of `{key, name, charts}`, with the times of `times`. null: none is chosen. */
    load(mesh, service, source, times) {
      const keys = chosen();
      if (!keys.length || times.length < 2) return null;
      const [start, end] = [times[0], times.at(-1)].map(ends);
      return answers.ask(JSON.stringify([mesh, service, source, Math.floor(end / 60), keys]), async () =>
        Promise.all(
          keys.map(async (key) => {
            const [name, shift] = SHIFTS[key],
              charts = await chartsOf(mesh, service, source, { start: iso(start - shift), end: iso(end - shift) });
            return { key, name, mesh, service, source, charts: { ...charts, times: charts.times.map((at) => iso(ends(at) + shift)) } };
          }),
        ),
      );
    },
  };
}
