// The output of a job: appended as it is printed, followed while the reader is at its end, searched, and linked to.
import { LogFinder } from "./log_finding.js";
import { LogLinks } from "./log_links.js";
import { LogView } from "./log_view.js";
import { makeSliders } from "./sliders.js";
import { followTerminal } from "./terminal_opening.js";

const AGAIN_MS = 20_000;

/** Follows the log while somebody sees the page, and not while another part of the log is shown. */
class LogStream {
  #source = null;
  #ended = false;
  #again = 0;
  #before = null; // what was said of the output, while it is said that it does not come

  constructor(log, view, state, appended) {
    Object.assign(this, { log, view, state, appended });
  }

  listen = () => {
    // A tab that nobody sees holds no connection: a browser has six for all tabs of a server.
    if (this.#source !== null || this.#ended || document.hidden || this.view.isPart) return;
    const source = new EventSource(`${this.log.dataset.job}/log`);
    this.#source = source;
    source.addEventListener("lines", (message) => {
      const news = JSON.parse(message.data);
      this.view.append(news);
      if (!this.view.isEmpty) this.state.textContent = "";
      this.appended(news.anew);
    });
    source.addEventListener("end", () => {
      this.#ended = true;
      this.silence();
      if (this.view.isEmpty) this.state.textContent = this.state.dataset.nothing ?? "It printed nothing.";
    });
    source.addEventListener("open", () => {
      this.state.textContent = this.#before ?? this.state.textContent;
      this.#before = null;
    });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      this.silence();
      void this.#askWhy();
      this.#again = setTimeout(this.listen, AGAIN_MS);
    });
  };

  silence = () => {
    clearTimeout(this.#again);
    this.#source?.close();
    this.#source = null;
  };

  /** Begin again: what is shown is another part of the log. */
  restart() {
    this.#ended = false;
    this.silence();
    this.listen();
  }

  /** The browser does not say why there is no stream, and after an answer that is none it does not ask again. */
  async #askWhy() {
    let words = "The server can’t be reached.";
    try {
      const answer = await fetch(`${this.log.dataset.job}/log`, { cache: "no-store", headers: { Accept: "text/event-stream" }, redirect: "manual" });
      if (answer.ok) void answer.body?.cancel();
      words = answer.ok ? "" : ((await answer.json()).detail ?? words);
    } catch {
      // Nobody answers, or not in words.
    }
    if (words === "") return;
    this.#before ??= this.state.textContent;
    this.state.textContent = `New output is not shown here. ${words}`;
  }
}

function start(log) {
  document.querySelector(".log-tools").hidden = false;
  const view = new LogView(log);
  const links = new LogLinks(view);
  const finder = new LogFinder(view);
  const stream = new LogStream(log, view, document.getElementById("log-state"), (anew) => {
    finder.seeNews(anew);
    links.seeNews();
  });
  view.partShown = () => {
    stream.silence();
    finder.seeNews(true);
  };
  document.getElementById("log-end").addEventListener("click", (event) => {
    event.preventDefault();
    links.forget();
    view.leavePart();
    stream.restart();
  });
  document.addEventListener("signed-in", () => {
    stream.silence();
    stream.listen();
  });
  addEventListener("pagehide", stream.silence);
  addEventListener("pageshow", stream.listen);
  document.addEventListener("visibilitychange", () => (document.hidden ? stream.silence() : stream.listen()));
  stream.listen();
  void links.openAddress();
}

/** Let the drawing of the jobs around it begin at the job of the page. */
function showCurrent(job) {
  const graph = job.closest(".graph");
  const [inner, outer] = [job, graph].map((box) => box.getBoundingClientRect());
  graph.scrollBy((inner.left + inner.right - outer.left - outer.right) / 2, (inner.top + inner.bottom - outer.top - outer.bottom) / 2);
}

makeSliders();
followTerminal(document.currentScript.nonce);
const log = document.getElementById("log");
if (log !== null) start(log);
const current = document.querySelector(".graph [aria-current]");
if (current !== null) showCurrent(current);
