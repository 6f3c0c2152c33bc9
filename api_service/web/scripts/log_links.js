// Links to lines: `#L120` or `#L120-L130`. A line that is not shown is fetched with those around it.
const ADDRESS = /^#L(\d{1,10})(?:-L(\d{1,10}))?$/;

async function copy(text) {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  // Without TLS browsers have no clipboard but this.
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("not copied");
}

export class LogLinks {
  #copy = document.getElementById("log-copy");
  #chosen = null; // the first and the last number
  #waits = false; // for a line that was not printed when the page was opened

  constructor(view) {
    this.view = view;
    if (!view.isNumbered) return;
    view.log.addEventListener("click", (event) => this.#click(event));
    addEventListener("hashchange", () => void this.openAddress());
    this.#copy.addEventListener("click", () => void this.#copyLink());
    document.querySelector(".log-line").addEventListener("submit", (event) => {
      event.preventDefault();
      const number = Number(event.target.elements.line.value);
      if (number > 0) void this.#goTo([number, number]);
    });
  }

  /** Go to the line that the page's address names. */
  async openAddress() {
    if (!this.view.isNumbered) return;
    const { line } = this.view.log.dataset;
    const named = ADDRESS.exec(location.hash);
    if (named !== null) {
      const first = Number(named[1]);
      const range = [first, Number(named[2] ?? first)].sort((a, b) => a - b);
      await this.#goTo(range);
    } else if (line !== undefined && this.view.lineAt(Number(line)) !== null) {
      this.#choose([Number(line), Number(line)]);
      this.#scroll();
    }
  }

  /** Lines have come. */
  seeNews() {
    if (this.#chosen === null) return;
    this.#mark();
    const isThere = this.view.lineAt(this.#chosen[0]) !== null;
    if (isThere && this.#waits) {
      this.#scroll();
      this.#waits = false;
      this.view.say("");
    }
  }

  forget() {
    this.#chosen = null;
    this.#waits = false;
    history.replaceState(null, "", this.view.log.dataset.job);
    this.#mark();
  }

  async #goTo(range) {
    this.#choose(range);
    if (this.view.lineAt(range[0]) === null) {
      const problem = await this.view.showPart(range[0]);
      if (problem !== "") {
        this.#waits = !this.view.isPart;
        this.view.say(problem);
        return;
      }
    }
    this.#mark();
    this.#scroll();
  }

  #click(event) {
    const line = event.target.closest("#log > [data-n]");
    if (line === null) return;
    const gutter = parseFloat(getComputedStyle(line, "::before").width);
    if (event.clientX - line.getBoundingClientRect().left > gutter) return;
    const number = Number(line.dataset.n);
    const from = event.shiftKey && this.#chosen !== null ? this.#chosen[0] : number;
    this.#choose([from, number].sort((a, b) => a - b));
    this.view.stopFollowing();
  }

  #choose(range) {
    this.#chosen = range;
    this.#waits = false;
    const [first, last] = range;
    history.replaceState(null, "", `${this.view.log.dataset.job}#L${first}${last > first ? `-L${last}` : ""}`);
    this.#mark();
  }

  #mark() {
    for (const line of this.view.log.querySelectorAll(".chosen")) line.classList.remove("chosen");
    this.#copy.hidden = this.#chosen === null;
    if (this.#chosen === null) return;
    const [first, last] = this.#chosen;
    this.#copy.textContent = first === last ? `Copy link to line ${first}` : `Copy link to lines ${first} to ${last}`;
    const until = Math.min(last, this.view.last);
    for (let number = Math.max(first, this.view.first); number <= until; number += 1) this.view.lineAt(number).classList.add("chosen");
  }

  #scroll() {
    this.view.stopFollowing();
    const line = this.view.lineAt(this.#chosen[0]);
    line?.scrollIntoView({ block: "nearest" });
    this.view.log.scrollTop += line === null ? 0 : line.getBoundingClientRect().top - this.view.log.getBoundingClientRect().top - this.view.log.clientHeight / 3;
  }

  async #copyLink() {
    const words = this.#copy.textContent;
    const address = location.origin + this.view.log.dataset.job + location.hash;
    try {
      await copy(address);
      this.#copy.textContent = "Link copied";
    } catch {
      prompt("Copy this link", address);
    }
    setTimeout(() => {
      if (this.#copy.textContent === "Link copied") this.#copy.textContent = words;
    }, 2_000);
  }
}
