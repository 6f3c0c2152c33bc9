// One connection on which the server says what has changed. A page names its topics in <body data-live="now queue">;
// of each change the body hears an event `live:<kind>`, the kind being what stands before the topic's colon.
import { element } from "./dialog.js";
import { restoreSession, SIGNED_IN } from "./session.js";

const PATIENCE_MS = 3_000;
const LONGEST_SILENCE_MS = 50_000; // the server says something every 20 s
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
const TOO_MANY = 429;
const REFUSED = -1; // no timer: the words that are there stay until there is a stream

class Live {
  #topics;
  #url;
  #source = null;
  #asking = null;
  #missed = document.hidden;
  #pause = FIRST_PAUSE_MS;
  #patience = 0;
  #retry = 0;
  #silence = 0;
  #heard = Date.now();

  constructor(topics) {
    this.#topics = topics;
    // What changed after the page was read, and before it is heard of, is told first.
    const since = encodeURIComponent(document.body.dataset.liveSince ?? "");
    this.#url = `/live?topics=${topics.map(encodeURIComponent).join(",")}&since=${since}`;
  }

  open() {
    // A tab that nobody sees holds no connection: a browser has six for all tabs of a server.
    if (this.#source !== null || this.#asking !== null || document.hidden) return;
    clearTimeout(this.#retry);
    this.#beginToWait();
    this.#waitForWord();
    this.#source = new EventSource(this.#url);
    this.#source.addEventListener("open", () => this.#connected());
    this.#source.addEventListener("error", () => this.#lost());
    this.#source.addEventListener("beat", () => this.#hear());
    for (const topic of this.#topics) {
      this.#source.addEventListener(topic, (message) => {
        this.#hear();
        tell(topic, message.data);
      });
    }
  }

  close() {
    this.#leave();
    this.#asking?.abort();
    this.#asking = null;
    clearTimeout(this.#retry);
    this.#endOfWait();
    this.#missed = true;
  }

  #leave() {
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
  }

  #hear() {
    this.#heard = Date.now();
    this.#waitForWord();
  }

  /** A connection can be dead without an end: where nothing comes, another is made. */
  #waitForWord() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#leave();
      this.#missed = true;
      this.#sayStale("Reconnecting…");
      this.open();
    }, LONGEST_SILENCE_MS);
  }

  #connected() {
    this.#hear();
    this.#endOfWait();
    this.#pause = FIRST_PAUSE_MS;
    if (!this.#missed) return;
    this.#missed = false;
    for (const topic of this.#topics) tell(topic, null);
  }

  #lost() {
    this.#missed = true;
    this.#beginToWait();
    if (this.#source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    this.#leave();
    void this.#askWhy();
  }

  /** The browser does not say what the server answered: without a session people sign in, otherwise it is tried again. */
  async #askWhy() {
    const asking = (this.#asking = new AbortController());
    let over = false;
    let words = "";
    try {
      const answer = await fetch(this.#url, {
        cache: "no-store",
        headers: { Accept: "text/event-stream" },
        redirect: "manual",
        signal: asking.signal,
      });
      over = answer.status === 401 || answer.type === "opaqueredirect";
      if (answer.status === TOO_MANY) words = (await answer.json()).detail ?? "";
    } catch {
      // Nobody answers: that is tried again, too.
    }
    if (this.#asking !== asking) return;
    asking.abort(); // what it would stream is for the next connection
    this.#asking = null;
    if (over) return this.#signedOut();
    if (words !== "") this.#refused(words);
    this.#tryAgainLater();
  }

  /** Somebody has signed in, which need not be enough for this page. */
  again() {
    if (this.#source === null && this.#asking === null) this.#tryAgainLater();
  }

  #tryAgainLater() {
    clearTimeout(this.#retry);
    // Not all pages in the same instant, when a server is back.
    this.#retry = setTimeout(() => this.open(), this.#pause * (0.5 + Math.random()));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  /** The page stays as it is while its user signs in: what they typed is on it. */
  #signedOut() {
    clearTimeout(this.#patience);
    this.#patience = REFUSED;
    const again = element("button", "plain", "Sign in");
    again.type = "button";
    again.addEventListener("click", () => void restoreSession());
    this.#sayStale("You are signed out. ", again);
    void restoreSession();
  }

  /** Others of this person's pages have all the streams that there are for them. */
  #refused(words) {
    clearTimeout(this.#patience);
    this.#patience = REFUSED;
    this.#pause = LONGEST_PAUSE_MS;
    this.#sayStale(`This page shows changes only when you reload it. ${words}`);
  }

  #beginToWait() {
    this.#patience ||= setTimeout(() => this.#sayStale("Reconnecting…"), PATIENCE_MS);
  }

  #endOfWait() {
    clearTimeout(this.#patience);
    this.#patience = 0;
    say(false);
  }

  #sayStale(...words) {
    const time = new Date(this.#heard).toLocaleTimeString("en-GB", { timeZone: document.body.dataset.zone });
    say(true, `As of ${time}. `, ...words);
  }
}

function tell(topic, version) {
  const [kind] = topic.split(":");
  document.body.dispatchEvent(new CustomEvent(`live:${kind}`, { detail: { topic, version } }));
}

function say(stale, ...words) {
  document.body.classList.toggle("stale", stale);
  document.getElementById("live-state")?.replaceChildren(...words);
}

/** Follow what the page's body names, for as long as the page is looked at. */
export function followLive() {
  const topics = (document.body.dataset.live ?? "").split(/\s+/).filter((topic) => topic !== "");
  if (topics.length === 0) return;
  const live = new Live(topics);
  addEventListener("pagehide", () => live.close());
  addEventListener("pageshow", () => live.open());
  document.addEventListener("visibilitychange", () => (document.hidden ? live.close() : live.open()));
  document.addEventListener(SIGNED_IN, () => live.again());
  live.open();
}
