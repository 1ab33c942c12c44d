// What part of a canvas is in view: dragging moves it, the wheel and two fingers zoom. Positions are pixels of the stage.

const MOST = 60, // zoom
  LEAST = 0.5,
  STEP = 0.0016, // of the logarithm of the zoom, by a pixel of the wheel
  STILL = 4; // pixels that the pointer may move in a click

/**
 * @param {HTMLElement} place takes the pointer.
 * @param {{isOn: () => boolean, moved: () => void, click: (point: {x: number, y: number}) => void}} on isOn: whether the canvas is shown.
 */
export function cameraOf(place, on) {
  const start = { zoom: 1, x: 0, y: 0 },
    fingers = new Map();
  let view = { ...start },
    travelled = 0;

  const pointOf = (event) => {
    const { left, top } = place.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };

  /** Zoom so that a point stays where it is. */
  function zoomAt({ x, y }, factor) {
    const zoom = Math.min(MOST, Math.max(LEAST, view.zoom * factor)),
      by = zoom / view.zoom;
    view = { zoom, x: x - by * (x - view.x), y: y - by * (y - view.y) };
    on.moved();
  }

  place.addEventListener(
    "wheel",
    (event) => {
      if (!on.isOn()) return;
      event.preventDefault();
      zoomAt(pointOf(event), Math.exp(-STEP * event.deltaY));
    },
    { passive: false },
  );
  place.addEventListener("pointerdown", (event) => {
    if (!on.isOn() || event.button) return;
    if (!fingers.size) travelled = 0;
    fingers.set(event.pointerId, pointOf(event));
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId),
      now = pointOf(event);
    if (!before || !on.isOn()) return;
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, now);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (travelled < STILL) return;
    if (other) zoomAt(other, Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y)));
    else {
      view = { ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y };
      on.moved();
    }
  });
  place.addEventListener("pointercancel", ({ pointerId }) => fingers.delete(pointerId));
  place.addEventListener("pointerup", (event) => {
    if (fingers.delete(event.pointerId) && travelled < STILL && on.isOn()) on.click(pointOf(event));
  });

  return {
    isDragged: () => fingers.size > 0 && travelled >= STILL,
    zoom: () => view.zoom,
    reset: () => {
      view = { ...start };
    },
    /** Where a point of the whole picture is now. */
    to: ({ x, y }) => ({ x: view.zoom * x + view.x, y: view.zoom * y + view.y }),
    /** Which point of the whole picture is here. */
    from: ({ x, y }) => ({ x: (x - view.x) / view.zoom, y: (y - view.y) / view.zoom }),
    pointOf,
  };
}
