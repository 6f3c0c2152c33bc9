"""Facts of a layout that hold whatever fonts a machine has: what lies apart, and that nothing is reached sideways."""

from playwright.async_api import Page

from tests.waiting import eventually

DRAWN_S = 20
"""How long a page may take until it is drawn as it stays."""

_OVERLAPPING = """(selector) => {
  const boxes = [...document.querySelectorAll(selector)].filter((shown) => shown.checkVisibility())
    .map((shown) => [shown, shown.getBoundingClientRect()]).filter(([, { width, height }]) => width > 0 && height > 0)
    .sort(([, a], [, b]) => a.top - b.top);
  const found = [];
  boxes.forEach(([shown, box], number) => {
    for (const [other, { left, right, top }] of boxes.slice(number + 1)) {
      if (top >= box.bottom - 1) break;
      if (left < box.right - 2 && right > box.left + 2 && !shown.contains(other) && !other.contains(shown))
        found.push(`${shown.outerHTML.slice(0, 90)} and ${other.outerHTML.slice(0, 90)}`);
    }
  });
  return [boxes.length, found];
}"""


async def assert_apart(page: Page, selector: str) -> None:
    """No two of these lie on each other once all is drawn, and the page is no wider than its window."""
    count, found = 0, [""]

    async def apart() -> bool:
        nonlocal count, found
        count, found = await page.evaluate(_OVERLAPPING, selector)
        return count > 1 and not found

    try:
        await eventually(apart, DRAWN_S)
    except AssertionError:
        raise AssertionError(f"{page.url}: of {count} {selector} {len(found)} overlap, such as {found[:1]}") from None
    wide, width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= width, f"{page.url} is {wide} px wide at {width} px"
