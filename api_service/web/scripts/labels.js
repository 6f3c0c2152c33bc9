// What does not fit into an entry's bar is written beside it, where nothing else is drawn.
const GAP = 3;
const SHORTEST = 40; // pixels: less says nothing

/** Put the labels of the timeline's entries where they can be read. Merged ones can do with their number alone. */
export function placeLabels(place) {
  const edge = place.querySelector(".ec-body .ec-events")?.getBoundingClientRect().right;
  if (edge === undefined) return;
  const entries = [...place.querySelectorAll(".ec-event:not(.heat-row, .ec-preview, .ec-ghost)")];
  const lines = new Map();
  for (const label of place.querySelectorAll(".ec-event-title .label")) {
    label.parentElement.classList.remove("beside", "short");
    label.style.removeProperty("max-inline-size");
  }
  // All is measured before anything is written: each change between would lay all of it out anew.
  for (const entry of entries) {
    const label = entry.querySelector(".label");
    if (label === null) continue;
    const at = entry.getBoundingClientRect();
    const line = Math.round(at.top);
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push({ label, at, room: label.parentElement.clientWidth, wanted: label.scrollWidth });
  }
  for (const line of lines.values()) {
    line.sort((a, b) => a.at.left - b.at.left);
    line.forEach(({ label, at, room, wanted }, number) => {
      const free = (line[number + 1]?.at.left ?? edge) - at.right - 2 * GAP;
      if (wanted <= room) return;
      const title = label.parentElement;
      const merged = label.querySelector(".what") !== null;
      if (free >= wanted || (!merged && free >= SHORTEST && free > room)) {
        title.classList.add("beside");
        label.style.maxInlineSize = `${free}px`;
      } else title.classList.toggle("short", merged);
    });
  }
}
