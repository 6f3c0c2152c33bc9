// A form is sent when the server is there to take it. Until then it stays on the page, as it was typed.
import { noteSent } from "./drafts.js";
import { prepareToSend } from "./session.js";

const sending = new Set();

async function send(form, submitter) {
  if (!(await prepareToSend())) {
    sending.delete(form);
    return;
  }
  noteSent(form, submitter);
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
