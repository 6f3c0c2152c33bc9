// Deeds that can't be undone are confirmed on a page that names what is lost; scripts show that page in a dialog.
import { element, openDialog } from "./dialog.js";
import { prepareToSend, QUESTION } from "./session.js";

let opening = false;

async function confirm(link) {
  if (!(await prepareToSend(QUESTION))) return;
  const answer = await fetch(link.href, { cache: "no-store", headers: { "HX-Request": "true" } }).catch(() => null);
  if (!answer?.ok) {
    location.assign(link.href); // the page says what is wrong
    return;
  }
  const content = element("div", "");
  content.innerHTML = await answer.text(); // written by our server
  const { dialog } = openDialog("", content);
  const back = content.querySelector("[data-back]");
  back.addEventListener("click", (event) => {
    event.preventDefault();
    dialog.close();
  });
  back.focus();
}

/** Links to such pages open a dialog. Parts of the page may be replaced at any time: the document listens for them. */
export function confirmInDialogs() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-ask]") : null;
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (link === null || !plain) return;
    event.preventDefault();
    if (opening) return; // a second click
    opening = true;
    void confirm(link).finally(() => (opening = false));
  });
}
