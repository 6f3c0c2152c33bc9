// Sliders in the place of short lists of choices, and the picture beside them that follows what happens to GPUs.
import { element } from "./dialog.js";

const REST_MS = 10_000; // between two pictures that nobody asked for: each reads the calendar

/** The list keeps the value that is sent, unless it is the whole request's; its label becomes the slider's. */
function slide(select) {
  const range = element("input", "");
  const words = element("output", "");
  range.type = "range";
  range.max = String(select.options.length - 1);
  range.value = String(select.selectedIndex);
  range.id = select.id;
  select.removeAttribute("id");
  words.htmlFor = range.id;
  const tell = () => {
    select.selectedIndex = Number(range.value);
    select.disabled = range.value === range.max;
    words.textContent = select.selectedOptions[0].textContent;
    range.setAttribute("aria-valuetext", words.textContent);
  };
  range.addEventListener("input", tell);
  tell();
  select.hidden = true;
  select.after(range, words);
  if (select.options.length < 2) range.disabled = true;
}

/** Refresh at once, and after changes that come too soon, once more. */
function follow(picture) {
  let before = 0;
  let pending = 0;
  const refresh = () => {
    pending = 0;
    before = Date.now();
    picture.dispatchEvent(new Event("refresh"));
  };
  const changed = () => {
    if (!picture.isConnected) return;
    pending ||= setTimeout(refresh, Math.max(0, before + REST_MS - Date.now()));
  };
  for (const topic of ["live:job", "live:queue"]) document.body.addEventListener(topic, changed);
}

function slideIn(place) {
  if (place === null || place.querySelector("input[type=range]") !== null) return;
  for (const select of place.querySelectorAll("select")) slide(select);
  place.querySelector("button").hidden = true;
}

/** Where a form's verdict brings another picture, with sliders for what is typed now. */
export function makeSliders() {
  const place = document.getElementById("smaller");
  slideIn(place);
  document.addEventListener("htmx:oobAfterSwap", () => slideIn(document.getElementById("smaller")));
  if (!(place instanceof HTMLFormElement)) return;
  place.addEventListener("submit", (event) => event.preventDefault());
  follow(document.getElementById("waiting-picture"));
}
