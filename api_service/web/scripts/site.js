// What every page loads: parts that are fetched and put in place (htmx), without losing focus (idiomorph, in morphing.js), and live.
import htmx from "htmx.org";

import { confirmInDialogs } from "./confirming.js";
import { keepDrafts } from "./drafts.js";
import { followLive } from "./live.js";
import { followTiles } from "./now.js";
import { keepFocus } from "./kept_focus.js";
import { keepWhatPeopleDid } from "./morphing.js";
import { showProblems } from "./problems.js";
import { sendWhenReady } from "./sending.js";
import { followSession } from "./session.js";
import { followShortcuts } from "./shortcuts.js";
import { keepHeights } from "./steady.js";
import { followUse } from "./use_map.js";

Object.assign(htmx.config, {
  allowEval: false,
  allowScriptTags: false,
  historyCacheSize: 0, // pages show tokens once: the browser's store is no place for them
  historyRestoreAsHxRequest: false,
  includeIndicatorStyles: false,
  selfRequestsOnly: true,
});

/** What is typed in such a field is meant: the list beside it says so, too. */
function chooseWhatIsTyped() {
  document.addEventListener("input", ({ target }) => {
    const [name, value] = (target.dataset?.chooses ?? "").split("=");
    if (name) target.form.elements.namedItem(name).value = value;
  });
}

keepWhatPeopleDid();
chooseWhatIsTyped();
keepHeights();
keepFocus();
showProblems();
followLive();
followTiles();
followUse();
confirmInDialogs();
followShortcuts();
sendWhenReady();
followSession(keepDrafts());
