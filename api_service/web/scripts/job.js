// The output of a job as it is printed: appended as it comes, followed while the reader is at its end, searched.
const MOST_LINES = 5_000;
const AGAIN_MS = 20_000;

const log = document.getElementById("log");
const follow = document.getElementById("log-follow");
const find = document.getElementById("log-find");
const found = document.getElementById("log-found");
const state = document.getElementById("log-state");
const leftOut = document.getElementById("log-left-out");
let source = null;
let ended = false;
let again = 0;
let missing = 0;
let before = null; // what was said of the output, while it is said that it does not come

function lineOf(html) {
  const line = document.createElement("div");
  line.innerHTML = html; // written by our server from the printed text, which it escapes
  return line;
}

function append({ lines, left_out: more, anew }) {
  const at = log.scrollTop;
  if (anew) {
    log.replaceChildren();
    missing = 0;
  }
  log.append(...lines.map(lineOf));
  missing += more;
  for (; log.childElementCount > MOST_LINES; missing += 1) log.firstElementChild.remove();
  leftOut.hidden = missing === 0;
  leftOut.textContent = `${missing} lines before these are not shown: download the output to see them.`;
  if (log.childElementCount > 0) state.textContent = "";
  if (find.value !== "") mark();
  if (follow.checked) log.scrollTop = log.scrollHeight;
  else if (anew) log.scrollTop = at; // who reads further up goes on there
}

function mark() {
  const wanted = find.value.toLowerCase();
  let count = 0;
  for (const line of log.children) {
    const holds = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
    line.classList.toggle("found", holds);
    line.classList.remove("here");
    count += holds ? 1 : 0;
  }
  found.textContent = wanted === "" ? "" : `${count} ${count === 1 ? "line" : "lines"}`;
}

function goToNext(backwards) {
  const lines = [...log.querySelectorAll(".found")];
  if (lines.length === 0) return;
  const at = lines.findIndex((line) => line.classList.contains("here"));
  lines[at]?.classList.remove("here");
  const next = lines[(at + (backwards ? -1 : 1) + lines.length) % lines.length] ?? lines[0];
  next.classList.add("here");
  follow.checked = false;
  next.scrollIntoView({ block: "nearest" });
}

/** The browser does not say why there is no stream, and after an answer that is none it does not ask again. */
async function askWhy() {
  let words = "The server can’t be reached.";
  try {
    const answer = await fetch(log.dataset.stream, { cache: "no-store", headers: { Accept: "text/event-stream" }, redirect: "manual" });
    if (answer.ok) void answer.body?.cancel();
    words = answer.ok ? "" : ((await answer.json()).detail ?? words);
  } catch {
    // Nobody answers, or not in words.
  }
  if (words === "") return;
  before ??= state.textContent;
  state.textContent = `What is printed now is not shown here. ${words}`;
}

function listen() {
  // A tab that nobody sees holds no connection: a browser has six for all tabs of a server.
  if (source !== null || ended || document.hidden) return;
  source = new EventSource(log.dataset.stream);
  source.addEventListener("lines", (message) => append(JSON.parse(message.data)));
  source.addEventListener("end", () => {
    ended = true;
    silence();
    if (log.childElementCount === 0) state.textContent = "It printed nothing.";
  });
  source.addEventListener("open", () => {
    state.textContent = before ?? state.textContent;
    before = null;
  });
  source.addEventListener("error", () => {
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    silence();
    void askWhy();
    again = setTimeout(listen, AGAIN_MS);
  });
}

function silence() {
  clearTimeout(again);
  source?.close();
  source = null;
}

if (log !== null) {
  document.querySelector(".log-tools").hidden = false;
  find.addEventListener("input", mark);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goToNext(event.shiftKey);
  });
  log.addEventListener("scroll", () => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    if (!atEnd && follow.checked) follow.checked = false;
    else if (atEnd && !follow.checked && find.value === "") follow.checked = true;
  });
  follow.addEventListener("change", () => {
    if (follow.checked) log.scrollTop = log.scrollHeight;
  });
  document.addEventListener("signed-in", () => {
    silence();
    listen();
  });
  addEventListener("pagehide", silence);
  addEventListener("pageshow", listen);
  document.addEventListener("visibilitychange", () => (document.hidden ? silence() : listen()));
  listen();
}
