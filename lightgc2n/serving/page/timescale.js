// Positions on the timeline: sessions on a true time axis, packed into rows of lanes. No DOM here.

import { moment } from "./history.js";
import { dateOf, nameOf } from "./words.js";

const DAY = 86_400_000;
const GAP = 4; // pixels between two blocks
const LANE_PADDING = 8; // pixels
const CLOSEST_TICKS = 76; // pixels
const LONGEST = 12; // events of a block; longer sessions have several
const STEPS = [1, 7, 14, 30.4, 91.3, 182.6, 365.25]; // days between two ticks, at least

/** The sessions of a history: {person, entries, label}, oldest first. */
export function sessionsOf(entries, personOf) {
  const sessions = [];
  for (const entry of entries) {
    const last = sessions.at(-1);
    const person = personOf(entry);
    const first = last?.entries[0];
    if (first && first.session === entry.session && first.added === entry.added && last.person === person && last.entries.length < LONGEST)
      last.entries.push(entry);
    else sessions.push({ person, entries: [entry] });
  }
  return sessions.map((one) => ({ ...one, label: labelOf(one.entries) }));
}

/** The category of most of its events, or else the title of the first. */
function labelOf(entries) {
  const counts = new Map();
  for (const { category } of entries) if (category) counts.set(category, (counts.get(category) ?? 0) + 1);
  if (counts.size) return [...counts].sort((one, other) => other[1] - one[1])[0][0];
  return entries.length > 1 ? `${nameOf(entries[0])} +${entries.length - 1}` : nameOf(entries[0]);
}

/** The first and last time of the axis; without times, event numbers. */
export function spanOf(entries) {
  const timed = entries.length > 0 && entries.every((entry) => entry.time);
  if (!timed) return { timed, first: 0, last: Math.max(entries.length - 1, 1), place: placesOf(entries) };
  const times = entries.map((entry) => moment(entry.time));
  const first = Math.min(...times);
  return { timed, first, last: Math.max(...times, first + DAY), place: (entry) => moment(entry.time) };
}

function placesOf(entries) {
  const places = new Map(entries.map((entry, place) => [entry.key, place]));
  return (entry) => places.get(entry.key);
}

/**
 * Blocks with x, top and the room for their label; lanes with top, height and rows.
 *
 * `scale` is {mark, span, width, end}: pixels of a mark and of the whole axis, `end` of them for the last block.
 */
export function placed(sessions, names, { mark, span, width, end }, rowHeight) {
  const share = (value) => (value - span.first) / (span.last - span.first);
  const x = (value) => share(value) * (width - end);
  const rows = new Map(names.map((name) => [name, []]));
  const blocks = sessions.map((session) => {
    const left = x(span.place(session.entries[0]));
    const own = rows.get(session.person) ?? rows.get(names[0]);
    const size = session.entries.length * mark;
    let row = own.findIndex((last) => last.x + last.size + GAP <= left);
    if (row < 0) row = own.length;
    const block = { ...session, x: left, size, row, lane: own };
    if (own[row]) own[row].next = left;
    own[row] = block;
    return block;
  });
  let top = 0;
  const lanes = names.map((letter) => {
    const count = Math.max(rows.get(letter).length, 1);
    const lane = { letter, top, rows: count, height: count * rowHeight + LANE_PADDING };
    top += lane.height;
    return lane;
  });
  const laneOf = new Map(lanes.map((lane) => [rows.get(lane.letter), lane]));
  for (const block of blocks) {
    block.top = laneOf.get(block.lane).top + LANE_PADDING / 2 + block.row * rowHeight;
    block.room = Math.min((block.next ?? width) - block.x - GAP, Math.max(block.size, 150));
  }
  return { blocks, lanes, width, height: top, x };
}

/** Labelled ticks: days, months or years, as close as they stay readable. */
export function axisOf(span, { x, width }) {
  if (!span.timed) {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((one) => x(one) - x(0) >= 40) ?? 2000;
    const ticks = [];
    for (let place = 0; place <= span.last; place += step) ticks.push({ x: x(place), label: String(place + 1) });
    return ticks;
  }
  const day = x(span.first + DAY) - x(span.first);
  const step = STEPS.find((one) => one * day >= CLOSEST_TICKS) ?? STEPS.at(-1);
  const ticks = [];
  let year = null;
  for (const time of momentsOf(span, step)) {
    const { day: number, month, year: now } = dateOf(new Date(time).toISOString().slice(0, 10));
    const short = month.slice(0, 3);
    const label = step < 30 ? `${number} ${short}` : step < 365 ? short : String(now);
    const named = year !== now && step < 365 ? `${label} ${now}` : label;
    ticks.push({ x: x(time), label: named, wide: year !== now });
    year = now;
  }
  return ticks.filter((tick) => tick.x >= 0 && tick.x <= width - 30);
}

/** Days, Mondays, or first days of months within a span. */
function* momentsOf({ first, last }, step) {
  if (step < 30) {
    const days = step === 1 ? 0 : (new Date(first).getUTCDay() + 6) % 7; // back to Monday
    const from = Math.floor(first / DAY) * DAY - days * DAY;
    for (let time = from; time <= last; time += step * DAY) if (time >= first - DAY / 2) yield Math.max(time, first);
    return;
  }
  const months = Math.round(step / 30.4);
  const start = new Date(first);
  for (let number = 0; ; number += months) {
    const time = Date.UTC(start.getUTCFullYear(), Math.floor(start.getUTCMonth() / months) * months + number, 1);
    if (time > last) return;
    if (time >= first) yield time;
  }
}
