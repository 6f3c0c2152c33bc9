// Deeds that can't be undone are confirmed on a page that names what is lost; scripts show that page in a dialog.
import { element, openDialog } from "./dialog.js";
import { prepareToSend, QUESTION } from "./session.js";

let opening = false;

/** Show a link's page as a dialog; resolves with its content, or null where somebody gave up or another page opens. */
export async function openLinked(link) {
  if (opening) return null; // a second click
  opening = true;
  try {
    return await open(link);
  } finally {
    opening = false;
  }
}

async function open(link) {
  if (!(await prepareToSend(QUESTION))) return null;
  const answer = await fetch(link.href, { cache: "no-store", headers: { "HX-Request": "true" } }).catch(() => null);
  if (!answer?.ok) {
    location.assign(link.href); // the page says what is wrong
    return null;
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
  return content;
}

/** Links to such pages open a dialog. Parts of the page may be replaced at any time: the document listens for them. */
export function confirmInDialogs() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-ask]") : null;
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (link === null || !plain) return;
    event.preventDefault();
    void openLinked(link);
  });
}
