// The calendar page's timeline. <script id="calendar-data"> has what it shows, <div id="calendar" data-events="/…"> says
// where that can be asked for again. All times are those of the clock on the wall in the page's zone: what they mean as
// instants is the server's matter. Nothing is booked or changed here: forms in dialogs are, with the server's verdict.
import { createCalendar, Interaction, ResourceTimeline } from "@event-calendar/core";
import "@event-calendar/core/index.css";

const SETTLE_MS = 300;
const AGAIN_MS = 5_000;
// How finely time is shown; `narrowest`: pixels of a slot, on screens that it has to be scrolled on.
const SLOTS = {
  day: { slots: 24, narrowest: 38, slotDuration: "01:00", snapDuration: "00:15", slotLabelInterval: "01:00" },
  week: { slots: 6, narrowest: 15, slotDuration: "04:00", snapDuration: "00:30", slotLabelInterval: "12:00" },
  "2weeks": { slots: 3, narrowest: 15, slotDuration: "08:00", snapDuration: "01:00", slotLabelInterval: "24:00" },
  month: { slots: 2, narrowest: 10, slotDuration: "12:00", snapDuration: "06:00", slotLabelInterval: "24:00" },
};

const at = (wall) => Date.parse(`${wall}Z`);
const moved = (wall, seconds) => new Date(at(wall) + seconds * 1000).toISOString().slice(0, 16);

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** A field may be called as something that lists have: `length` is one. */
function fill(form, fields) {
  for (const [name, value] of Object.entries(fields)) form.elements.namedItem(name).value = value;
}

/** Free counts over a row's time, each as wide as it lasts. */
function heatLine(runs, cards, first, days) {
  const line = element("div", "heat-line");
  line.setAttribute("aria-hidden", "true"); // the table says it in words
  const begin = at(`${first}T00:00:00`);
  const whole = days * 86_400_000;
  for (const [from, to, free] of runs) {
    const level = free === 0 ? "none" : free * 4 <= cards ? "few" : free < cards ? "some" : "all";
    const run = element("span", `heat ${level}`, String(free));
    run.title = `${free} of ${cards} free`;
    run.style.insetInlineStart = `${(100 * (at(from) - begin)) / whole}%`;
    run.style.inlineSize = `${(100 * (at(to) - at(from))) / whole}%`;
    line.append(run);
  }
  return line;
}

function eventContent({ event }) {
  const { heat, href, words } = event.extendedProps;
  if (heat !== undefined) return { domNodes: [heat()] };
  const shown = element(href ? "a" : "span", "ec-event-title", event.title);
  if (href) {
    shown.href = href;
    shown.draggable = false;
  }
  if (words) {
    shown.title = words;
    shown.append(element("span", "visually-hidden", ` – ${words}`));
  }
  return { domNodes: [shown] };
}

function rowContent({ resource }) {
  const { detail } = resource.extendedProps;
  return { domNodes: [element("span", "row-title", resource.title), element("small", "row-detail", detail)] };
}

function eventsOf({ events, heat, cards, first, days }) {
  const end = new Date(at(`${first}T00:00:00`) + days * 86_400_000).toISOString().slice(0, 19);
  const lines = Object.entries(heat).map(([row, runs]) => ({
    id: `heat ${row}`,
    resourceIds: [row],
    start: `${first}T00:00:00`,
    end,
    classNames: ["heat-row"],
    extendedProps: { heat: () => heatLine(runs, cards[row], first, days) },
  }));
  return [...lines, ...events];
}

class Timeline {
  #place;
  #data;
  #byId = new Map();
  #calendar;
  #busy = false;
  #stale = false;
  #timer = 0;
  #dragged = false;
  #revert = null;
  #book = document.getElementById("book-dialog");
  #change = document.getElementById("change-dialog");

  constructor(place, data) {
    this.#place = place;
    this.#data = data;
    this.#remember();
    this.#calendar = createCalendar(place, [ResourceTimeline, Interaction], this.#options());
    // Its roles are those of a table, which it is not: the table is a page of its own.
    for (const name of ["role", "aria-colindex", "aria-colspan"]) {
      for (const each of place.querySelectorAll(`[${name}]`)) each.removeAttribute(name);
    }
    this.#dialogs();
    // The end of a drag is no click on the link that was dragged.
    place.addEventListener("click", (event) => this.#dragged && event.preventDefault(), true);
    place.addEventListener("pointerdown", () => (this.#dragged = false), true);
    for (const kind of ["calendar", "now"]) {
      document.body.addEventListener(`live:${kind}`, () => this.#refreshSoon(SETTLE_MS));
    }
    addEventListener("resize", () => this.#fit());
  }

  #options() {
    const { view, first, days, rows, offset, now } = this.#data;
    const { slotDuration, snapDuration, slotLabelInterval } = SLOTS[view];
    return {
      view: "resourceTimelineDay",
      date: first,
      duration: { days },
      timeZone: offset,
      locale: "en-GB",
      headerToolbar: { start: "", center: "", end: "" },
      dayHeaderFormat: days > 14 ? { day: "numeric" } : { weekday: "short", day: "numeric", month: "short" },
      slotLabelFormat: { hour: "2-digit", minute: "2-digit" },
      slotDuration,
      snapDuration,
      slotLabelInterval,
      slotWidth: this.#slotWidth(),
      scrollTime: `${String(Math.max(0, Number(now.slice(11, 13)) - 1)).padStart(2, "0")}:00`,
      nowIndicator: true,
      resources: rows.map(({ id, title, detail }) => ({ id, title, extendedProps: { detail } })),
      resourceLabelContent: rowContent,
      events: eventsOf(this.#data),
      eventContent,
      eventOrder: (a, b) => ("heat" in b.extendedProps) - ("heat" in a.extendedProps) || a.start - b.start,
      eventGap: 2,
      eventStartEditable: false, // but for what says otherwise
      eventDurationEditable: false,
      eventResizableFromStart: true,
      selectable: true,
      unselectAuto: false,
      select: (info) => this.#askToBook(info),
      resizeConstraint: ({ event, startDelta }) => !startDelta.seconds || event.extendedProps.movable,
      eventDragStart: () => this.#began(),
      eventResizeStart: () => this.#began(),
      eventDragStop: () => (this.#busy = false),
      eventResizeStop: () => (this.#busy = false),
      eventDrop: (info) => this.#dropped(info),
      eventResize: (info) => this.#askToMove(info, info.startDelta.seconds, info.endDelta.seconds),
    };
  }

  #fit() {
    this.#calendar.setOption("slotWidth", this.#slotWidth());
  }

  /** In pixels, so that all of it is seen where there is room. */
  #slotWidth() {
    const { view, days } = this.#data;
    // As wide as the style sheet makes it: drawn twice, a thousand events would take twice as long.
    const head = matchMedia("(max-width: 40rem)").matches ? 105 : 169;
    const { slots, narrowest } = SLOTS[view];
    return Math.max(narrowest, (this.#place.clientWidth - head - 4) / (days * slots));
  }

  #remember() {
    this.#byId = new Map(this.#data.events.map((event) => [event.id, event]));
  }

  #began() {
    this.#busy = true;
    this.#dragged = true;
  }

  /** Another row may be another node, which can be asked for; what can't be is said, with a way on. */
  #dropped(info) {
    const { node, why } = this.#elsewhere(info);
    const seconds = info.delta.seconds;
    // Whoever only slips off the row while they move it in time has moved it in time.
    if (why === undefined || (node === "" && seconds !== 0)) this.#askToMove(info, seconds, seconds, node);
    else this.#sayWhyNot(info, why);
  }

  /** The node that the row it was dropped on means, none for the one that it is on; or why it can't be there. */
  #elsewhere({ event, oldResource, newResource }) {
    if (newResource === undefined) return { node: "" };
    const row = (resource) => this.#data.rows.find(({ id }) => id === resource.id);
    const [from, to] = [row(oldResource), row(newResource)];
    if (this.#data.by !== "node" && from.type !== to.type) {
      const way = `Book a slot on ${to.type}, and then cancel this one.`;
      return { why: `A booking keeps the type of GPU that it was made for, here ${from.type}. ${way}` };
    }
    if (event.extendedProps.nodes > 1) {
      const way = "Move it to another time, or book anew.";
      return { why: `It has GPUs on ${event.extendedProps.nodes} nodes at once, so it can’t be put on one. ${way}` };
    }
    if (from.node === to.node) {
      const way = "Drop it on a GPU of another node to move it there.";
      return { node: "", why: `Which of a node’s GPUs a booking has is the server’s choice. ${way}` };
    }
    return { node: to.node };
  }

  #sayWhyNot({ revert }, why) {
    revert();
    this.#openChange("It can’t be put there", element("p", "warning", why));
  }

  #openChange(title, words) {
    document.getElementById("change-dialog-title").textContent = title;
    document.getElementById("change-verdict").replaceChildren(words);
    this.#change.showModal();
  }

  #askToBook({ startStr, endStr, resource }) {
    const form = document.getElementById("book-form");
    const row = this.#data.rows.find(({ id }) => id === resource?.id);
    const fields = { start: startStr.slice(0, 16), end: endStr.slice(0, 16), length: "", node: row?.node ?? "" };
    if (row !== undefined) fields.type = row.type;
    fill(form, fields);
    const left = document.getElementById("book-place");
    left.style.minBlockSize = `${left.offsetHeight}px`; // what is below stays where it is
    document.getElementById("book-dialog-place").append(form);
    this.#book.showModal();
    form.elements.namedItem("title").focus();
    form.dispatchEvent(new Event("asked"));
  }

  #askToMove({ event, revert }, startSeconds, endSeconds, node = "") {
    const { start, end, extendedProps } = this.#byId.get(event.id);
    const form = document.getElementById("change-form");
    form.action = `/bookings/${extendedProps.booking}`;
    const fields = {
      booking: extendedProps.booking,
      start: startSeconds ? moved(start, startSeconds) : "",
      end: endSeconds ? moved(end, endSeconds) : "",
      node,
    };
    fill(form, fields);
    this.#revert = revert;
    this.#openChange("Change your booking?", element("p", "quiet", "Asking…"));
    form.dispatchEvent(new Event("asked"));
  }

  #dialogs() {
    const form = document.getElementById("book-form");
    this.#book.addEventListener("close", () => {
      document.getElementById("book-place").append(form);
      this.#calendar.unselect();
      this.#catchUp();
    });
    this.#change.addEventListener("close", () => {
      this.#revert?.();
      this.#revert = null;
      this.#catchUp();
    });
    // What can't be asked is said on the page, which the dialog hides.
    document.getElementById("change-form").addEventListener("htmx:responseError", () => this.#change.close());
    for (const button of document.querySelectorAll("dialog [data-close]")) {
      button.addEventListener("click", () => button.closest("dialog").close());
    }
  }

  #refreshSoon(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#refresh(), pause);
  }

  #catchUp() {
    if (this.#stale) this.#refreshSoon(0);
  }

  async #refresh() {
    this.#stale = true;
    if (this.#busy || this.#book.open || this.#change.open) return; // nothing moves under somebody's hand
    try {
      const answer = await fetch(this.#place.dataset.events, { cache: "no-store", redirect: "error" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      this.#data = await answer.json();
    } catch {
      this.#refreshSoon(AGAIN_MS); // why is told elsewhere on the page, which follows the server, too
      return;
    }
    this.#stale = false;
    this.#remember();
    const focused = this.#place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.#calendar.setOption("events", eventsOf(this.#data));
    document.getElementById("calendar-crowded").hidden = !this.#data.crowded;
    requestAnimationFrame(() => this.#focus(focused));
  }

  #focus(href) {
    if (href === null || this.#place.contains(document.activeElement)) return;
    [...this.#place.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href)?.focus();
  }
}

const place = document.getElementById("calendar");
const data = document.getElementById("calendar-data");
if (place !== null && data !== null) new Timeline(place, JSON.parse(data.textContent));
