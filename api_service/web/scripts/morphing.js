// When a part of a page is made anew, what somebody did with it stays: what they typed, chose and opened.
import { Idiomorph } from "idiomorph/htmx";

const changed = new WeakSet();

function isChanged(element) {
  if (element instanceof HTMLInputElement) {
    if (element.type === "hidden") return false;
    return element.value !== element.defaultValue || element.checked !== element.defaultChecked;
  }
  if (element instanceof HTMLTextAreaElement) return element.value !== element.defaultValue;
  if (element instanceof HTMLOptionElement) {
    const all = [...(element.closest("select")?.options ?? [])];
    return all.some((option) => option.selected !== option.defaultSelected);
  }
  return false;
}

export function keepWhatPeopleDid() {
  Object.assign(Idiomorph.defaults.callbacks, {
    beforeNodeMorphed(node) {
      if (isChanged(node)) changed.add(node);
      else changed.delete(node);
    },
    beforeAttributeUpdated(name, element) {
      if (name === "open") return !(element instanceof HTMLDetailsElement || element instanceof HTMLDialogElement);
      return !(["value", "checked", "selected"].includes(name) && changed.has(element));
    },
  });
}
