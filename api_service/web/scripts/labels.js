// What does not fit into an entry's bar is written beside it, where nothing else is drawn, or shortened to whole words.
const GAP = 3;
const PADDING = 3; // of a bar, see the style sheet

const measure = document.createElement("canvas").getContext("2d");

/** As many of the first words as fit, with an ellipsis; nothing where not even the first does. */
function shortened(text, room) {
  const words = text.split(/\s+/);
  for (let count = words.length - 1; count > 0; count--) {
    const short = `${words.slice(0, count).join(" ")}…`;
    if (measure.measureText(short).width < room) return short;
  }
  return null;
}

/** Where a label can be whole, else where most of it can be, as [room, class of the title]. */
function bestPlace({ room, wanted }, before, after) {
  const places = [[room, "within"], [after, "beside"], [before, "before"]];
  return places.find(([space]) => space >= wanted) ?? places.sort(([a], [b]) => b - a)[0];
}

/** Entries with labels, a list for each line, by their places; `offers`: slots that were found, which no label may cover. */
function measured(entries, offers) {
  const lines = new Map();
  for (const entry of entries) {
    const label = entry.querySelector(".label");
    if (label === null) continue;
    const at = entry.getBoundingClientRect();
    const line = Math.round(at.top);
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push({ entry, label, at, room: label.parentElement.clientWidth, wanted: label.scrollWidth });
  }
  const slots = [...offers].map((offer) => offer.getBoundingClientRect());
  return [...lines.values()].map((line) => {
    const { top, bottom } = line[0].at;
    const covered = slots.filter((slot) => slot.top < bottom && slot.bottom > top);
    return { entries: line.sort((a, b) => a.at.left - b.at.left), covered };
  });
}

/** The neighbour on a line to be merged with: rather one of the same owner's, rather the nearer one. */
function neighbourOf(line, number) {
  const { entry, at } = line[number];
  const mine = entry.classList.contains("mine");
  const others = [line[number - 1], line[number + 1]].filter((one) => one !== undefined);
  const apart = (one) => Math.max(at.left - one.at.right, one.at.left - at.right);
  const alien = (one) => one.entry.classList.contains("mine") !== mine;
  return others.sort((a, b) => alien(a) - alien(b) || apart(a) - apart(b))[0]?.entry;
}

/** Put the labels of the timeline's entries where they can be read. Returns those that can't, as [row, entry, its neighbour]. */
export function placeLabels(place) {
  const body = place.querySelector(".ec-body .ec-events")?.getBoundingClientRect();
  if (body === undefined) return [];
  const labels = [...place.querySelectorAll(".ec-event-title .label")];
  for (const label of labels) {
    label.parentElement.classList.remove("beside", "before", "short", "tight");
    if (label.dataset.whole !== undefined) label.textContent = label.dataset.whole;
  }
  // All is measured before anything is written: each change between would lay all of it out anew.
  const entries = place.querySelectorAll(".ec-event:not(.heat-row, .ec-preview, .ec-ghost)");
  const lines = measured(entries, place.querySelectorAll(".offer"));
  if (labels.length > 0) measure.font = getComputedStyle(labels[0]).font;
  return lines.flatMap((line) => placeLine(line, body));
}

function placeLine({ entries: line, covered }, { left, right }) {
  const unnamed = [];
  let taken = left; // what stands beside the one before ends there
  line.forEach((one, number) => {
    const { entry, label, at, wanted } = one;
    const title = label.parentElement;
    const behind = covered.filter((slot) => slot.right > at.right).map((slot) => Math.max(slot.left, at.right));
    const ahead = covered.filter((slot) => slot.left < at.left).map((slot) => Math.min(slot.right, at.left));
    const after = Math.min(line[number + 1]?.at.left ?? right, ...behind) - at.right - 2 * GAP;
    const before = at.left - Math.max(taken, ...ahead) - 2 * GAP;
    let [room, where] = bestPlace(one, before, after);
    let width = wanted;
    taken = at.right;
    if (wanted > room) {
      const whole = label.textContent;
      const several = label.querySelector(".what") !== null;
      const short = several ? label.firstChild.data : shortened(whole, room);
      width = short === null ? Infinity : measure.measureText(short).width;
      // A number may take the padding of its bar: to merge it with others costs another drawing of them all.
      if (several) [room, where] = bestPlace({ room: one.room + 2 * PADDING, wanted: width }, before, after);
      if (several) title.classList.add("short");
      if (width > room) return unnamed.push([Number.parseInt(entry.style.gridRowStart, 10) - 1, entry, neighbourOf(line, number)]);
      if (!several) Object.assign(label, { textContent: short }).dataset.whole = whole;
      else if (where === "within" && width > one.room) title.classList.add("tight");
    }
    if (where !== "within") title.classList.add(where);
    if (where === "beside") taken = at.right + width + GAP;
  });
  return unnamed.filter(([, , neighbour]) => neighbour !== undefined);
}
