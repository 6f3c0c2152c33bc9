// The page Now: what a tile says beside the tile, not on a page of its own, and arrow keys that go from tile to tile and from node to node.
import htmx from "htmx.org";

const MARGIN = 8;
const STOPS = "#cards .tiles > a, #cards .cells > a, #cards.map .group-head a";
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Beside the tile where there is room, within the window in any case. */
function place(details, tile) {
  const at = tile.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = details;
  const below = at.bottom + MARGIN + height <= innerHeight;
  const top = below ? at.bottom + MARGIN : at.top - MARGIN - height;
  const within = (wanted, size, room) => Math.max(MARGIN, Math.min(wanted, room - size - MARGIN));
  details.style.left = `${within(at.left, width, innerWidth)}px`;
  details.style.top = `${within(top, height, innerHeight)}px`;
}

async function show(tile, details) {
  const query = new URL(tile.href).searchParams;
  await htmx.ajax("GET", `/now/card?card=${encodeURIComponent(query.get("card"))}`, { target: details, swap: "innerHTML", source: details });
  if (details.childElementCount === 0) return; // what was wrong is said where problems are
  details.showPopover();
  place(details, tile);
  details.focus();
}

function tileOf(event) {
  return event.target instanceof Element ? event.target.closest("#cards .tiles > a") : null;
}

/** Give the page its behaviour. Its parts may be replaced at any time: the document listens for them. */
export function followTiles() {
  document.addEventListener("click", (event) => {
    const tile = tileOf(event);
    const details = document.getElementById("card-details");
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (tile === null || details?.showPopover === undefined || !plain) return;
    event.preventDefault();
    details.replaceChildren();
    void show(tile, details);
  });
  document.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const stop = event.target instanceof Element ? event.target.closest(STOPS) : null;
    if (step === undefined || stop === null || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const stops = [...stop.closest("#cards").querySelectorAll(STOPS)].filter((other) => other.checkVisibility());
    stops[stops.indexOf(stop) + step]?.focus();
  });
}
