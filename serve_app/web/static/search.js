// The search field: it suggests services of the whole mesh, and selects the service or the calls in it.
import { by, el } from "./dom.js";
import * as feed from "./feed.js";
import { namespace, readable, someOf } from "./words.js";

const PAUSE_MS = 150; // after a key, before services are suggested
const SUGGESTED = 20; // services
const NAMESAKES = 10; // services of one name in several namespaces

/** @param {{mesh: () => string | null, select: (service: string, source?: string | null) => void, answer: (text: string) => void}} on
 * select: called with a service of the mesh, which may be folded. answer: says why nothing was selected. */
export function searchView(on) {
  const field = by("find");
  let timer;

  /** The names of a search: `[service]`, or `[caller, service]`. */
  const parts = () => field.value.trim().split(/\s*(?:→|->)\s*/);

  async function suggest() {
    const mesh = on.mesh();
    if (!mesh) return;
    const text = field.value,
      names = parts(),
      before = names.length > 1 ? `${names[0]} → ` : "",
      found = await feed.services(mesh, names.at(-1), SUGGESTED).catch(() => null);
    if (!found || mesh !== on.mesh() || text !== field.value) return;
    by("services").replaceChildren(...found.services.map((name) => el("option", { value: readable(before + name) })));
  }

  async function find() {
    clearTimeout(timer);
    on.answer("");
    const mesh = on.mesh(),
      names = parts();
    if (!names[0]) return;
    let found;
    try {
      found = await Promise.all(names.map(async (name) => named(name, (await feed.services(mesh, name, NAMESAKES)).services)));
    } catch (error) {
      on.answer(error.message);
      return;
    }
    if (mesh !== on.mesh()) return;
    const unclear = found.findIndex((services) => services.length !== 1);
    if (found[unclear]?.length) on.answer(`Several services are named ${names[unclear]}: ${someOf(found[unclear], 3)}. Give the namespace, too.`);
    else if (unclear >= 0 || names.length > 2) on.answer(`There is no service named ${names[unclear] ?? field.value} here.`);
    else on.select(found.at(-1)[0], names.length > 1 ? found[0][0] : null);
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, PAUSE_MS);
  });
  field.addEventListener("focus", suggest);
  field.addEventListener("change", find);
}

/** The services with a name: the one with this whole name, else all with this name in any namespace, in any case. */
function named(text, services) {
  const is = (one) => [one, readable(one)],
    wanted = text.toLowerCase(),
    same = services.filter((one) => is(one).includes(text));
  return same.length ? same : services.filter((one) => is(one).some((name) => [name.toLowerCase(), name.slice(name.indexOf("/") + 1).toLowerCase()].includes(wanted)));
}

/** What the view has to change so that the graph draws these services one by one. @param {any} view of the link. */
export function unfold(view, services, collapsed) {
  const spaces = [...new Set(services.map(namespace))],
    folded = spaces.filter((one) => collapsed.includes(one)),
    open = view.expand?.split(",") ?? [],
    enters = spaces.length === 1 && (spaces[0] === view.space || (folded.length > 0 && view.view === "all"));
  return {
    expand: [...new Set([...open, ...folded])].join(",") || null,
    space: enters ? spaces[0] : null,
  };
}
