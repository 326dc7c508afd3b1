// The timeline: sittings from left to right, a lane for each person, a mark for each event.

import { button, element, percent, show, styled } from "./dom.js";
import { dateOf, nameOf, spoken, when } from "./words.js";

const LONGEST_ROW = 12; // marks of a session in one row; longer sessions wrap
const SHOWN = 400; // newest events that are drawn before `show all`

/** How a mark looks: full, outlined, or dashed with a small letter. */
export const degree = (probability) => (probability >= 0.8 ? "sure" : probability >= 0.5 ? "likely" : "unsure");

/**
 * Draws into `place`: `entries` with `events` (by key), people's `letters` in the order of lanes.
 *
 * `choose(key)` is called when a mark is pressed, `remove(key)` for the Delete key; `chosen` is the key pressed last,
 * `current` the one with the focus.
 */
export function drawTimeline(place, { entries, events, lanes, chosen, current, choose, remove, all, showAll }) {
  const lane = new Map(lanes.map((letter, number) => [letter, number + 1]));
  const drawn = all ? entries : entries.slice(-SHOWN);
  const tip = element("div", { class: "tip", role: "tooltip", hidden: true });
  const track = styled(
    element("div", {
      class: "track",
      role: "group",
      "aria-label": "Events, oldest first. Arrow keys move along, Enter chooses.",
    }),
    { "--lanes": Math.max(lanes.length, 1) },
  );
  const marks = new Map();
  let before = null;
  for (const sitting of sittings(drawn)) {
    const staff = element("div", { class: "staff" });
    for (const [number, entry] of sitting.entries()) {
      const mark = markOf(entry, events.get(entry.key), lane, entry.key === chosen);
      marks.set(entry.key, styled(mark, { "--place": number + 1 }));
      staff.append(mark);
    }
    track.append(
      element(
        "div",
        { class: "sitting" },
        element("span", { class: "day", "aria-hidden": "true" }, dayOf(sitting[0], before, entries)),
        staff,
      ),
    );
    before = sitting[0];
  }
  listen(track, tip, marks, { entries, events, choose, remove });
  const older = entries.length - drawn.length;
  show(
    place,
    older
      ? element(
          "p",
          { class: "older" },
          button(`Show ${older.toLocaleString("en-GB")} older events`, showAll, { class: "quiet" }),
        )
      : null,
    element("div", { class: "stage" }, track, tip),
  );
  const stop = marks.get(current) ?? marks.get(chosen) ?? [...marks.values()].at(-1);
  if (stop) stop.tabIndex = 0; // one stop for the Tab key; arrows do the rest
}

function sittings(entries) {
  const groups = [];
  for (const entry of entries) {
    const group = groups.at(-1);
    if (group && group[0].sitting === entry.sitting && group[0].added === entry.added && group.length < LONGEST_ROW)
      group.push(entry);
    else groups.push([entry]);
  }
  return groups;
}

function markOf(entry, event, lane, pressed) {
  const letter = event?.person ?? entry.was ?? "";
  const look = entry.removed ? "removed" : event ? degree(event.probability) : "unsure";
  const made = element(
    "button",
    {
      type: "button",
      class: `mark ${look}${entry.added ? " added" : ""}`,
      tabindex: "-1",
      "data-key": entry.key,
      "data-item": entry.item,
      "data-person": letter,
      "aria-label": spoken(entry, event),
      "aria-pressed": String(pressed),
    },
    look === "unsure" ? letter.toLowerCase() : letter,
  );
  return styled(made, { "--lane": lane.get(letter) ?? 1 });
}

/** The day, with month and year where they change; without times every tenth event's number. */
function dayOf(entry, before, entries) {
  if (!entry.time) {
    const number = entries.indexOf(entry) + 1;
    return number === 1 || number % 10 === 0 ? String(number) : "";
  }
  const { day, month, year } = dateOf(entry.time);
  const last = before?.time ? dateOf(before.time) : {};
  if (last.year !== year) return `${day} ${month.slice(0, 3)} ${year}`;
  if (last.month !== month) return `${day} ${month.slice(0, 3)}`;
  return last.day === day ? "" : String(day);
}

function listen(track, tip, marks, { entries, events, choose, remove }) {
  const entryOf = new Map(entries.map((entry) => [entry.key, entry]));
  const keys = [...marks.keys()];
  const markAt = (event) => event.target.closest(".mark");
  const point = (event) => {
    const mark = markAt(event);
    if (mark) showTip(tip, mark, entryOf.get(mark.dataset.key), events.get(mark.dataset.key));
  };
  const leave = () => {
    tip.hidden = true;
  };
  track.addEventListener("pointerover", point);
  track.addEventListener("pointerleave", leave);
  track.addEventListener("focusin", point);
  track.addEventListener("focusout", leave);
  track.addEventListener("click", (event) => markAt(event) && choose(markAt(event).dataset.key));
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -keys.length, End: keys.length };
  track.addEventListener("keydown", (event) => {
    const key = markAt(event)?.dataset.key;
    if (!key) return;
    if (event.key === "Escape") leave();
    if (event.key === "Delete") remove(key);
    if (!(event.key in step)) return;
    event.preventDefault();
    const next = Math.min(Math.max(keys.indexOf(key) + step[event.key], 0), keys.length - 1);
    marks.get(key).tabIndex = -1;
    marks.get(keys[next]).tabIndex = 0;
    marks.get(keys[next]).focus();
  });
}

/** The chances of one event beside its mark. */
function showTip(tip, mark, entry, event) {
  const rows = event ? sharesOf(event) : null;
  show(
    tip,
    element("p", { class: "tip-name" }, nameOf(entry)),
    element(
      "p",
      { class: "tip-when" },
      [when(entry.time), entry.removed ? "removed" : null, entry.added ? "added" : null].filter(Boolean).join(" · "),
    ),
    rows,
  );
  tip.hidden = false;
  const room = tip.parentElement.clientWidth - tip.offsetWidth;
  const centre = mark.offsetLeft + mark.offsetWidth / 2 - tip.offsetWidth / 2;
  styled(tip, { left: `${Math.max(0, Math.min(centre, room))}px`, top: `${mark.offsetTop + mark.offsetHeight + 8}px` });
}

/** A bar for each person, most likely first. */
export function sharesOf(event) {
  const rows = event.shares.map((share, place) => [event.order[place], share]).sort((one, other) => other[1] - one[1]);
  return element(
    "ul",
    { class: "shares" },
    rows.map(([letter, share]) =>
      element(
        "li",
        { "data-person": letter },
        element("span", { class: "letter" }, letter),
        styled(element("span", { class: "bar", "aria-hidden": "true" }), { "--share": share }),
        element("span", { class: "number" }, percent(share)),
      ),
    ),
  );
}
