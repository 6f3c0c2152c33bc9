// The palette: a field that finds jobs, bookings, nodes, people and pages, and goes there.
import { closeButton, element, openDialog } from "./dialog.js";
import { restoreSession } from "./session.js";

const PAUSE_MS = 120;
const UNREACHABLE = "The server can’t be reached. Keep typing to try again.";

/** What matches, in groups; null when a later question makes the answer useless. */
async function find(text, signal) {
  const address = `/search?q=${encodeURIComponent(text)}`;
  const answer = await fetch(address, { cache: "no-store", headers: { "HX-Request": "true" }, redirect: "error", signal });
  if (answer.status === 401 && (await restoreSession())) return find(text, signal);
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function attributes(made, named) {
  for (const [name, value] of Object.entries(named)) made.setAttribute(name, value);
  return made;
}

let numbered = 0;

function option({ name, detail, href }) {
  const made = element("a", "", element("span", "", name), element("span", "quiet", detail));
  return attributes(made, { id: `found-${++numbered}`, role: "option", tabindex: "-1", "aria-selected": "false", href });
}

function group({ title, links }) {
  const heading = attributes(element("div", "quiet", title), { id: `found-${++numbered}`, role: "presentation" });
  return attributes(element("div", "", heading, ...links.map(option)), { role: "group", "aria-labelledby": heading.id });
}

/** The field, its list, and what is said of it. */
class Finder {
  constructor() {
    this.field = attributes(element("input", ""), {
      type: "text", role: "combobox", "aria-label": "Name or id", "aria-controls": "found", "aria-expanded": "false",
      "aria-autocomplete": "list", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: "100",
      enterkeyhint: "go", "data-no-draft": "", placeholder: "Name or id",
    }); // prettier-ignore
    this.list = attributes(element("div", "found"), { id: "found", role: "listbox", "aria-label": "Found" });
    this.state = attributes(element("p", "quiet"), { role: "status" });
    this.asked = null; // the question that is under way
    this.shown = null; // the text whose answer is in the list
    this.answered = Promise.resolve();
    this.field.addEventListener("input", () => this.ask(PAUSE_MS));
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("mousemove", ({ target }) => this.choose(target.closest("[role=option]") ?? this.chosen));
  }

  get options() {
    return [...this.list.querySelectorAll("[role=option]")];
  }

  get chosen() {
    return this.list.querySelector("[aria-selected=true]");
  }

  ask(pause) {
    this.asked?.abort();
    this.asked = new AbortController();
    this.answered = this.answer(this.field.value.trim(), pause, this.asked.signal);
  }

  async answer(text, pause, signal) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (signal.aborted) return;
    try {
      const groups = await find(text, signal);
      if (!signal.aborted) this.show(groups, text);
    } catch {
      if (!signal.aborted) this.show([], text, UNREACHABLE);
    }
  }

  show(groups, text, trouble = `Nothing matches “${text}”.`) {
    this.shown = text;
    this.list.replaceChildren(...groups.map(group));
    const count = this.options.length;
    this.field.setAttribute("aria-expanded", String(count > 0));
    this.state.textContent = count === 0 ? trouble : text === "" ? "" : `${count} found`;
    this.choose(this.options[0] ?? null);
  }

  choose(found) {
    if (found === this.chosen) return;
    this.chosen?.setAttribute("aria-selected", "false");
    found?.setAttribute("aria-selected", "true");
    found?.scrollIntoView({ block: "nearest" });
    if (found === null) this.field.removeAttribute("aria-activedescendant");
    else this.field.setAttribute("aria-activedescendant", found.id);
  }

  press(event) {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const { options } = this;
      const at = options.indexOf(this.chosen) + step;
      this.choose(options[(at + options.length) % options.length] ?? null);
    } else if (event.key === "Enter") {
      event.preventDefault();
      // What was typed last decides, even if its answer is still to come. A question that was given up is answered, too.
      void this.answered.then(() => this.field.isConnected && this.shown === this.field.value.trim() && this.chosen?.click());
    }
  }
}

/** Open the palette, unless a dialog is open. */
export function openFinder() {
  if (document.querySelector("dialog[open]") !== null) return;
  const finder = new Finder();
  const { dialog, closed } = openDialog("Find", finder.field, finder.state, finder.list, element("div", "buttons", closeButton("Close")));
  dialog.classList.add("finder");
  dialog.addEventListener("click", ({ target }) => target.closest("a[role=option]") !== null && setTimeout(() => dialog.close()));
  void closed.then(() => finder.asked.abort());
  finder.field.focus();
  finder.ask(0);
}
