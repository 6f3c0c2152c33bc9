// The calendar page's timeline. <div id="calendar" data-resources="/…" data-events="/…" data-zone="Europe/Berlin">
// says where its rows and bookings come from, as JSON.
import { createCalendar, Interaction, ResourceTimeline } from "@event-calendar/core";
import "@event-calendar/core/index.css";

function show(place) {
  const { resources, events, zone } = place.dataset;
  return createCalendar(place, [ResourceTimeline, Interaction], {
    view: "resourceTimelineWeek",
    resources: { url: resources },
    eventSources: [{ url: events }],
    timeZone: zone,
    nowIndicator: true,
  });
}

const place = document.getElementById("calendar");
if (place !== null) show(place);
