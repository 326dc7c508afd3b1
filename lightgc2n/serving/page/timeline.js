// The timeline: a true time axis, a lane for each person, a block for each session and a mark for each event.

import { button, element, percent, show, styled } from "./dom.js";
import { axisOf, placed, sessionsOf, spanOf } from "./timescale.js";
import { nameOf, spoken, when } from "./words.js";

const MARK = 22; // pixels of a mark, and of a row
const SMALL = 7; // pixels of a mark where the log is long and not zoomed
const MOST_ROWS = 3; // rows of one lane; with more, marks become small, then labels are left out
const LABELLED = 38; // pixels of a row with labels
const FARTHEST = 256; // zoom
const NARROWEST_LABEL = 40; // pixels

/** How a mark looks: full, outlined, or dashed with a small letter. */
export const degree = (probability) => (probability >= 0.8 ? "sure" : probability >= 0.5 ? "likely" : "uncertain");

/**
 * Draws into `place`: `entries` with `events` (by key), people's `letters` in the order of lanes.
 *
 * `choose(key)` is called when a mark is pressed, `remove(key)` for the Delete key; `chosen` is the key pressed last,
 * `current` the one with the focus. `zoom` is 1 for the whole log. If it is null, the timeline opens at the first zoom at
 * which a third of the sessions has room for a label, or with the whole log if lanes have too many rows for labels at
 * every zoom. `zoomTo(number)` is called for another one.
 */
export function drawTimeline(place, { entries, events, lanes, chosen, current, choose, remove, zoom, zoomTo }) {
  const toolbar = element("div");
  const tip = element("div", { class: "tip", role: "tooltip", hidden: true });
  const track = element("div", {
    class: "track",
    role: "group",
    "aria-label": "Events, oldest first. Arrow keys move along, Enter chooses.",
  });
  const names = lanes.length ? lanes : [""];
  const board = element("div", { class: "board" }, track);
  const scroller = element("div", { class: "scroller" }, board);
  const labels = element("div", { class: "lane-names", "aria-hidden": "true" });
  const stage = element("div", { class: "stage" }, labels, scroller, tip);
  const kept = place.querySelector(".scroller");
  const before = kept ? { left: kept.scrollLeft, width: kept.scrollWidth } : null;
  show(place, toolbar, stage);

  const width = Math.max(scroller.clientWidth - 8, 200);
  const layout = arranged(entries, events, names, width, zoom);
  show(toolbar, tools(entries, layout.zoom, zoomTo));
  track.classList.toggle("small", layout.mark === SMALL);
  styled(board, { width: `${layout.width}px`, height: `${layout.height + 26}px` });
  const marks = new Map();
  for (const { top, height, letter } of layout.lanes) {
    labels.append(
      styled(element("span", { class: "lane-name", "data-person": letter }, letter || "?"), {
        top: `${top}px`,
        height: `${height}px`,
      }),
    );
    track.append(styled(element("div", { class: "lane" }), { top: `${top}px`, height: `${height}px` }));
  }
  for (const { x, label, wide } of layout.ticks)
    board.append(
      styled(element("span", { class: wide ? "tick wide" : "tick", "aria-hidden": "true" }, label), {
        left: `${x}px`,
        height: `${layout.height + 22}px`,
      }),
    );
  for (const block of layout.blocks) {
    const staff = element("div", { class: "staff" });
    for (const entry of block.entries) {
      const mark = markOf(entry, events.get(entry.key), entry.key === chosen);
      marks.set(entry.key, mark);
      staff.append(mark);
    }
    const room = Math.max(block.room, 0);
    const words = room >= NARROWEST_LABEL ? block.label : "";
    const label = layout.labelled
      ? styled(element("span", { class: "label", "aria-hidden": "true" }, words), { "max-width": `${room}px` })
      : null;
    track.append(
      styled(element("div", { class: "session" }, label, staff), { left: `${block.x}px`, top: `${block.top}px` }),
    );
  }
  listen(track, tip, marks, { entries, events, choose, remove });
  const stop = marks.get(current) ?? marks.get(chosen) ?? [...marks.values()].at(-1);
  if (stop) stop.tabIndex = 0; // one stop for the Tab key; arrows do the rest
  // The newest events are visible at first; zooming keeps the centre in place.
  const middle = before && before.width > 0 ? (before.left + width / 2) / before.width : 1;
  scroller.scrollLeft =
    before && before.width === scroller.scrollWidth ? before.left : middle * scroller.scrollWidth - width / 2;
  const shown = marks.get(chosen);
  if (shown) keepInSight(scroller, shown.closest(".session"));
}

/** Scrolls horizontally until a block is visible. */
function keepInSight(scroller, block) {
  const left = block.offsetLeft;
  const right = left + block.offsetWidth;
  if (left < scroller.scrollLeft || right > scroller.scrollLeft + scroller.clientWidth)
    scroller.scrollLeft = right - scroller.clientWidth + 24;
}

function tools(entries, zoom, zoomTo) {
  if (entries.length < 2) return null;
  const one = (words, label, to, off) =>
    button(words, () => zoomTo(to), {
      class: "zoom",
      "aria-label": label,
      title: label,
      "data-focus": `zoom ${label}`,
      disabled: off,
    });
  return element(
    "div",
    { class: "zooms", role: "group", "aria-label": "Zoom of the timeline" },
    one("−", "Zoom out", zoom / 2, zoom <= 1),
    one("+", "Zoom in", zoom * 2, zoom >= FARTHEST),
    one("Whole log", "Show the whole log", 1, zoom === 1),
  );
}

/** The layout: large marks if every lane then has few rows, else small ones, else small ones without labels. */
function arranged(entries, events, names, width, zoom) {
  const sessions = sessionsOf(entries, (entry) => events.get(entry.key)?.person ?? entry.was ?? names[0]);
  const span = spanOf(entries);
  const longest = Math.max(...sessions.map((one) => one.entries.length));
  const at = (zoom, mark, labelled) => {
    const scale = { mark, span, width: width * zoom, end: Math.min(longest * mark, width / 2) };
    const layout = placed(sessions, names, scale, labelled ? LABELLED : MARK);
    return { ...layout, zoom, mark, labelled };
  };
  const few = (layout) => layout.lanes.every((lane) => lane.rows <= MOST_ROWS);
  const fitting = (zoom) => [MARK, SMALL].map((mark) => at(zoom, mark, true)).find(few);
  const named = ({ blocks }) => 3 * blocks.filter((one) => one.room >= NARROWEST_LABEL).length >= blocks.length;
  let layout = fitting(zoom ?? 1);
  for (let next = 2; zoom === null && next <= FARTHEST && !(layout && named(layout)); next *= 2) layout = fitting(next);
  layout ??= at(zoom ?? 1, SMALL, false);
  return { ...layout, ticks: axisOf(span, layout) };
}

function markOf(entry, event, pressed) {
  const letter = event?.person ?? entry.was ?? "";
  const look = entry.removed ? "removed" : event ? degree(event.probability) : "uncertain";
  return element(
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
    look === "uncertain" ? letter.toLowerCase() : letter,
  );
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

/** The tooltip of a mark: the chances of its event. */
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
