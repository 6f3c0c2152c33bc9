// Sessions: before a page sends something, the server is asked whether it takes it. Otherwise a dialog says why, and
// people sign in there.
import { closeButton, element, openDialog } from "./dialog.js";
import { dropDrafts } from "./drafts.js";

export const SIGNED_IN = "signed-in";
const SIGNED_OUT = "signed-out";
const PATIENCE_MS = 10_000;
const AGAIN_MS = 3_000;
/** What waits for the server, in words, and the button that gives it up. */
const FORM = ["Nothing was sent. What you typed is kept, and is sent as soon as the server answers.", "Don’t send it"];
export const QUESTION = ["The server does not answer. The question is asked as soon as it does.", "Leave it"];
const PAGE = ["The server does not answer. The page goes on as soon as it does.", "Leave it"];
const channel = new BroadcastChannel("gpu-dev-session");
let preparing = null;
let refused = false; // after "Not now", parts that come again and again don’t ask to sign in

const pageUser = () => document.body.dataset.user;

/** The signed-in user with a token for forms; null without a session. Throws where no server answers. */
async function readSession() {
  const answer = await ask("/session");
  if (answer.status === 401) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function ask(address, options = {}) {
  const headers = { "HX-Request": "true" };
  return fetch(address, { cache: "no-store", headers, redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS), ...options });
}

/** The page may be older than the session: its forms carry the session's token from here on. */
function renewForms(csrf) {
  for (const field of document.querySelectorAll("input[name=csrf_token]")) field.value = csrf;
  document.body.setAttribute("hx-headers", JSON.stringify({ "x-csrf-token": csrf }));
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
}

/** Resolve when a server answers, or once `stopped()`. A tab that nobody sees asks nothing. */
export async function serverAnswers(stopped = () => false) {
  while (!stopped()) {
    await pause();
    if (document.hidden) continue;
    try {
      await readSession();
      return;
    } catch {
      // It is asked again.
    }
  }
}

async function waitForServer([words, leave]) {
  const buttons = element("div", "buttons", closeButton(leave));
  const { dialog, closed } = openDialog("The server can’t be reached", element("p", "", words), buttons);
  void serverAnswers(() => !dialog.open).then(() => dialog.open && dialog.close("answered"));
  return (await closed) === "answered";
}

function whySignIn(session) {
  if (session === null) return [element("p", "", "You are signed out. What you typed is kept. Sign in to go on where you were.")];
  const elsewhere = element("a", "", `Open this page as ${session.user}`);
  elsewhere.href = location.href;
  const words = `This browser is signed in as ${session.user} now, but this page belongs to ${pageUser()}. Sign in as ${pageUser()} to go on.`;
  return [element("p", "", words), element("p", "", elsewhere)];
}

async function askToSignIn(session) {
  const answer = await ask("/sign-in?next=/signed-in");
  const place = element("div", "");
  place.innerHTML = await answer.text(); // written by our server
  const later = element("div", "buttons", closeButton("Not now"));
  const { dialog, closed } = openDialog("Sign in again", ...whySignIn(session), place, later);
  const arrived = ({ data }) => data === SIGNED_IN && dialog.close(SIGNED_IN);
  channel.addEventListener("message", arrived);
  for (const link of place.querySelectorAll("a")) link.target = "_blank"; // this page stays
  place.addEventListener("submit", (event) => {
    event.preventDefault();
    void sendToken(event.target, place).then((done) => done && dialog.close(SIGNED_IN));
  });
  place.querySelector("[autofocus]")?.focus();
  const done = (await closed) === SIGNED_IN;
  channel.removeEventListener("message", arrived);
  return done;
}

async function sendToken(form, place) {
  try {
    const answer = await ask("/sign-in", { method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (answer.ok) {
      channel.postMessage(SIGNED_IN);
      return true;
    }
    const said = await answer.text();
    if (answer.status === 401) place.innerHTML = said;
    else sayProblem(form, said);
  } catch {
    sayProblem(form, "<p class=problem>The server can’t be reached. Try again in a moment.</p>");
  }
  place.querySelector("input[type=password]")?.focus();
  return false;
}

function sayProblem(form, html) {
  const said = form.querySelector(".said") ?? element("div", "said");
  said.innerHTML = html; // ours, or the server's
  form.prepend(said);
}

async function prepare(purpose) {
  for (;;) {
    try {
      const session = await readSession();
      if (session?.user === pageUser()) {
        refused = false;
        renewForms(session.csrf);
        return true;
      }
      refused = !(await askToSignIn(session));
      if (refused) return false;
    } catch {
      if (!(await waitForServer(purpose))) return false;
    }
  }
}

/** Resolve with true once the server takes what this page sends, with false when somebody gives up. */
export function prepareToSend(purpose = FORM) {
  preparing ??= prepare(purpose).finally(() => (preparing = null));
  return preparing;
}

/** Ask to sign in where the session has ended; the document hears `signed-in` when the page can go on. */
export async function restoreSession() {
  const ready = await prepareToSend(PAGE);
  if (ready) document.dispatchEvent(new Event(SIGNED_IN));
  return ready;
}

/** Follow what other tabs do: a page of a user who signed out elsewhere is not left standing. */
export function followSession(sent) {
  channel.addEventListener("message", ({ data }) => {
    if (pageUser() === undefined) return;
    if (data === SIGNED_IN) void restoreSession(); // as this page's user, or as another
    if (data !== SIGNED_OUT) return;
    dropDrafts();
    location.reload();
  });
  if (pageUser() === undefined && sent === "/sign-out") channel.postMessage(SIGNED_OUT);
  if (pageUser() !== undefined && (sent === "/sign-in" || location.pathname === "/signed-in")) channel.postMessage(SIGNED_IN);
  document.body.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.xhr.status === 401 && !refused) void restoreSession().then((ready) => ready && repeat(detail));
  });
}

/** Ask for a part once more, by the event that had asked for it. */
export function repeat({ elt, requestConfig }) {
  const kind = requestConfig.triggeringEvent?.type;
  if (kind !== undefined && elt.isConnected) elt.dispatchEvent(new Event(kind, { bubbles: true }));
}
