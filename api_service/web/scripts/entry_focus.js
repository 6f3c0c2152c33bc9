// The focus on the timeline outlives that it is drawn anew: the entry keeps it, or what it is merged into now. Where it
// has gone its nearest neighbour has the focus, so that whoever uses the keys stays where they were.

/** What an entry is known by when all are drawn anew: its page, or what is shown of it. */
const nameOf = ({ extendedProps: { href, words = "" } }) => href ?? words.split("\n", 3).join("\n");

const entriesOf = (place) => [...place.querySelectorAll("[data-entry]")];

function placeOf(entry) {
  const bar = entry.closest(".ec-event");
  return { row: bar.style.gridRowStart, left: bar.getBoundingClientRect().left };
}

/** The entry nearest to a place: on its row, else on another; `rank`: lower ones come first, however far they are. */
function nearest(place, { row, left }, rank = () => 0) {
  const ranked = entriesOf(place).map((entry) => {
    const at = placeOf(entry);
    return [rank(entry), at.row === row ? 0 : 1, Math.abs(at.left - left), entry];
  });
  return ranked.sort(([a, b, c], [d, e, f]) => a - d || b - e || c - f)[0]?.at(-1);
}

export class EntryFocus {
  #place;
  #shown;
  #kept = null;

  /** `shown`: the event with an id that is drawn. */
  constructor(place, shown) {
    this.#place = place;
    this.#shown = shown;
    place.tabIndex = -1; // has the focus where no entry is left
  }

  /** Before all is drawn anew. */
  note() {
    const active = document.activeElement;
    if (this.#place.contains(active) && active.dataset.entry !== undefined) this.#kept = this.of(active);
    else if (active !== document.body) this.#kept = null; // somebody has gone on
  }

  /** After it was drawn. What does not come back now is forgotten: nothing may take the focus later on. */
  restore() {
    const kept = this.#kept;
    this.#kept = null;
    if (kept === null || document.activeElement !== document.body) return;
    this.return(kept);
  }

  /** What an entry is known by, and where it is. */
  of(entry) {
    return { names: this.#namesOf(entry), ...placeOf(entry) };
  }

  /** To what `of` was asked about, which may have been drawn anew, or have gone. */
  return(kept) {
    const isOther = (entry) => Number(!this.#namesOf(entry).some((name) => kept.names.includes(name)));
    (nearest(this.#place, kept, isOther) ?? this.#place).focus({ preventScroll: true });
  }

  #namesOf({ dataset }) {
    const event = this.#shown(dataset.entry);
    return event === undefined ? [] : (event.extendedProps.entries ?? [event]).map(nameOf);
  }
}
