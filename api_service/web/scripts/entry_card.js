// A card with all that is known of an entry, beside it: shown by hovering, by focus, and by a tap.
import { element } from "./dialog.js";

const MARGIN = 6;
const LEAVE_MS = 200; // time to get from the entry to its card
const NAMED = 8; // of merged entries

const PLAIN = ".ec-event:not(.heat-row, .ec-preview, .ec-ghost)";

const nameOf = (entry) => entry?.querySelector("[data-entry]")?.dataset.entry ?? "";

function link(href, text) {
  const made = element("a", "", text);
  made.href = href;
  return made;
}

/** The lines of one entry; the first one is its title, a link where there is a page of it. */
function linesOf({ words, href }) {
  const [title, ...lines] = words.split("\n");
  const head = element("p", "entry-title");
  head.append(href ? link(href, title) : title);
  return [head, ...lines.map((line) => element("p", "", line))];
}

/** Of merged entries, each in two lines, and the way to where they are drawn one by one. */
function listOf({ entries, count, closer }) {
  const list = document.createElement("ul");
  for (const { extendedProps } of entries.slice(0, NAMED)) {
    const [title, gpus, times] = extendedProps.words.split("\n");
    const item = document.createElement("li");
    item.append(extendedProps.href ? link(extendedProps.href, title) : title, element("small", "", `${gpus}, ${times}`));
    list.append(item);
  }
  const more = count - Math.min(entries.length, NAMED);
  if (more > 0) list.append(element("li", "quiet", `and ${more} more`));
  return closer === undefined ? [list] : [list, link(closer.href, closer.words)];
}

export class EntryCard {
  #place;
  #about;
  #focus;
  #card = element("div", "entry-card");
  #entry = null;
  #from; // for the focus to come back to
  #timer = 0;
  #dismissed = false;
  #tappedName = null;

  /** `about`: what an element of the timeline shows, as {words, href} or {entries, count, closer}, or nothing; `focus`: the timeline's. */
  constructor(place, about, focus) {
    this.#place = place;
    this.#about = about;
    this.#focus = focus;
    this.#card.id = "entry-card";
    this.#card.hidden = true;
    place.after(this.#card);
    place.addEventListener("pointerover", (event) => this.#hovered(event));
    place.addEventListener("pointerout", (event) => event.pointerType === "mouse" && this.#leaveSoon());
    place.addEventListener("focusin", (event) => this.#show(event.target.closest(PLAIN)));
    place.addEventListener("focusout", () => this.#leaveSoon());
    place.addEventListener("click", (event) => this.#tapped(event), true);
    addEventListener("scroll", () => this.#entry !== null && this.#put(this.#entry.getBoundingClientRect()), true);
    for (const [kind, act] of [["pointerenter", () => this.#stay()], ["pointerleave", () => this.#leaveSoon()]]) {
      this.#card.addEventListener(kind, act);
    }
    this.#card.addEventListener("focusin", () => this.#stay());
    this.#card.addEventListener("focusout", () => this.#leaveSoon());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#left());
    document.addEventListener("pointermove", ({ movementX, movementY }) => (this.#dismissed &&= movementX === 0 && movementY === 0));
    document.addEventListener("pointerdown", (event) => this.#pressed(event));
  }

  hide() {
    this.#stay();
    this.#entry = null;
    this.#card.hidden = true;
  }

  /** From within the card, the focus goes back to the entry, which may have been drawn anew. */
  #left() {
    if (this.#card.contains(document.activeElement)) this.#focus.return(this.#from);
    this.#dismiss();
  }

  /** Not to come again for the pointer that rests where it was. */
  #dismiss() {
    this.hide();
    this.#dismissed = true;
  }

  #pressed({ target }) {
    if (!this.#card.contains(target) && !(target instanceof Element && this.#isShown(target.closest(PLAIN)))) this.hide();
  }

  /** Whether the card is that of an entry, which may have been drawn anew. */
  #isShown(entry) {
    return !this.#card.hidden && (entry === this.#entry || (nameOf(entry) !== "" && nameOf(entry) === nameOf(this.#entry)));
  }

  #hovered(event) {
    const entry = event.target.closest(PLAIN);
    if (event.pointerType !== "mouse" || event.buttons !== 0 || entry === null || this.#dismissed) return;
    this.#show(entry);
  }

  /** A first tap shows the card, a second one goes where the entry leads to. */
  #tapped(event) {
    const entry = event.target.closest(PLAIN);
    if (entry !== null && event.detail === 0 && event.target.closest("button")) this.#enter(entry);
    if (entry === null || event.pointerType === "mouse" || event.pointerType === undefined || event.detail === 0) return;
    const name = nameOf(entry);
    if (!this.#card.hidden && this.#tappedName === name) return;
    event.preventDefault();
    this.#show(entry);
    this.#tappedName = name;
  }

  /** Enter leads into the card of what has no page of its own: to the first link there. */
  #enter(entry) {
    this.#show(entry);
    this.#card.querySelector("a")?.focus();
  }

  #show(entry) {
    this.#stay();
    if (entry === null || (entry === this.#entry && !this.#card.hidden)) return;
    const about = this.#about(entry);
    if (about === undefined) return;
    if (!this.#isShown(entry)) this.#tappedName = null;
    this.#entry = entry;
    this.#from = this.#focus.of(entry.querySelector("[data-entry]"));
    this.#card.replaceChildren(...(about.entries ? listOf(about) : linesOf(about)));
    this.#card.hidden = false;
    this.#put(entry.getBoundingClientRect());
  }

  #put(at) {
    const { offsetWidth: width, offsetHeight: height } = this.#card;
    const head = this.#place.querySelector(".ec-sidebar")?.getBoundingClientRect().right ?? 0;
    const below = at.bottom + MARGIN + height <= innerHeight;
    const left = Math.max(MARGIN, Math.min(Math.max(at.left, head), innerWidth - width - MARGIN));
    this.#card.style.insetInlineStart = `${left}px`;
    this.#card.style.insetBlockStart = `${Math.max(MARGIN, below ? at.bottom + MARGIN : at.top - MARGIN - height)}px`;
  }

  #stay() {
    clearTimeout(this.#timer);
  }

  #leaveSoon() {
    this.#stay();
    this.#timer = setTimeout(() => this.hide(), LEAVE_MS);
  }
}
