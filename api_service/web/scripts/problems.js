// What went wrong with a request of the page's scripts stands in #problems until something goes right there.
const UNREACHABLE = "The server could not be reached, so this may be out of date. Try again in a moment.";

let cause = null;

function notDone(event) {
  cause = event.detail.elt;
  const place = document.getElementById("problems");
  if (place !== null && place.textContent !== UNREACHABLE) place.textContent = UNREACHABLE;
}

/** Say what could not be asked, and take back what is no longer so. What the server answers htmx puts there. */
export function showProblems() {
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
