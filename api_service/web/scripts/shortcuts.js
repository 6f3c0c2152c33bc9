// Keys that go to pages, find things and explain themselves. They are for people who don't type at that moment.
import { openLinked } from "./confirming.js";
import { openFinder } from "./finder.js";

const WITHIN_MS = 1_500;
const OFF = "gpu-dev-single-keys-off";
const FIELDS = "input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable], [role=textbox], [role=dialog]";

let began = -WITHIN_MS; // when `g` was pressed

const finder = () => document.querySelector("a[data-find]");
const sheet = () => document.querySelector("a[data-sheet]");

/** The switch for single keys works only with scripts: they show it. */
function showSwitch(place) {
  for (const line of place.querySelectorAll("[data-single-keys]")) {
    line.hidden = false;
    line.querySelector("input").checked = localStorage.getItem(OFF) === null;
  }
}

async function openSheet() {
  const content = await openLinked(sheet());
  if (content !== null) showSwitch(content);
}

function isPlainClick(event) {
  return event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
}

function isBusy({ target }) {
  return document.querySelector("dialog[open]") !== null || (target instanceof Element && target.closest(FIELDS) !== null);
}

function pressSingle(event) {
  const goes = event.timeStamp - began < WITHIN_MS;
  const address = goes && !event.shiftKey ? JSON.parse(finder().dataset.keys)[event.key] : undefined;
  began = event.key === "g" && !goes ? event.timeStamp : -WITHIN_MS;
  if (address !== undefined) location.assign(address);
  else if (event.key === "/") openFinder();
  else if (event.key === "?") void openSheet();
  else return;
  event.preventDefault();
}

function press(event) {
  if (finder() === null || event.defaultPrevented || event.isComposing || event.repeat) return;
  const withControl = event.ctrlKey !== event.metaKey && !event.altKey && !event.shiftKey;
  if (withControl && event.key.toLowerCase() === "k") {
    if (document.querySelector("dialog[open]") === null) event.preventDefault();
    openFinder();
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !isBusy(event) && localStorage.getItem(OFF) === null) pressSingle(event);
}

/** Follow keys, the header's button, and the link to the keys. */
export function followShortcuts() {
  showSwitch(document);
  document.addEventListener("keydown", press);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-find], a[data-sheet]") : null;
    if (link === null || !isPlainClick(event)) return;
    event.preventDefault();
    if (link === finder()) openFinder();
    else void openSheet();
  });
  document.addEventListener("change", ({ target }) => {
    if (target.closest("[data-single-keys]") === null) return;
    if (target.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "yes");
  });
}
