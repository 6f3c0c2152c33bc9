// Free counts over a row's time: a strip of colours, exact to the second, with the counts where they can be read.
const DIGIT = 7; // pixels
const PADDING = 6;
const THINNEST = 2;
const APART = 4; // what is wider has a line at its end
const GROUP = 48; // so wide is what is too fine to be read one by one, and said as "2–5"

export const counted = ([, , least, most]) => (least === most ? String(least) : `${least}–${most}`);
const widthOf = (text) => text.length * DIGIT + PADDING;

function levelOf([, , least, most], cards) {
  if (most === 0) return "none";
  if (least === cards) return "all";
  return least * 4 <= cards ? "few" : "some";
}

/** What is written on the strip: runs that are wide enough, and between them groups of those that are not. */
function legible(runs, pixels) {
  const shown = [];
  let group = null;
  const flush = () => {
    if (group !== null && (group[1] - group[0]) * pixels >= widthOf(counted(group))) shown.push(group);
    group = null;
  };
  for (const run of runs) {
    const [from, until, least, most] = run;
    if ((until - from) * pixels >= widthOf(counted(run))) {
      flush();
      shown.push(run);
      continue;
    }
    group = group === null ? [...run] : [group[0], until, Math.min(group[2], least), Math.max(group[3], most)];
    if ((until - group[0]) * pixels >= GROUP) flush();
  }
  flush();
  return shown;
}

/** Runs as they are coloured: what is thinner than can be seen is joined with the next, and so are thin ones of one colour. */
function coloured(runs, pixels, cards) {
  const shown = [];
  for (const run of runs) {
    const [from, until, least, most] = shown.at(-1) ?? [0, -Infinity];
    const [before, width] = [(until - from) * pixels, (run[1] - run[0]) * pixels];
    const unseen = before < THINNEST && width < THINNEST;
    const alike = before <= APART && width <= APART && levelOf([0, 0, least, most], cards) === levelOf(run, cards);
    if (until === run[0] && (unseen || alike)) shown[shown.length - 1] = [from, run[1], Math.min(least, run[2]), Math.max(most, run[3])];
    else shown.push(run);
  }
  return shown;
}

/** `runs`: [from, until, least, most] in seconds; `pixels` of a second; `whole`: the row's seconds. */
export function freeLine(row, runs, cards, pixels, whole) {
  const line = document.createElement("div");
  line.className = "heat-line";
  Object.assign(line.dataset, { row, whole });
  line.setAttribute("aria-hidden", "true"); // the table says it in words
  const at = (seconds) => `${((100 * seconds) / whole).toFixed(4)}%`;
  const stops = coloured(runs, pixels, cards).map((run) => {
    const colour = `var(--${levelOf(run, cards)}-free) ${at(run[0])}`;
    const apart = (run[1] - run[0]) * pixels > APART; // else there would be nothing but lines
    return apart ? `${colour} calc(${at(run[1])} - 1px), var(--paper) 0 ${at(run[1])}` : `${colour} ${at(run[1])}`;
  });
  if (runs.length > 0) {
    const ends = [`transparent ${at(runs[0][0])}`, `transparent ${at(runs.at(-1)[1])}`];
    line.style.backgroundImage = `linear-gradient(90deg, ${[ends[0], ...stops, ends[1]].join(", ")})`;
  }
  for (const run of legible(runs, pixels)) {
    const label = document.createElement("span");
    label.className = `heat ${levelOf(run, cards)}`;
    label.textContent = counted(run);
    label.style.insetInlineStart = at(run[0]);
    label.style.inlineSize = at(run[1] - run[0]);
    line.append(label);
  }
  return line;
}

/** Say what the strip under the pointer shows, also where it is too fine to be read: `tell(row, run, event)`. */
export function followCounts(place, runsOf, tell, rest) {
  const asked = (event) => {
    const line = [...place.querySelectorAll(".heat-line")].find((one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return left <= event.clientX && event.clientX < right && top <= event.clientY && event.clientY < bottom;
    });
    if (line === undefined) return rest();
    const { left, width } = line.getBoundingClientRect();
    const second = ((event.clientX - left) / width) * Number(line.dataset.whole);
    const run = runsOf(line.dataset.row).find(([from, until]) => from <= second && second < until);
    return run === undefined ? rest() : tell(line.dataset.row, run, event);
  };
  place.addEventListener("pointermove", (event) => event.pointerType === "mouse" && event.buttons === 0 && asked(event));
  place.addEventListener("pointerleave", rest);
  place.addEventListener("click", (event) => event.pointerType !== "mouse" && asked(event));
}
