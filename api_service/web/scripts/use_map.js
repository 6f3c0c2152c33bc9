// The heat map of the use of GPUs keeps up: what differs is written into its cells, some hundreds a frame.
const EVERY_MS = 15_000; // where no stream says that there are new samples
const SILENCE_MS = 30_000;
const CELLS_A_FRAME = 400;

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

function write(element, text) {
  if (element !== null && element.textContent !== text) element.textContent = text;
}

async function draw(map, { mark, at, cells, sums, steps }) {
  const moved = mark !== map.dataset.mark;
  document.getElementById("use-moved").hidden = !moved;
  if (moved) return;
  write(document.getElementById("use-at"), at);
  document.querySelectorAll(".of-use b").forEach((count, number) => write(count, String(steps[number])));
  map.querySelectorAll(".sum").forEach((sum, number) => write(sum, sums[number]));
  const drawn = map.querySelectorAll(".cells > a");
  for (let from = 0; from < drawn.length; from += CELLS_A_FRAME) {
    await nextFrame();
    for (let number = from; number < Math.min(from + CELLS_A_FRAME, drawn.length); number++) {
      const [step, said] = cells[number];
      if (drawn[number].className !== `u ${step}`) drawn[number].className = `u ${step}`;
      if (drawn[number].title !== said) drawn[number].title = said;
    }
  }
}

async function refresh() {
  const map = document.querySelector("#cards.use");
  if (map === null || document.hidden) return;
  const response = await fetch(`/now/use${location.search}`, { redirect: "error" }).catch(() => null);
  if (response?.ok) await draw(map, await response.json());
}

/** Show the blocks that the page was loaded with, one a frame. */
async function reveal() {
  for (const block of document.querySelectorAll("#cards.use .later")) {
    if (block.matches(".cells")) await nextFrame();
    block.classList.remove("later");
  }
}

/** Give the map its behaviour; on other pages nothing happens. */
export function followUse() {
  if (document.querySelector("#cards.use") === null) return;
  void reveal();
  let heard = 0;
  document.body.addEventListener("live:use", () => {
    heard = Date.now();
    void refresh();
  });
  setInterval(() => {
    if (Date.now() - heard > SILENCE_MS) void refresh();
  }, EVERY_MS);
  document.addEventListener("visibilitychange", () => void refresh());
}
