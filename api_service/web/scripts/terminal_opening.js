// Opens the terminal of a job's page, and opens it again when the page is loaded again while it was open.

function load(name, attributes) {
  const made = Object.assign(document.createElement(name), attributes);
  return new Promise((resolve, reject) => {
    made.addEventListener("load", resolve);
    made.addEventListener("error", reject);
    document.head.append(made);
  });
}

class TerminalPart {
  #opened = null;
  #loading = false;

  constructor(part, nonce) {
    Object.assign(this, { part, nonce });
    this.state = part.querySelector("[role=status]");
    this.kept = `gpu-dev-terminal ${part.dataset.terminal}`;
    const buttonOf = (name) => part.querySelector(`[data-${name}]`);
    this.larger = buttonOf("larger");
    this.closing = buttonOf("close");
    this.larger.addEventListener("click", () => this.#size(!part.classList.contains("full")));
    this.closing.addEventListener("click", () => this.#close());
    for (const key of part.querySelectorAll("[data-keys]")) {
      key.addEventListener("click", () => this.#opened?.type(JSON.parse(`"${key.dataset.keys}"`)));
    }
    // The button is in a part of the page that is made anew.
    document.addEventListener("click", ({ target }) => target.closest("[data-open-terminal]") && void this.open(false));
    if (sessionStorage.getItem(this.kept) !== null) void this.open(true);
  }

  async open(joins) {
    if (this.#loading) return;
    this.part.hidden = false;
    if (this.#opened !== null) return this.#opened.terminal.focus();
    this.#loading = true;
    this.state.textContent = "Loading the terminal…";
    try {
      const { script, style } = this.part.dataset;
      if (globalThis.openJobTerminal === undefined) {
        await Promise.all([load("link", { rel: "stylesheet", href: style }), load("script", { src: script, nonce: this.nonce })]);
      }
      this.#begin(joins);
    } catch {
      this.state.textContent = "The terminal can’t be loaded. Reload the page.";
    }
    this.#loading = false;
  }

  #begin(joins) {
    const place = this.part.querySelector(".job-terminal");
    place.replaceChildren();
    this.closing.textContent = "End the shell";
    sessionStorage.setItem(this.kept, "open");
    this.#opened = globalThis.openJobTerminal(place, {
      address: this.part.dataset.terminal,
      joins,
      say: (words) => (this.state.textContent = words),
      ended: () => this.#ended(),
      leave: () => this.larger.focus(),
    });
    this.part.scrollIntoView({ block: "nearest" });
  }

  #ended() {
    sessionStorage.removeItem(this.kept);
    this.closing.textContent = "Close";
    this.#opened = null;
    this.#tellPage();
  }

  #close() {
    this.#opened?.close();
    this.#size(false);
    this.part.hidden = true;
    document.querySelector("[data-open-terminal]")?.focus();
  }

  #size(full) {
    this.part.classList.toggle("full", full);
    document.documentElement.classList.toggle("covered", full);
    this.larger.setAttribute("aria-pressed", full);
    this.#opened?.terminal.focus();
  }

  /** The list of connections is read again. */
  #tellPage() {
    document.getElementById("connections")?.dispatchEvent(new Event("connections"));
  }
}

const AGAIN_EVERY_MS = 10_000;

/** Let the page open a terminal; `nonce` is that of the page's scripts. */
export function followTerminal(nonce) {
  const part = document.getElementById("terminal-part");
  if (part !== null) new TerminalPart(part, nonce);
  setInterval(() => {
    if (document.hidden) return;
    for (const name of ["connections", "ports"]) document.getElementById(name)?.dispatchEvent(new Event(name));
  }, AGAIN_EVERY_MS);
}
