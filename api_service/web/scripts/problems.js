// What went wrong with a request of the page's scripts stands in #problems until something goes right there.
import htmx from "htmx.org";

import { repeat, serverAnswers } from "./session.js";

// htmx prints these as errors. A request is aborted for a newer one, or because its part has gone: that is no error.
// After any request without an answer, a second event says why.
const NO_ERRORS = new Set(["htmx:afterRequest", "htmx:sendAbort"]);
const UNREACHABLE = "The server could not be reached, so this may be out of date. The page retries by itself.";

let cause = null;
let waiting = false;

async function repeatLater(detail) {
  if (waiting) return;
  waiting = true;
  await serverAnswers();
  waiting = false;
  repeat(detail);
}

function notDone(event) {
  // A page with a stream says at its top how old it is, and asks for its parts anew by itself.
  if (event.detail.requestConfig.verb === "get" && document.body.dataset.live !== undefined) return;
  cause = event.detail.elt;
  void repeatLater(event.detail);
  const place = document.getElementById("problems");
  if (place !== null && place.textContent !== UNREACHABLE) place.textContent = UNREACHABLE;
}

/** Say what could not be asked, and take back what is no longer so. What the server answers htmx puts there. */
export function showProblems() {
  htmx.logger = (_element, event, detail) => {
    if (NO_ERRORS.has(event)) delete detail.error;
  };
  document.body.addEventListener("htmx:sendError", notDone);
  document.body.addEventListener("htmx:timeout", notDone);
  document.body.addEventListener("htmx:responseError", (event) => (cause = event.detail.elt));
  document.body.addEventListener("htmx:afterOnLoad", ({ detail }) => {
    // Looking at one part goes well while what somebody did elsewhere on the page was refused: that has to stay.
    const done = detail.requestConfig.verb !== "get" || detail.elt === cause;
    if (detail.xhr.status >= 400 || !done) return;
    cause = null;
    document.getElementById("problems")?.replaceChildren();
  });
}
