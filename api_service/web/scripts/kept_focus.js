// The focus is never nowhere: after a part of the page was made anew without what had it, after a dialog whose opener has
// gone, and on a page that says why what was sent is refused.

const LINKS = "a[href]";
const REFUSALS = [".problem", ".warning:not([hidden])", ".rules"];

/** Where a screen reader and the keys go on from. */
function focusOn(element) {
  if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

const isLost = () => document.activeElement === null || document.activeElement === document.body;

/** The main part of the page, where nothing nearer is left. */
export function recoverFocus() {
  const main = document.getElementById("main");
  if (main !== null && isLost()) focusOn(main);
}

/** As many links as stood before it stand before what has the focus now: never a button, which a key might press unseen. */
export function keepFocus() {
  const noted = new WeakMap();
  document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    const active = document.activeElement;
    noted.delete(target);
    if (active === target || !target.contains(active)) return;
    const before = (link) => link.compareDocumentPosition(active) & Node.DOCUMENT_POSITION_FOLLOWING;
    noted.set(target, [...target.querySelectorAll(LINKS)].filter(before).length);
  });
  document.addEventListener("htmx:afterSettle", ({ detail: { target } }) => {
    const number = noted.get(target);
    noted.delete(target);
    if (number === undefined || !isLost()) return;
    const links = [...target.querySelectorAll(LINKS)].filter((link) => link.checkVisibility());
    focusOn(links[Math.min(number, links.length - 1)] ?? target);
  });
}

/** What was wrong comes first, and then the form, or the ways out that are offered. It is brought into sight. */
export function focusOnRefusal() {
  const refusal = REFUSALS.map((shown) => document.querySelector(`main ${shown}`)).find((found) => found !== null);
  if (refusal === undefined || !isLost()) return;
  focusOn(refusal);
  refusal.scrollIntoView({ block: "nearest" });
}
