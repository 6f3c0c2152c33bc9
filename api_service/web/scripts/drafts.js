// Drafts: text that was typed into a form, kept in this tab until the server has taken it. Passwords, fields marked
// data-secret and boxes marked data-no-draft are not kept; the page says where a field marked data-secret is not filled
// in again. Signing out deletes all drafts.
import { element } from "./dialog.js";
import { focusOnRefusal } from "./kept_focus.js";

const DRAFTS = "gpu-dev-drafts";
const SENT = "gpu-dev-sent";
const MOST_LETTERS = 200_000;
const TAKEN = "gpu-dev-taken"; // the form marked data-again that was taken last, for people who go back to it
const SETTLE_MS = 500;
const NOT_KEPT = new Set(["hidden", "password", "file", "submit", "button", "reset", "image"]);
const touched = new Set();
const keys = new WeakMap();

/** Where a browser keeps nothing, forms are sent all the same. */
function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "null");
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // It is not kept.
  }
}

const actionOf = (form) => form.getAttribute("action") ?? "";
const pageOf = (key) => key.slice(0, key.indexOf(" "));

function postForms() {
  return [...document.querySelectorAll("form[method=post]")];
}

function readDrafts() {
  return read(DRAFTS) ?? {};
}

/** The oldest go first where there is no room. */
function writeDrafts(drafts) {
  const kept = Object.entries(drafts).sort(([, a], [, b]) => a.at - b.at);
  while (JSON.stringify(kept).length > MOST_LETTERS) kept.shift();
  write(DRAFTS, Object.fromEntries(kept));
}

/** An action and, for a form that has nothing to keep, a mark: it must not use another form's draft. */
const draftNameOf = (form) => (fieldsOf(form).length === 0 ? `${actionOf(form)} bare` : actionOf(form));

function keyOf(form) {
  if (!keys.has(form)) keys.set(form, { key: `${here()} ${draftNameOf(form)}`, whole: false });
  return keys.get(form);
}

const isKept = ({ name, type, dataset }) => name && !NOT_KEPT.has(type) && !("secret" in dataset || "noDraft" in dataset);

/** Fields by a name that is theirs alone: boxes share one, and differ in what they stand for. */
function fieldsOf(form) {
  const fields = [...form.elements].filter(isKept);
  return fields.map((field) => [isBox(field) ? `${field.name}=${field.value}` : field.name, field]);
}

/** The labels of fields with text that is not kept. */
const namesOfSecrets = (form) =>
  [...form.elements].filter(({ dataset, value }) => "secret" in dataset && value).map(({ labels }) => labels[0].textContent.trim());

const isBox = ({ type }) => type === "checkbox" || type === "radio";
const valueOf = (field) => (isBox(field) ? field.checked : field.value);

function defaultOf(field) {
  if (isBox(field)) return field.defaultChecked;
  if (!(field instanceof HTMLSelectElement)) return field.defaultValue;
  return ([...field.options].find((option) => option.defaultSelected) ?? field.options[0])?.value;
}

const isChanged = ([, field]) => valueOf(field) !== defaultOf(field);

function saveDrafts() {
  if (touched.size === 0) return;
  const drafts = readDrafts();
  for (const form of touched) {
    const { key, whole } = keyOf(form);
    const changed = fieldsOf(form).filter((named) => whole || isChanged(named));
    const without = namesOfSecrets(form);
    if (changed.length === 0 && without.length === 0) delete drafts[key];
    else drafts[key] = { at: Date.now(), user: document.body.dataset.user, without, fields: Object.fromEntries(changed.map(([name, field]) => [name, valueOf(field)])) };
  }
  writeDrafts(drafts);
}

/** Returns the time at which it was typed, in words. */
function fillIn(form, { at, fields }) {
  for (const [name, field] of fieldsOf(form)) {
    if (!(name in fields) || isChanged([name, field])) continue; // it was typed before this script came
    if (isBox(field)) field.checked = fields[name];
    else if (!(field instanceof HTMLSelectElement) || [...field.options].some(({ value }) => value === fields[name])) field.value = fields[name];
    field.closest("details")?.setAttribute("open", "");
  }
  return new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: document.body.dataset.zone });
}

function fill(form, draft) {
  touched.add(form);
  notify(form, `What you typed at ${fillIn(form, draft)}${outcome(form, draft)}. `);
}

/** Whether a form was filled in again, and without which secrets, in words. */
function outcome(form, { without = [] }) {
  const secrets = without.join(" and ");
  if (secrets === "") return " is filled in again";
  return fieldsOf(form).some(isChanged)
    ? ` is filled in again, but not ${secrets}: secrets are not kept here`
    : ` as ${secrets} is not filled in again: secrets are not kept here`;
}

/** It becomes a draft only if somebody changes it. */
function fillWithTaken(form, draft) {
  notify(form, `What you sent at ${fillIn(form, draft)}${outcome(form, draft)}. Sending it makes another one. `);
}

function notify(form, words) {
  const clear = element("button", "plain", "Clear it");
  clear.type = "button";
  const notice = element("p", "notice draft", words, clear);
  notice.setAttribute("role", "status");
  clear.addEventListener("click", () => {
    form.reset();
    notice.remove();
    saveDrafts();
    askVerdict(form);
  });
  form.before(notice);
  askVerdict(form);
}

function askVerdict(form) {
  const ask = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  if (document.readyState === "complete") ask();
  else addEventListener("load", ask); // nothing listens before
}

/**
 * The form that was refused or checked is on this page, or it is a page away: there it is filled in again. An answer
 * takes the address of its form: people who load it again or come back to it open the form, and nothing is sent again.
 */
function keepUntaken(key, drafts) {
  const form = postForms().find((found) => key.endsWith(` ${draftNameOf(found)}`));
  if (form !== undefined) {
    keys.set(form, { key, whole: true });
    touched.add(form);
  } else if (key in drafts) {
    const back = element("a", "", "Back to the form");
    back.href = pageOf(key);
    document.getElementById("main").append(element("p", "", "What you typed is kept. ", back));
  } else return;
  history.replaceState(history.state, "", pageOf(key));
}

/** Keep nothing of what was typed in this tab. */
export function dropDrafts() {
  touched.clear();
  write(DRAFTS, null);
  write(TAKEN, null);
}

/** Note that a form is being sent: the page that comes then decides whether its draft is still needed. */
export function noteSent(form, submitter) {
  touched.add(form);
  saveDrafts();
  const action = actionOf(form);
  if (action === "/sign-out") dropDrafts();
  // A button with an address of its own only checks what was typed.
  const checked = submitter?.hasAttribute("formaction") ?? false;
  write(SENT, { key: keyOf(form).key, action, checked, again: "again" in form.dataset });
}

const here = () => `${location.pathname}${location.search}`;

/** How this page was come to: `navigate`, `reload` or `back_forward`; a browser may not say. */
const comingHere = () => performance.getEntriesByType("navigation")[0]?.type;

/** Whether this page is the answer to what was sent, and not one that was opened after no answer came. */
function isAnswer(key) {
  const type = comingHere();
  if (type === "reload") return here() !== pageOf(key);
  return type === "navigate" && document.referrer.startsWith(`${location.origin}/`);
}

/** Fill forms in with what was typed before, and keep what is typed. Returns the address that was sent to last. */
export function keepDrafts() {
  const { user = "", refused } = document.body.dataset;
  const sent = read(SENT);
  write(SENT, null);
  const drafts = readDrafts();
  if (sent !== null && isAnswer(sent.key)) {
    if (refused !== undefined) focusOnRefusal();
    if (refused !== undefined || sent.checked) {
      keepUntaken(sent.key, drafts);
    } else if (user !== "") {
      if (sent.again) write(TAKEN, { key: sent.key, draft: drafts[sent.key] });
      delete drafts[sent.key];
    }
  }
  if (user !== "") {
    for (const key of Object.keys(drafts)) if (drafts[key].user !== user) delete drafts[key];
  }
  writeDrafts(drafts);
  const taken = comingHere() === "back_forward" ? read(TAKEN) : null;
  for (const form of postForms()) {
    const { key, whole } = keyOf(form);
    if (!whole && key in drafts) fill(form, drafts[key]);
    else if (taken?.key === key && taken.draft?.user === user) fillWithTaken(form, taken.draft);
    else if (fieldsOf(form).some(isChanged)) {
      touched.add(form); // somebody was quicker than this script
      askVerdict(form);
    }
  }
  let timer = 0;
  document.addEventListener("input", ({ target, isTrusted }) => {
    const form = target.form;
    if (!isTrusted || form?.method !== "post") return;
    touched.add(form);
    clearTimeout(timer);
    timer = setTimeout(saveDrafts, SETTLE_MS);
  });
  addEventListener("pagehide", saveDrafts);
  return sent?.action ?? "";
}
