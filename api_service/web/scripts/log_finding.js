// Finds a text in a log: in the lines that are shown, and by the server in those that are not.
const PAUSE_MS = 250;
const MOST_RANGES = 1_000;
const NAME = "log-found";

/** The ranges of a text within a line, whose looks may split it. */
function* rangesIn(line, wanted) {
  const text = line.textContent.toLowerCase();
  if (text.length !== line.textContent.length) return; // a letter whose other case is longer
  const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  let [node, begin] = [walker.nextNode(), 0];
  const place = (at, isEnd) => {
    while (node !== null && at > begin + node.length - (isEnd ? 0 : 1)) {
      begin += node.length;
      node = walker.nextNode();
    }
    return [node, at - begin];
  };
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    const range = new Range();
    range.setStart(...place(at, false));
    range.setEnd(...place(at + wanted.length, true));
    yield range;
  }
}

export class LogFinder {
  #field = document.getElementById("log-find");
  #words = document.getElementById("log-found");
  #buttons = [document.getElementById("log-previous"), document.getElementById("log-next")];
  #numbers = []; // of the lines that hold the text, in order
  #more = 0; // lines that hold it and whose numbers are not known
  #elsewhere = null; // what the server has found for the text
  #here = null;
  #timer = 0;
  #asked = null; // the question that is under way

  constructor(view) {
    this.view = view;
    this.#field.addEventListener("input", () => this.#begin());
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      void this.#go(event.shiftKey ? -1 : 1);
    });
    this.#buttons[0].addEventListener("click", () => void this.#go(-1));
    this.#buttons[1].addEventListener("click", () => void this.#go(1));
  }

  get #wanted() {
    return this.#field.value.toLowerCase();
  }

  /** Lines have come; `anew`: in place of all others. */
  seeNews(anew) {
    if (this.#wanted === "") return;
    if (anew && !this.view.isPart) this.#ask();
    this.#show();
  }

  #begin() {
    this.#elsewhere = null;
    this.#here = null;
    this.#show();
    this.#ask();
  }

  #ask() {
    clearTimeout(this.#timer);
    this.#asked?.abort(); // the server stops reading the log for it
    if (this.#wanted === "" || !this.view.isNumbered || !this.view.isCut) return;
    const asked = new AbortController();
    this.#asked = asked;
    this.#timer = setTimeout(async () => {
      try {
        const answer = await fetch(`${this.view.log.dataset.job}/log/matches?${new URLSearchParams({ text: this.#field.value })}`, { cache: "no-store", headers: { Accept: "application/problem+json" }, redirect: "error", signal: asked.signal });
        if (!answer.ok) return;
        const elsewhere = await answer.json();
        if (asked.signal.aborted) return;
        this.#elsewhere = elsewhere;
        this.#show();
      } catch {
        // The lines that are shown are searched all the same, and the words say that these are all.
      }
    }, PAUSE_MS);
  }

  #show() {
    const wanted = this.#wanted;
    const shown = [];
    const ranges = [];
    for (const [place, line] of this.view.lines.entries()) {
      const holds = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
      line.classList.toggle("found", holds);
      line.classList.toggle("here", holds && this.view.first + place === this.#here);
      if (!holds) continue;
      shown.push(this.view.first + place);
      if (ranges.length < MOST_RANGES) ranges.push(...rangesIn(line, wanted));
    }
    if (globalThis.Highlight !== undefined) CSS.highlights.set(NAME, new Highlight(...ranges));
    const { first, last } = this.view;
    const others = (this.#elsewhere?.lines ?? []).filter((number) => number < first || number > last);
    this.#numbers = [...new Set([...others, ...shown])].sort((a, b) => a - b);
    this.#more = Math.max(0, (this.#elsewhere?.count ?? 0) - (this.#elsewhere?.lines.length ?? 0));
    for (const button of this.#buttons) button.disabled = this.#numbers.length === 0;
    this.#say();
  }

  #say() {
    const count = this.#numbers.length;
    const at = this.#numbers.indexOf(this.#here);
    const lines = `${count.toLocaleString("en-GB")} ${count === 1 ? "line" : "lines"}`;
    const where = this.view.isCut && this.#elsewhere === null ? " of those shown" : "";
    const more = this.#more === 0 ? "" : `, and ${this.#more.toLocaleString("en-GB")} more that can’t be stepped through`;
    this.#words.textContent = this.#wanted === "" ? "" : `${at < 0 ? "" : `${(at + 1).toLocaleString("en-GB")} of `}${lines}${where}${more}`;
  }

  async #go(step) {
    const numbers = this.#numbers;
    if (numbers.length === 0) return;
    const at = numbers.indexOf(this.#here);
    const next = at < 0 ? (step > 0 ? 0 : numbers.length - 1) : (at + step + numbers.length) % numbers.length;
    this.#here = numbers[next];
    this.view.stopFollowing();
    if (this.view.lineAt(this.#here) === null) {
      const problem = await this.view.showPart(this.#here);
      if (problem !== "") this.view.say(problem);
    }
    this.#show();
    this.view.lineAt(this.#here)?.scrollIntoView({ block: "nearest" });
  }
}
