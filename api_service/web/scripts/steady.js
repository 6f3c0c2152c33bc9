// Parts that are drawn anew are as high as they were: what stands below them stays where it is.
const PARTS = "[data-steady]";

const partsOf = ({ detail }) => [...detail.target.querySelectorAll(PARTS)];

export function keepHeights() {
  const heights = new Map();
  document.addEventListener("htmx:beforeSwap", (event) => {
    for (const part of partsOf(event)) heights.set(part.dataset.steady, part.offsetHeight);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const part of partsOf(event)) part.style.minBlockSize = `${heights.get(part.dataset.steady) ?? 0}px`;
  });
  addEventListener("resize", () => {
    for (const part of document.querySelectorAll(PARTS)) part.style.removeProperty("min-block-size");
  });
}
