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
    label.parentElement.classList.remove("beside", "before", "short", "tight", "hidden");
    if (label.dataset.whole !== undefined) label.textContent = label.dataset.whole;
  }
  // All is measured before anything is written: each change between would lay all of it out anew.
  const entries = place.querySelectorAll(".ec-event:not(.heat-row, .ec-preview, .ec-ghost)");
  const lines = measured(entries, place.querySelectorAll(".offer"));
  if (labels.length > 0) measure.font = getComputedStyle(labels[0]).font;
  const seen = place.querySelector(".ec-row-head").getBoundingClientRect().right; // further left nothing is seen now
  return lines.flatMap((line) => placeLine(line, body, seen));
}

/** What of a label is shown and where, as {short, room, where, width}: `short` is null where all of it is. */
function fitted({ label, room: within, wanted }, before, after) {
  const [room, where] = bestPlace({ room: within, wanted }, before, after);
  if (wanted <= room) return { short: null, room, where, width: wanted };
  if (label.querySelector(".what") === null) {
    const short = shortened(label.textContent, room);
    return { short, room, where, width: short === null ? Infinity : measure.measureText(short).width };
  }
  const short = label.firstChild.data;
  const width = measure.measureText(short).width;
  // A number may take the padding of its bar: to merge it with others costs another drawing of them all.
  const [wider, place] = bestPlace({ room: within + 2 * PADDING, wanted: width }, before, after);
  return { short, room: wider, where: place, width, tight: place === "within" && width > within };
}

function placeLine({ entries: line, covered }, { left, right }, seen) {
  const unnamed = [];
  let taken = left; // what stands beside the one before ends there
  line.forEach((one, number) => {
    const { entry, label, at } = one;
    const title = label.parentElement;
    const behind = covered.filter((slot) => slot.right > at.right).map((slot) => Math.max(slot.left, at.right));
    const ahead = covered.filter((slot) => slot.left < at.left).map((slot) => Math.min(slot.right, at.left));
    const [end, start] = [line[number + 1]?.at.left ?? right, at.left > seen ? Math.max(taken, seen) : taken];
    const beside = (stop, from) => fitted(one, at.left - from - 2 * GAP, stop - at.right - 2 * GAP);
    const { short, room, where, width, tight } = beside(Math.min(end, ...behind), Math.max(start, ...ahead));
    taken = at.right;
    const several = label.querySelector(".what") !== null;
    if (several && short !== null) title.classList.add("short");
    if (width > room) {
      // Merged for want of room that only a found slot takes, it would cover the slot: its card still names it.
      const alone = beside(end, start);
      if (alone.width <= alone.room) title.classList.add("hidden");
      else unnamed.push([Number.parseInt(entry.style.gridRowStart, 10) - 1, entry, neighbourOf(line, number)]);
      return;
    }
    if (short !== null && !several) {
      label.dataset.whole = label.textContent;
      label.textContent = short;
    }
    if (tight) title.classList.add("tight");
    if (where !== "within") title.classList.add(where);
    if (where === "beside") taken = at.right + width + GAP;
  });
  return unnamed.filter(([, , neighbour]) => neighbour !== undefined);
}
