// The calendar page's timeline. <script id="calendar-data"> has what it shows, <div id="calendar" data-events="/…"> says
// where that can be asked for again. All times are those of the clock on the wall in the page's zone: what they mean as
// instants is the server's matter. Nothing is booked or changed here: forms in dialogs are, with the server's verdict.
import { createCalendar, Interaction, ResourceTimeline } from "@event-calendar/core";
import "@event-calendar/core/index.css";

import { stepByArrows } from "./arrow_keys.js";
import { element, fill } from "./dialog.js";
import { DragWords, spanWords } from "./dragging.js";
import { EntryCard } from "./entry_card.js";
import { EntryFocus } from "./entry_focus.js";
import { counted, followCounts, freeLine } from "./free_line.js";
import { placeLabels } from "./labels.js";
import { joinEvents, mergeEvents } from "./merging.js";
import { millisecondsOf, wallAt, wallOf } from "./wall_times.js";

const SETTLE_MS = 300;
const AGAIN_MS = 5_000;
const JOINED_AT_MOST = 5; // times, for want of room for labels
// How finely time is shown; `narrowest`: pixels of a slot, on screens that it has to be scrolled on.
const SLOTS = {
  day: { slots: 24, narrowest: 38, slotDuration: "01:00", snapDuration: "00:15", slotLabelInterval: "01:00" },
  week: { slots: 6, narrowest: 15, slotDuration: "04:00", snapDuration: "00:30", slotLabelInterval: "12:00" },
  "2weeks": { slots: 3, narrowest: 15, slotDuration: "08:00", snapDuration: "01:00", slotLabelInterval: "24:00" },
  month: { slots: 2, narrowest: 10, slotDuration: "12:00", snapDuration: "06:00", slotLabelInterval: "24:00" },
};

const later = (wall, seconds) => wallAt(millisecondsOf(wall) + seconds * 1000);

/** All that is drawn of the server's answer. */
const contentOf = (data) => JSON.stringify({ ...data, now: null });

/** Another's entry leads nowhere, but its card can be asked for by keys and by a tap. */
function eventContent({ event }) {
  const { entries, gaps = [], heat, href, offer, words } = event.extendedProps;
  if (heat !== undefined) return { domNodes: [heat()] };
  if (offer) return { domNodes: [element("span", "offer-number", event.title)] };
  const shown = element(href ? "a" : "button", "ec-event-title");
  const [count, ...what] = event.title.split(" ");
  const label = element("span", "label", entries ? count : event.title);
  if (entries) label.append(element("span", "what", ` ${what.join(" ")}`));
  for (const [from, until] of gaps) {
    const gap = element("span", "gap");
    gap.style.insetInline = `${100 * from}% ${100 * (1 - until)}%`;
    shown.append(gap);
  }
  shown.append(label);
  shown.dataset.entry = event.id;
  shown.draggable = false;
  if (href) shown.href = href;
  else {
    shown.type = "button";
    shown.tabIndex = -1;
  }
  if (words) shown.append(element("span", "visually-hidden", ` – ${words.replaceAll("\n", ", ")}`));
  return { domNodes: [shown] };
}

function rowContent({ resource }) {
  const { detail } = resource.extendedProps;
  const title = element("span", "row-title");
  title.title = resource.title;
  // The domain of a node, which it shares with others, stands below its name.
  const [, host, domain, index] = /^([^. ]+)(\.[^ ]+)?( \/ .*)?$/.exec(resource.title) ?? [, resource.title];
  title.append(element("bdi", "", `${host}${index ?? ""}`));
  const below = domain ? [element("small", "row-domain", domain)] : [];
  return { domNodes: [title, ...below, element("small", "row-detail", detail)] };
}

/** The slots that were found, as the page lists them. */
function offersOf(rows) {
  const known = new Set(rows.map(({ id }) => id));
  return [...document.querySelectorAll("#found-slots form[data-start]")].map(({ dataset }, number) => ({
    id: `offer ${number}`,
    resourceIds: JSON.parse(dataset.rows).filter((row) => known.has(row)),
    start: dataset.start,
    end: dataset.end,
    title: String(number + 1),
    display: "background",
    classNames: ["offer"],
    extendedProps: { offer: true },
  }));
}

class Timeline {
  #place;
  #data;
  #byId = new Map();
  #shown = [];
  #fixed = []; // free counts and found slots
  #joined = 0;
  #focus;
  #calendar;
  #busy = false;
  #stale = false;
  #timer = 0;
  #dragged = false;
  #revert = null;
  #book = document.getElementById("book-dialog");
  #change = document.getElementById("change-dialog");
  #words;
  #card;
  #chosen = [];

  constructor(place, data) {
    this.#place = place;
    this.#data = data;
    this.#words = new DragWords(place);
    this.#focus = new EntryFocus(place, (id) => this.#byId.get(id));
    this.#card = new EntryCard(place, (entry) => this.#about(entry), this.#focus);
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
    place.addEventListener("keydown", (event) => stepByArrows(place, event));
    followCounts(place, (row) => this.#data.free[row], (...asked) => this.#tellCount(...asked), () => this.#words.hide());
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
      scrollTime: view === "day" ? `${String(Math.max(0, Number(now.slice(11, 13)) - 1)).padStart(2, "0")}:00` : "00:00", // else the first day would be cut
      nowIndicator: true,
      resources: rows.map(({ id, title, detail }) => ({ id, title, extendedProps: { detail } })),
      resourceLabelContent: rowContent,
      events: this.#events(),
      eventContent,
      eventAllUpdated: () => this.#drawn(),
      eventOrder: (a, b) => ("heat" in b.extendedProps) - ("heat" in a.extendedProps) || a.start - b.start,
      eventGap: 2,
      eventStartEditable: false, // but for what says otherwise
      eventDurationEditable: false,
      eventResizableFromStart: true,
      selectable: true,
      unselectAuto: false,
      selectConstraint: (info) => this.#selecting(info),
      select: (info) => this.#askToBook(info),
      dragConstraint: (info) => this.#moving(info),
      resizeConstraint: (info) => this.#moving(info) && (!info.startDelta.seconds || info.event.extendedProps.movable),
      eventDragStart: () => this.#began(),
      eventResizeStart: () => this.#began(),
      eventDragStop: () => (this.#busy = false),
      eventResizeStop: () => (this.#busy = false),
      eventDrop: (info) => this.#dropped(info),
      eventResize: (info) => this.#askToMove(info, info.startDelta.seconds, info.endDelta.seconds),
    };
  }

  #fit() {
    const width = this.#slotWidth();
    if (width === this.#calendar.getOption("slotWidth")) return; // only the height changed, as when a phone's bars go
    this.#calendar.setOption("slotWidth", width);
    this.#draw(() => this.#events());
  }

  /** In pixels, so that all of it is seen where there is room. */
  #slotWidth() {
    const { view, days } = this.#data;
    // As wide as the style sheet makes it: drawn twice, a thousand events would take twice as long.
    const head = matchMedia("(max-width: 40rem)").matches ? 105 : 169;
    const { slots, narrowest } = SLOTS[view];
    return Math.max(narrowest, (this.#place.clientWidth - head - 4) / (days * slots));
  }

  /** Of a second. */
  #pixels() {
    return (this.#slotWidth() * SLOTS[this.#data.view].slots) / 86_400;
  }

  #events() {
    const { first, days, free, cards, rows, events } = this.#data;
    const pixels = this.#pixels();
    const whole = days * 86_400;
    const start = `${first}T00:00:00`;
    const lines = Object.entries(free).map(([row, runs]) => ({
      id: `heat ${row}`,
      resourceIds: [row],
      start,
      end: later(start, whole),
      classNames: ["heat-row"],
      extendedProps: { heat: () => freeLine(row, runs, cards[row], pixels, whole) },
    }));
    this.#fixed = [...lines, ...offersOf(rows)];
    this.#joined = 0;
    return this.#show(mergeEvents(events, pixels / 1000));
  }

  #show(shown) {
    this.#shown = shown;
    this.#byId = new Map(shown.map((event) => [event.id, event]));
    return [...this.#fixed, ...shown];
  }

  /** What can't be named where it is becomes one with its neighbour. */
  #join(unnamed) {
    if (unnamed.length === 0 || this.#busy || this.#joined++ >= JOINED_AT_MOST) return;
    const idOf = (entry) => entry.querySelector("[data-entry]").dataset.entry;
    const pairs = unnamed.map(([row, ...both]) => [this.#data.rows[row].id, ...both.map(idOf)]);
    queueMicrotask(() => this.#draw(() => this.#show(joinEvents(this.#shown, pairs, this.#pixels() / 1000))));
  }

  #draw(events) {
    this.#focus.note();
    this.#calendar.setOption("events", events());
  }

  #drawn() {
    this.#focus.restore();
    this.#join(placeLabels(this.#place));
    // One of what leads nowhere can be reached by Tab, the others by arrow keys.
    const other = this.#place.querySelector("button.ec-event-title");
    if (other !== null) other.tabIndex = 0;
  }

  #about(entry) {
    const { entry: id } = entry.querySelector("[data-entry]")?.dataset ?? {};
    const event = this.#byId.get(id);
    return event && { ...event.extendedProps, closer: event.extendedProps.entries && this.#closer(event) };
  }

  /** Where merged entries are shown with more of them apart, as {href, words}: their day, and then finer rows. */
  #closer({ start, resourceIds: [row] }) {
    const address = new URL(this.#place.dataset.day, location.href);
    const finer = { type: { by: "node", type: row, words: "Show its nodes" }, node: { by: "card", node: row, words: "Show its GPUs" } };
    const day = { from: start.slice(0, 10), words: "Show this day" };
    const way = this.#data.view === "day" ? finer[this.#data.by] : day;
    if (way === undefined) return undefined;
    const { words, ...fields } = way;
    for (const [name, value] of Object.entries(fields)) address.searchParams.set(name, value);
    return { href: address.href, words };
  }

  #tellCount(row, run, pointer) {
    const [from, until] = run.map((seconds) => later(`${this.#data.first}T00:00:00`, seconds));
    this.#words.show(`${counted(run)} of ${this.#data.cards[row]} free, ${spanWords(from, until)}`, pointer);
  }

  #moving({ event, jsEvent }) {
    this.#words.show(spanWords(wallOf(event.start), wallOf(event.end)), jsEvent);
    return true;
  }

  /** More rows are more GPUs of a node, or more nodes of a type. */
  #selecting({ startStr, endStr, resource, jsEvent }) {
    const { by, rows } = this.#data;
    const first = rows.findIndex(({ id }) => id === resource?.id);
    const same = by === "card" ? "node" : "type";
    const joins = (number) => by !== "type" && rows[number]?.[same] === rows[first][same];
    this.#chosen = first < 0 ? [] : this.#words.rowsTo(first, jsEvent, joins).map((number) => rows[number]);
    const count = this.#chosen.length;
    const what = count < 2 ? "" : `, ${count} ${by === "card" ? "GPUs" : "nodes"}`;
    this.#words.show(`${spanWords(startStr.slice(0, 19), endStr.slice(0, 19))}${what}`, jsEvent);
    return true;
  }

  #began() {
    this.#card.hide();
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
      const way = "Move it to another time, or make another booking.";
      return { why: `It has GPUs on ${event.extendedProps.nodes} nodes at once, so it can’t be put on one. ${way}` };
    }
    if (from.node === to.node) {
      const way = "Drop it on a GPU of another node to move it there.";
      return { node: "", why: `The server chooses which of a node’s GPUs a booking gets. ${way}` };
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
    const count = Math.max(1, this.#chosen.length);
    const nodes = this.#data.by === "node" ? count : 1;
    const node = nodes > 1 ? "" : (row?.node ?? "");
    const fields = { start: startStr.slice(0, 16), end: endStr.slice(0, 16), length: "", node };
    if (this.#data.by === "node") fields.nodes = nodes;
    if (row !== undefined) fields.type = row.type;
    if (this.#data.by === "card") fields.gpus = count;
    fill(form, fields);
    if (nodes > 1) form.querySelector("details").open = true;
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
      start: startSeconds ? later(start, startSeconds).slice(0, 16) : "",
      end: endSeconds ? later(end, endSeconds).slice(0, 16) : "",
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
      this.#card.hide();
      document.getElementById("book-place").append(form);
      this.#calendar.unselect();
      this.#catchUp();
    });
    this.#change.addEventListener("close", () => {
      this.#card.hide(); // the entry that has the focus again would cover its neighbours
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
    const shown = contentOf(this.#data);
    try {
      const answer = await fetch(this.#place.dataset.events, { cache: "no-store", redirect: "error" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      this.#data = await answer.json();
    } catch {
      this.#refreshSoon(AGAIN_MS); // why is told elsewhere on the page, which follows the server, too
      return;
    }
    this.#stale = false;
    if (contentOf(this.#data) === shown) return; // a change elsewhere: drawn anew, all labels would flicker
    this.#draw(() => this.#events());
    document.getElementById("calendar-crowded").hidden = !this.#data.crowded;
  }
}

const place = document.getElementById("calendar");
const data = document.getElementById("calendar-data");
if (place !== null && data !== null) new Timeline(place, JSON.parse(data.textContent));
