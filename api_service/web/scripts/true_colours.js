// True colours of a terminal, as readable as the 256 of styles/terminal.css: tools/terminal_colours.py says how.
const PAGES = [[0xff, 0xff, 0xff], [0x17, 0x1c, 0x26]];
const ENDS = [[0, 0, 0], [0xff, 0xff, 0xff]];
const TEXT = [6, 7];
const GROUND = 1.25;
const STEPS = 256;
const MOST = 4_096; // further colours keep the nearest of the 256

const sheet = new CSSStyleSheet();
const known = new Set();

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [darker, lighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

function mixed(colour, end, isEnough) {
  const at = (step) => colour.map((part, place) => Math.floor((part * (STEPS - step) + end[place] * step) / STEPS));
  let [low, high] = [0, STEPS];
  while (low < high) {
    const step = (low + high) >> 1;
    if (isEnough(at(step))) high = step;
    else low = step + 1;
  }
  return `rgb(${at(low).join(" ")})`;
}

/** The value of a property for light and dark pages; `make` gets 0 or 1. */
const forBoth = (make) => `light-dark(${make(0)}, ${make(1)})`;
const textOf = (colour) => forBoth((dark) => mixed(colour, ENDS[dark], (found) => contrast(found, PAGES[dark]) >= TEXT[dark]));
const groundOf = (colour) => forBoth((dark) => mixed(colour, PAGES[dark], (found) => contrast(found, PAGES[dark]) <= GROUND));

function add(place, digits) {
  const colour = [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  const text = textOf(colour);
  const rule = place === "f" ? `--f: ${text}` : `--g: ${groundOf(colour)}; --u: ${text}`;
  sheet.insertRule(`[data-${place}="${digits}"] { ${rule} }`, sheet.cssRules.length);
}

/** Add the colours of these elements to the page's styles: a policy allows no styles within elements. */
export function colourTruly(elements) {
  for (const element of elements) {
    for (const span of element.querySelectorAll("[data-f], [data-g]")) {
      for (const place of ["f", "g"]) {
        const digits = span.dataset[place];
        if (digits === undefined || known.has(place + digits) || known.size >= MOST) continue;
        known.add(place + digits);
        add(place, digits);
      }
    }
  }
}

document.adoptedStyleSheets.push(sheet);
