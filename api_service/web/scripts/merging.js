// Entries that are too many or too small to be drawn one by one become one: "5 bookings".
import { millisecondsOf, wallAt } from "./wall_times.js";

const TARGET = 24; // pixels: what is narrower can't be hit
const WIDEST = 5; // of what small entries become, in multiples of what is small
const MOST = 200; // drawn: browsers need a millisecond for each
// So many lanes above each other on a row, and so many targets wide is what is small: coarser where too many are left.
const STEPS = [[8, 1], [4, 1], [2, 1], [1, 1], [2, 2], [1, 2], [1, 4], [1, 12]];

const DAY = 86_400_000; // milliseconds

const isMine = ({ classNames }) => classNames.includes("mine");
const kindOf = ({ classNames }) => classNames[0];
const PLURALS = { booking: "bookings", job: "jobs", maintenance: "maintenance windows" };

/** How many entries it is: the server lists only the first of those that it has merged. */
const countOf = ({ extendedProps }) => extendedProps.count ?? 1;

/** The times that its entries take; of those that the server has merged only the whole is known. */
const spansOf = ({ event, start, end }) => event.extendedProps.spans ?? [[start, end]];

const titleOf = (count, kinds) => `${count} ${kinds.size === 1 ? PLURALS[[...kinds][0]] : "entries"}`;

function together(row, number, items) {
  const entries = items.flatMap(({ event }) => event.extendedProps.entries ?? [event]);
  const kinds = new Set(items.flatMap(({ event }) => event.extendedProps.kinds ?? [kindOf(event)]));
  const [kind] = kinds;
  const count = items.reduce((sum, { event }) => sum + countOf(event), 0);
  const mine = items.some((item) => item.mine);
  return {
    start: Math.min(...items.map(({ start }) => start)),
    end: Math.max(...items.map(({ end }) => end)),
    mine,
    event: {
      id: `merged ${row} ${number}`,
      classNames: [kinds.size === 1 ? kind : "booking", mine ? "mine" : "others", "merged"],
      title: titleOf(count, kinds),
      extendedProps: { count, kinds: [...kinds], entries, spans: items.flatMap(spansOf) },
    },
  };
}

/** The merged entry as it is drawn on a row, at least as wide as a target; `gaps`: parts of it that no entry takes. */
function drawn(event, row, start, earliestEnd, pixels) {
  const end = Math.max(earliestEnd, start + TARGET / pixels);
  const gaps = [];
  let taken = start;
  for (const [from, until] of [...spansOf({ event, start, end }), [end, end]].sort(([a], [b]) => a - b)) {
    if (from > taken) gaps.push([taken, Math.min(from, end)].map((time) => (time - start) / (end - start)));
    taken = Math.max(taken, until);
  }
  const extendedProps = { ...event.extendedProps, gaps };
  return { ...event, extendedProps, resourceIds: [row], start: wallAt(start), end: wallAt(end) };
}

/** Small neighbours of a row, one's own apart from those of others. */
function mergeSmall(row, items, pixels, target) {
  const kept = [];
  for (const mine of [true, false]) {
    let group = [];
    const flush = () => {
      if (group.length > 1) kept.push(together(row, `${mine} ${kept.length}`, group));
      else kept.push(...group);
      group = [];
    };
    for (const item of items.filter((one) => one.mine === mine)) {
      const small = (item.end - item.start) * pixels < target;
      if (!small) kept.push(item);
      else {
        const [first, last] = [group[0], group.at(-1)];
        const near = first && (item.start - last.end) * pixels < target && (item.end - first.start) * pixels <= WIDEST * target;
        if (first && !near) flush();
        group.push(item);
      }
    }
    flush();
  }
  return kept;
}

/** What finds none of the lanes lies in one more, together with all that it overlaps there of the same day. One's own come first. */
function mergeDeep(row, items, lanes) {
  const taken = Array.from({ length: lanes }, () => []);
  const kept = [];
  const left = [];
  for (const item of [...items].sort((a, b) => b.mine - a.mine || a.start - b.start)) {
    const lane = taken.find((spans) => spans.every(({ start, end }) => end <= item.start || item.end <= start));
    (lane ?? left).push(item);
    if (lane !== undefined) kept.push(item);
  }
  let group = [];
  let end = -Infinity;
  const flush = (until) => {
    if (group.length > 1) {
      const merged = together(row, `deep ${kept.length}`, group);
      kept.push({ ...merged, end: Math.min(merged.end, until) });
    } else kept.push(...group);
    group = [];
  };
  for (const item of left.sort((a, b) => a.start - b.start)) {
    const midnight = group.length > 0 ? (Math.floor(group[0].start / DAY) + 1) * DAY : Infinity;
    if (item.start >= Math.min(end, midnight)) {
      flush(item.start);
      end = -Infinity;
    }
    group.push(item);
    end = Math.max(end, item.end);
  }
  flush(Infinity);
  return kept;
}

/** The timeline's events, of which those of a row that are too small or too many are merged. `pixels`: of a millisecond. */
export function mergeEvents(events, pixels) {
  const rows = new Map();
  for (const event of events) {
    for (const row of event.resourceIds) {
      if (!rows.has(row)) rows.set(row, []);
      rows.get(row).push({ event, start: millisecondsOf(event.start), end: millisecondsOf(event.end), mine: isMine(event) });
    }
  }
  let merged = [];
  for (const [lanes, targets] of STEPS) {
    merged = [...rows].map(([row, items]) => [row, mergeDeep(row, mergeSmall(row, items, pixels, targets * TARGET), lanes)]);
    if (merged.reduce((sum, [, items]) => sum + items.length, 0) <= MOST) break;
  }
  return eventsOf(merged, pixels);
}

/** What is drawn: an event that is not merged anywhere is one for all of its rows. */
function eventsOf(merged, pixels) {
  const single = new Map();
  const made = [];
  for (const [row, items] of merged) {
    for (const { event, start, end } of items) {
      if (event.extendedProps.entries === undefined) {
        if (!single.has(event)) single.set(event, []);
        single.get(event).push(row);
      } else {
        const title = event.title ?? titleOf(countOf(event), new Set([kindOf(event)]));
        made.push(drawn({ ...event, title }, row, start, end, pixels));
      }
    }
  }
  for (const [event, resourceIds] of single) made.push({ ...event, resourceIds });
  return made;
}

/** The drawn events, of which pairs are merged: [row, id, id of the other]. Each is merged once, by its first pair. */
export function joinEvents(shown, pairs, pixels) {
  const byId = new Map(shown.map((event) => [event.id, event]));
  const gone = new Map(); // the rows that an event is not drawn on any more
  const joined = [];
  for (const [row, ...ids] of pairs) {
    if (ids.some((id) => gone.get(id)?.has(row))) continue;
    const items = ids.map((id) => byId.get(id)).map((event) => ({ event, start: millisecondsOf(event.start), end: millisecondsOf(event.end), mine: isMine(event) }));
    const { event, start, end } = together(row, ids.join(" "), items);
    joined.push(drawn(event, row, start, end, pixels));
    for (const id of ids) gone.set(id, (gone.get(id) ?? new Set()).add(row));
  }
  const left = shown.map((event) => ({ ...event, resourceIds: event.resourceIds.filter((row) => !gone.get(event.id)?.has(row)) }));
  return [...left.filter(({ resourceIds }) => resourceIds.length > 0), ...joined];
}
