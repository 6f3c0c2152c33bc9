// A terminal in a job. This is loaded where one is opened: the emulator is larger than all other scripts of the page.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

const PROTOCOL = "v5.channel.k8s.io";
const [STDIN, STDOUT, STDERR, STATUS, RESIZE, TAKEN, KEY] = [0, 1, 2, 3, 4, 5, 6];
const CLOSED_BY_US = 1000;
const TAKEN_EVERY = 64 * 1024;
const LARGEST_PIECE = 64 * 1024;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const bytesOf = new TextEncoder();
const textOf = new TextDecoder();

/** The colours of the page, and those of the log's output. */
function themeOf(place) {
  const probe = document.createElement("span");
  place.append(probe);
  const colour = (style) => {
    probe.style.color = style;
    return getComputedStyle(probe).color;
  };
  const theme = {
    background: colour("var(--paper)"),
    foreground: colour("var(--ink)"),
    cursor: colour("var(--ink)"),
    cursorAccent: colour("var(--paper)"),
    selectionBackground: colour("var(--soon)"),
    selectionForeground: colour("var(--soon-ink)"),
  };
  probe.style.color = "";
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
  for (let number = 0; number < 16; number++) {
    probe.className = `ansi-f${number}`;
    const [first, ...rest] = names[number % 8];
    theme[number < 8 ? first + rest.join("") : `bright${first.toUpperCase()}${rest.join("")}`] = getComputedStyle(probe).color;
  }
  probe.remove();
  return theme;
}

class JobTerminal {
  #socket = null;
  #over = false; // nothing is connected again by itself
  #joins;
  #key = ""; // of this page's terminal: others of the same user may be open, too
  #pause = FIRST_PAUSE_MS;
  #again = 0;
  #untold = 0;

  /** `joins`: begin in the terminal that is open. `say(words)` says how it stands, `ended()` that it is over. */
  constructor(place, { address, joins, say, ended, leave }) {
    Object.assign(this, { place, address, say, ended });
    this.#joins = joins;
    this.terminal = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: matchMedia("(max-width: 40rem)").matches ? 12 : 14,
      lineHeight: 1.2, // some fonts draw underscores below the line
      minimumContrastRatio: 4.5,
      screenReaderMode: true,
      scrollback: 10_000,
      theme: themeOf(place),
    });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.open(place);
    this.terminal.textarea.setAttribute("aria-label", "Terminal. Press Control, Shift and Enter to leave it.");
    this.terminal.attachCustomKeyEventHandler((event) => this.#takeKey(event, leave));
    this.terminal.onData((data) => this.#send(STDIN, bytesOf.encode(data)));
    this.terminal.onBinary((data) => this.#send(STDIN, Uint8Array.from(data, (letter) => letter.charCodeAt(0))));
    this.terminal.onResize(({ cols, rows }) => this.#send(RESIZE, bytesOf.encode(JSON.stringify({ Width: cols, Height: rows }))));
    new ResizeObserver(() => place.checkVisibility() && this.fit.fit()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.terminal.options.theme = themeOf(place)));
    document.addEventListener("signed-in", () => this.#over || this.connect());
    addEventListener("online", () => this.#over || this.connect());
    this.fit.fit();
    this.connect();
    this.terminal.focus();
  }

  connect() {
    clearTimeout(this.#again);
    if (this.#socket !== null) return;
    this.say(this.#joins ? "Connecting again…" : "Connecting…");
    const address = new URL(this.address, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const { cols, rows } = this.terminal;
    const joined = { ...(this.#joins ? { attach: "true" } : {}), ...(this.#joins && this.#key ? { terminal: this.#key } : {}) };
    address.search = new URLSearchParams({ columns: cols, rows, ...joined });
    const socket = new WebSocket(address, [PROTOCOL]);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    let opened = false;
    socket.addEventListener("open", () => {
      opened = true;
      this.#pause = FIRST_PAUSE_MS;
      this.#untold = 0;
      if (this.#joins) this.terminal.reset(); // what it showed last comes again
      this.#joins = true;
      this.say("");
      this.#send(RESIZE, bytesOf.encode(JSON.stringify({ Width: this.terminal.cols, Height: this.terminal.rows })));
    });
    socket.addEventListener("message", ({ data }) => this.#take(new Uint8Array(data)));
    socket.addEventListener("close", () => {
      if (this.#socket === socket) this.#socket = null;
      if (!this.#over) void this.#askWhy(opened);
    });
  }

  /** End the shell. */
  close() {
    this.#finish("");
    this.#socket?.close(CLOSED_BY_US);
  }

  type(keys) {
    this.terminal.input(keys);
    this.terminal.focus();
  }

  #finish(words) {
    this.#over = true;
    clearTimeout(this.#again);
    this.terminal.options.disableStdin = true;
    this.say(words);
    this.ended();
  }

  #take(message) {
    const content = message.subarray(1);
    if (message[0] === STDOUT || message[0] === STDERR) this.terminal.write(content, () => this.#tell(content.length));
    else if (message[0] === KEY) this.#key = textOf.decode(content);
    else if (message[0] === STATUS) this.#takeStatus(JSON.parse(textOf.decode(content)));
  }

  /** The server sends more once this page has shown what it sent. */
  #tell(length) {
    this.#untold += length;
    if (this.#untold < TAKEN_EVERY) return;
    const count = new Uint8Array(4);
    new DataView(count.buffer).setUint32(0, this.#untold);
    this.#untold = 0;
    this.#send(TAKEN, count);
  }

  #takeStatus({ status, reason, message, details }) {
    if (status !== "Success" && reason !== "NonZeroExitCode") {
      this.say(message ?? "");
      return; // the server closes the connection, and says why there is none any more
    }
    const code = details?.causes?.find((cause) => cause.reason === "ExitCode")?.message ?? "0";
    this.#finish(`The shell has ended with exit code ${code}.`);
  }

  #send(channel, content) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < content.length; at += LARGEST_PIECE) {
      const piece = content.subarray(at, at + LARGEST_PIECE);
      const message = new Uint8Array(piece.length + 1);
      message[0] = channel;
      message.set(piece, 1);
      this.#socket.send(message);
    }
  }

  /** A browser does not say why there is no connection: the server is asked, and where it does not answer it is tried again. */
  async #askWhy(opened) {
    this.say("The connection broke off. Connecting again…");
    let refused = 0;
    let words = "";
    try {
      const answer = await fetch(this.address, { cache: "no-store", headers: { Accept: "application/problem+json" }, redirect: "error" });
      if (!answer.ok) refused = answer.status;
      if (refused === 401) words = "You are signed out. Sign in again, and the terminal goes on.";
      else if (refused !== 0) words = (await answer.json()).detail ?? "";
    } catch {
      // Nobody answers.
    }
    if (this.#over) return;
    if (refused === 401) return this.say(words);
    if (refused === 404 || refused === 409) return this.#finish(words);
    if (words !== "") this.say(words);
    if (opened && refused === 0) this.#pause = FIRST_PAUSE_MS;
    // Not all pages in the same instant, when a server is back.
    this.#again = setTimeout(() => this.connect(), this.#pause * (0.5 + Math.random()));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  /** Keys of the page within the terminal; false: the terminal does not get them. */
  #takeKey(event, leave) {
    if (event.type !== "keydown" || !event.ctrlKey || event.altKey || event.metaKey) return true;
    if (event.shiftKey && event.key === "Enter") {
      event.preventDefault();
      leave();
      return false;
    }
    const copies = event.code === "KeyC" && (event.shiftKey || this.terminal.hasSelection());
    if (copies) {
      event.preventDefault();
      // Works without TLS, too, unlike navigator.clipboard.
      if (this.terminal.hasSelection()) document.execCommand("copy");
      this.terminal.clearSelection();
      return false;
    }
    return event.code !== "KeyV"; // the browser pastes
  }
}

globalThis.openJobTerminal = (place, options) => new JobTerminal(place, options);
