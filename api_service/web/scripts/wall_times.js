// Times on the wall of the page's zone, such as `2030-01-31T09:00:00`: which instants they are is the server's matter. They
// are counted as if they were in UTC, where every day has 24 hours.
export const millisecondsOf = (wall) => Date.parse(`${wall}Z`);
export const wallAt = (milliseconds) => new Date(milliseconds).toISOString().slice(0, 19);

/** A Date of the calendar library's as its wall time: what it shows locally is meant. */
export function wallOf(date) {
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}:00`;
}
