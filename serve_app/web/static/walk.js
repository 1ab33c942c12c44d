// The keyboard in the graph: Tab enters once, arrows go to the nearest service in their direction, Enter opens, Esc leaves.

const ASIDE = 3, // how much more a way aside counts than one straight ahead
  DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** @param {HTMLElement} place of the graph: what can be walked there has a `tabindex`. @returns a function to call after drawing. */
export function walk(place) {
  const all = () => /** @type {HTMLElement[]} */ ([...place.querySelectorAll("[tabindex]")]);

  function nearest(at, [right, down]) {
    const middle = (one) => {
        const { x, y, width, height } = one.getBoundingClientRect();
        return [x + width / 2, y + height / 2];
      },
      [x, y] = middle(at);
    let best = null,
      least = Infinity;
    for (const one of all()) {
      const [dx, dy] = [middle(one)[0] - x, middle(one)[1] - y],
        ahead = dx * right + dy * down,
        away = ahead + ASIDE * Math.abs(dx * down + dy * right);
      if (one !== at && ahead > 1 && away < least) [best, least] = [one, away];
    }
    return best;
  }

  place.addEventListener("keydown", (event) => {
    const at = /** @type {HTMLElement} */ (event.target),
      direction = DIRECTIONS[event.key];
    if (at === place || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!direction && !["Enter", " ", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // the same keys move through time elsewhere
    if (event.key === "Escape") at.blur();
    else if (direction) nearest(at, direction)?.focus();
    else at.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  });
  place.addEventListener("focusin", ({ target }) => follow(/** @type {HTMLElement} */ (target)));

  /** Let Tab enter at one element: the one with the focus, the selected one, the likely origin, or any. */
  function follow(at = ["focus", "where(.selected)", "where(.first)", "nth-child(1)"].map((is) => place.querySelector(`[tabindex]:${is}`)).find(Boolean)) {
    for (const one of all()) one.tabIndex = one === at ? 0 : -1;
  }
  return () => follow();
}
