// Saved views of a mesh: named links for everyone who may see it.
import { by, el, show } from "./dom.js";
import * as feed from "./feed.js";
import { address, read } from "./link.js";

const NAME_LENGTH = 80; // limit of the service

/**
 * @param {{
 *   ask: (question: import("./decision.js").Question) => void,
 *   mesh: () => string | null,
 *   canWrite: () => boolean,
 * }} on ask: opens the dialog. mesh: the one in view.
 */
export function savedViewsMenu(on) {
  const menu = by("views"),
    summary = menu.querySelector("summary");
  let views = [],
    failed = "";

  /** Load the list; if that fails, keep what is known. */
  async function load() {
    try {
      ({ views } = await feed.views());
      failed = "";
    } catch (error) {
      failed = error.message;
    }
    redraw();
  }

  function redraw() {
    by("save-view").hidden = !on.canWrite();
    by("no-views").hidden = views.length > 0;
    show(by("view-list"), ...views.map(row));
    by("views-failed").textContent = failed;
  }

  function row(view) {
    return el(
      "li",
      {},
      el("a", { href: `#${view.address}`, "data-key": `view ${view.id}`, click: () => close(true) }, view.name),
      el("span", { class: "affected" }, view.mesh ?? "all meshes"),
      on.canWrite() ? button("Rename", view, () => ask("Rename this view", `Now: ${view.name}`, "Rename", view)) : null,
      on.canWrite() ? button("Delete", view, () => remove(view)) : null,
    );
  }

  const button = (text, view, click) =>
    el("button", { type: "button", "aria-label": `${text} ${view.name}`, "data-key": `${text} ${view.id}`, click }, text);

  /** Ask for a name, and save a view under it. @param {any} view `{address}`; with `id`: that one is renamed. */
  function ask(title, about, action, view) {
    on.ask({
      title,
      about,
      choices: [],
      note: { label: "Name", isRequired: true, limit: NAME_LENGTH },
      action,
      send: async ({ note }) => {
        await feed.saveView({ name: note.replace(/\s+/g, " "), address: view.address, ...(view.id ? { id: view.id } : {}) });
        await load();
        setTimeout(() => summary.focus()); // the dialog gives the focus back to a button that may be gone
      },
    });
  }

  /** Save the address of the page. The list of meshes belongs to none of them. */
  function save() {
    const mesh = read().view === "meshes" ? null : on.mesh();
    const about = mesh ? `Everyone who may see the mesh ${mesh} sees it in this menu.` : "Everyone sees it in this menu.";
    ask("Save this view", about, "Save", { address: address({ mesh }).slice(1) });
  }

  async function remove(view) {
    try {
      await feed.deleteView(view.id);
      await load();
    } catch (error) {
      failed = `${view.name} was not deleted. ${error.message}`;
      redraw();
    }
    summary.focus();
  }

  function close(hasChosen = false) {
    menu.open = false;
    if (!hasChosen) summary.focus();
  }

  menu.addEventListener("toggle", () => menu.open && load());
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || !menu.open || document.querySelector("dialog[open]")) return;
      event.stopPropagation(); // the page goes back to live with this key
      close();
    },
    true,
  );
  document.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    if (menu.open && target.isConnected && !menu.contains(target) && !target.closest("dialog")) close(true);
  });
  by("save-view").addEventListener("click", save);
}
