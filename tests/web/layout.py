"""Facts of a layout that hold whatever fonts a machine has: what lies apart, and that nothing is reached sideways."""

from playwright.async_api import Page

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
    """No two of these lie on each other, and the page is no wider than its window."""
    count, found = await page.evaluate(_OVERLAPPING, selector)
    assert count > 1, f"{page.url} shows {count} {selector}"
    assert not found, f"{page.url}: {len(found)} overlap, such as {found[0]}"
    wide, width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= width, f"{page.url} is {wide} px wide at {width} px"
