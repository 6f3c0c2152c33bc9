// Arrow keys on the timeline.
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Arrow keys go to the nearest entry on that side. */
export function stepByArrows(place, event) {
  const [x, y] = ARROWS[event.key] ?? [0, 0];
  const from = event.target.closest(".ec-event-title");
  if (from === null || (x === 0 && y === 0) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const here = from.closest(".ec-event").getBoundingClientRect();
  const next = [...place.querySelectorAll(".ec-event-title")]
    .map((title) => [title, title.closest(".ec-event").getBoundingClientRect()])
    .map(([title, { left, top }]) => [title, (left - here.left) * x + (top - here.top) * y, x ? top - here.top : left - here.left])
    .filter(([, along]) => along > 1)
    .sort(([, a, across], [, b, other]) => (x ? Math.abs(across) - Math.abs(other) || a - b : a - b || Math.abs(across) - Math.abs(other)));
  next[0]?.[0].focus();
}
