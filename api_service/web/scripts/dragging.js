// What dragging comes to, in words beside the pointer: the time, and how many GPUs or nodes the rows stand for.
import { millisecondsOf } from "./wall_times.js";

const BESIDE = 14; // pixels from the pointer

const DAY = { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" };
const dayOf = (moment) => moment.toLocaleDateString("en-GB", DAY).replace(",", "");
const clockOf = (moment) => moment.toISOString().slice(11, 16);

function lengthOf(milliseconds) {
  const minutes = Math.floor(milliseconds / 60_000); // as the pages' words
  const parts = [[Math.floor(minutes / 1440), "d"], [Math.floor(minutes / 60) % 24, "h"], [minutes % 60, "min"]];
  return parts.filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** `Tue 1 Dec 09:00 – 12:00 (3 h)`; both are times on the wall. */
export function spanWords(start, end) {
  const [from, until] = [start, end].map((wall) => new Date(millisecondsOf(wall)));
  const day = dayOf(until) === dayOf(from) ? "" : `${dayOf(until)} `;
  return `${dayOf(from)} ${clockOf(from)} – ${day}${clockOf(until)} (${lengthOf(until - from)})`;
}

export class DragWords {
  #place;
  #badge = document.createElement("div");
  #heads = [];
  #pointer; // the last one: what is scrolled to comes without

  constructor(place) {
    this.#place = place;
    this.#badge.className = "drag-words";
    this.#badge.hidden = true;
    place.after(this.#badge);
    for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => this.hide());
  }

  show(words, pointer) {
    this.#badge.textContent = words;
    this.#badge.hidden = false;
    this.#pointer = pointer ?? this.#pointer;
    if (this.#pointer === undefined) return;
    const { clientX, clientY } = this.#pointer;
    const { offsetWidth: width, offsetHeight: height } = this.#badge;
    const left = Math.min(clientX + BESIDE, innerWidth - width - BESIDE);
    const above = clientY - BESIDE - height;
    this.#badge.style.insetInlineStart = `${Math.max(0, left)}px`;
    this.#badge.style.insetBlockStart = `${above > 0 ? above : clientY + BESIDE}px`;
  }

  hide() {
    this.#badge.hidden = true;
    this.#pointer = undefined;
    for (const head of this.#heads) head.classList.remove("chosen");
  }

  /** The numbers of the rows from one to the one that the pointer is on, as far as `joins` lets them be had together. */
  rowsTo(first, pointer, joins) {
    this.#heads = [...this.#place.querySelectorAll(".ec-row-head")];
    const tops = this.#heads.map((head) => head.getBoundingClientRect().top);
    const { clientY } = pointer ?? this.#pointer;
    const under = Math.max(0, tops.filter((top) => top <= clientY).length - 1);
    const step = Math.sign(under - first);
    const rows = [first];
    while (rows.at(-1) !== under && joins(rows.at(-1) + step)) rows.push(rows.at(-1) + step);
    this.#heads.forEach((head, number) => head.classList.toggle("chosen", rows.includes(number)));
    return rows;
  }
}
