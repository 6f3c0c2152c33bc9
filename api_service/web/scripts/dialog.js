// Dialogs that any page can open: one question at a time, above whatever else is open.
import { recoverFocus } from "./kept_focus.js";

export function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className !== "") made.className = className;
  made.append(...content);
  return made;
}

/** A field may be called as something that lists have: `length` is one. */
export function fill(form, fields) {
  for (const [name, value] of Object.entries(fields)) form.elements.namedItem(name).value = value;
}

let opened = 0;

/** Open a dialog; without a title, the content has a heading. `closed` resolves with its return value, which is empty when somebody gives up. */
export function openDialog(title, ...content) {
  const dialog = element("dialog", "ask", ...(title === "" ? [] : [element("h2", "", title)]), ...content);
  const heading = dialog.querySelector("h1, h2");
  heading.id = `ask-title-${++opened}`;
  dialog.setAttribute("aria-labelledby", heading.id);
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      recoverFocus(); // what opened it may have gone meanwhile
      resolve(dialog.returnValue);
    });
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, closed };
}

export function closeButton(words) {
  const button = element("button", "second", words);
  button.type = "button";
  button.addEventListener("click", () => button.closest("dialog").close());
  return button;
}
