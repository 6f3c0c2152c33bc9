// The lines of a log that are shown: its end, which grows, or the part around a line.
import { colourTruly } from "./true_colours.js";

const MOST_LINES = 5_000;

function lineOf(html) {
  const line = document.createElement("div");
  line.innerHTML = html; // written by our server from the printed text, which it escapes
  return line;
}

export class LogView {
  #follow = document.getElementById("log-follow");
  #leftOut = document.getElementById("log-left-out");
  #part = document.getElementById("log-part");
  #rest = null; // the line that has begun and not ended
  #asked = 0;
  partShown = () => {};

  constructor(log) {
    this.log = log;
    this.isNumbered = "numbered" in log.dataset;
    this.isPart = log.dataset.line !== undefined;
    this.first = Number(log.firstElementChild?.dataset.n ?? 1); // the number of the first line shown
    colourTruly([log]);
    const times = document.getElementById("log-times");
    const showTimes = () => log.classList.toggle("times", times.checked);
    times.addEventListener("change", () => this.#keepPlace(showTimes));
    showTimes(); // a browser that reloads a page keeps boxes as they were
    log.addEventListener("scroll", () => {
      if (this.isPart) return;
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      if (!atEnd && this.#follow.checked) this.#follow.checked = false;
      else if (atEnd && !this.#follow.checked && document.getElementById("log-find").value === "" && log.querySelector(".chosen") === null) this.#follow.checked = true;
    });
    this.#follow.addEventListener("change", () => {
      if (!this.#follow.checked) return;
      if (this.isPart) document.getElementById("log-end").click();
      log.scrollTop = log.scrollHeight;
    });
  }

  get isEmpty() {
    return this.log.childElementCount === 0;
  }

  get isFollowed() {
    return this.#follow.checked;
  }

  /** Whether lines of the log, before these or after them, are not shown. */
  get isCut() {
    return this.isPart || this.first > 1;
  }

  /** The whole lines that are shown. */
  get lines() {
    return [...this.log.children].filter((line) => line !== this.#rest);
  }

  get last() {
    return this.first + this.log.childElementCount - (this.#rest === null ? 0 : 1) - 1;
  }

  lineAt(number) {
    return number < this.first || number > this.last ? null : this.log.children[number - this.first];
  }

  /** Change what is shown: its end stays in sight where it is followed, else the line that is read. */
  #keepPlace(change) {
    const place = this.#follow.checked ? null : this.#place();
    change();
    if (this.#follow.checked) this.log.scrollTop = this.log.scrollHeight;
    else this.#scrollBack(place);
  }

  append(news) {
    this.#keepPlace(() => this.#take(news));
  }

  #take({ lines, times, first, numbered, anew, rest }) {
    this.#rest?.remove();
    this.#rest = null;
    if (anew) this.log.replaceChildren();
    if (this.isEmpty) this.first = first;
    this.#add(lines, times, first, numbered);
    for (; this.log.childElementCount > MOST_LINES; this.first += 1) this.log.firstElementChild.remove();
    if (rest !== "") {
      this.#rest = lineOf(rest);
      this.log.append(this.#rest);
      colourTruly([this.#rest]);
    }
    const missing = this.first - 1;
    this.#leftOut.hidden = missing === 0;
    this.#leftOut.textContent = `${missing === 1 ? "1 line before these is" : `${missing} lines before these are`} not shown: ${this.isNumbered ? "go to one by its number, or download the output" : "download the output to see them"}.`;
  }

  /** The first line that the reader sees, whole if there is one, as [number, pixels below the top]; null without lines. */
  #place() {
    const { top, bottom } = this.log.getBoundingClientRect();
    const topOf = (place) => this.log.children[place]?.getBoundingClientRect().top ?? Infinity;
    let [low, high] = [0, this.log.childElementCount];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.log.children[middle].getBoundingClientRect().bottom > top) high = middle;
      else low = middle + 1;
    }
    if (topOf(low) < top && topOf(low + 1) < bottom) low += 1;
    return low === this.log.childElementCount ? null : [this.first + low, topOf(low) - top];
  }

  /** Show a place where it was, or the line nearest to it that is left. */
  #scrollBack(place) {
    if (place === null || this.isEmpty) return;
    const [number, below] = place;
    const line = this.log.children[Math.min(Math.max(0, number - this.first), this.log.childElementCount - 1)];
    this.log.scrollTop += line.getBoundingClientRect().top - this.log.getBoundingClientRect().top - (number < this.first ? 0 : below);
  }

  /** Show the lines around one. Returns why it can't be shown, or nothing. */
  async showPart(number) {
    this.#asked += 1;
    const asked = this.#asked;
    let found = null;
    try {
      const answer = await fetch(`${this.log.dataset.job}/log/part?line=${number}`, { cache: "no-store", headers: { Accept: "application/problem+json" }, redirect: "error" });
      found = await answer.json();
      if (!answer.ok) return found.detail;
    } catch {
      return "The server can’t be reached.";
    }
    if (asked !== this.#asked) return "";
    const { lines, times, first, numbered, last } = found;
    if (lines.length === 0) return `The output has no line ${number}: it has ${last} so far.`;
    this.isPart = true;
    this.#follow.checked = false;
    this.#rest = null;
    this.log.replaceChildren();
    this.first = first;
    this.#add(lines, times, first, numbered);
    this.#leftOut.hidden = true;
    this.say(`Lines ${first} to ${this.last} of the output.`);
    this.partShown();
    return "";
  }

  /** Say where in the log the reader is; nothing at its end. */
  say(words) {
    this.#part.hidden = words === "";
    this.#part.firstElementChild.textContent = words;
  }

  leavePart() {
    this.#asked += 1;
    this.isPart = false;
    this.#follow.checked = true;
    this.say("");
  }

  stopFollowing() {
    this.#follow.checked = false;
  }

  #add(lines, times, first, numbered) {
    const made = lines.map(lineOf);
    for (const [place, time] of times.entries()) if (time !== "") made[place].dataset.t = time;
    for (const [place, line] of made.slice(0, numbered).entries()) {
      line.dataset.n = first + place;
      line.id = `L${first + place}`;
    }
    colourTruly(made);
    this.log.append(...made);
  }
}
