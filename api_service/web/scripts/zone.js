// Tells the server the browser's time zone, before anything is drawn: the page is then loaded again rather than seen in
// another zone. Pages that were sent for, and those that show something once, are not loaded again; the next one is right.
const NAME = "gpu_dev_browser_zone";
const YEAR_S = 31_536_000;

function kept() {
  return document.cookie.split("; ").find((cookie) => cookie.startsWith(`${NAME}=`));
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const wanted = `${NAME}=${encodeURIComponent(zone)}`;
if (zone && kept() !== wanted) {
  document.cookie = `${wanted}; path=/; max-age=${YEAR_S}; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  // A browser that keeps no cookies would load it for ever.
  if ("again" in document.currentScript.dataset && kept() === wanted) location.reload();
}
