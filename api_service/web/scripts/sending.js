// A form is sent when the server is there to take it. Until then it stays on the page, as it was typed.
import { noteSent } from "./drafts.js";
import { prepareToSend } from "./session.js";

const sending = new Set();
let keys = new WeakMap(); // of forms that were sent: the server does once what comes twice with a key

/** Send the key again that a form was sent with, although the form may have been made anew since. */
function keepKey(form) {
  const field = form.elements.namedItem("key");
  if (field === null) return;
  field.value = keys.get(form) ?? field.value;
  keys.set(form, field.value);
}

/** A page that the browser kept and shows again: what is sent from it is meant anew. */
function renewKeys({ persisted }) {
  if (!persisted) return;
  keys = new WeakMap();
  for (const field of document.querySelectorAll("input[name=key]")) field.value = `${field.value.slice(0, 40)}.${Date.now()}`;
}

/** What is sent to the address of its own page takes the page's place in the history: leave the page there to go back to. */
function keepPage(form, submitter) {
  const isRefusal = "refused" in document.body.dataset; // it has the address of its form already
  if (isRefusal || submitter?.hasAttribute("formaction")) return;
  if (form.action === location.href.split("#")[0]) history.pushState(null, "");
}

async function send(form, submitter) {
  if (!(await prepareToSend())) {
    sending.delete(form);
    return;
  }
  noteSent(form, submitter);
  keepKey(form);
  keepPage(form, submitter);
  form.dataset.ready = "";
  // The button may have been replaced meanwhile: what it says is sent by its like.
  const button = submitter?.cloneNode() ?? null;
  if (button !== null) {
    button.hidden = true;
    form.append(button);
  }
  form.requestSubmit(button);
  sending.delete(form); // the browser may stop it; the server takes a form's key once
  button?.remove();
  delete form.dataset.ready;
}

/** Ask the server before a form is sent, and send it once it is ready. */
export function sendWhenReady() {
  window.addEventListener("pageshow", renewKeys);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented || "ready" in form.dataset) return;
    if (document.body.dataset.user === undefined || form.getAttribute("action") === "/sign-out") {
      noteSent(form, event.submitter); // signing in or out needs no session
      return;
    }
    event.preventDefault();
    if (sending.has(form)) return; // a second click
    sending.add(form);
    void send(form, event.submitter);
  });
}
