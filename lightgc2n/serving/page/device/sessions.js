/**
 * Sessions of events, features of sessions and features of pairs of sessions.
 *
 * The same features in the same order as in `people/session_features.py`, on which the weights were learned.
 */

import { dot } from "./eigen.js";
import { DAY, remainder } from "./times.js";

/**
 * @typedef {object} Session
 * @property {number[]} items
 * @property {Set<number>} held the distinct items
 * @property {number | null} begun the time of the first event in days; null without times
 * @property {number | null} time the same in microseconds
 * @property {Float64Array} taste the mean vector of its items
 * @property {number} length the norm of that vector
 * @property {Float64Array} traits its other features, standardised as in training
 */

/**
 * For each event the number of its session; without times every event is a session of its own.
 *
 * @param {ArrayLike<number> | null} times microseconds, oldest first
 * @param {number} events how many there are
 * @param {number} gap a longer pause begins a new session
 * @returns {number[]}
 */
export function sessionNumbers(times, events, gap) {
  if (times === null) return Array.from({ length: events }, (_, event) => event);
  let number = 0;
  return Array.from(times, (time, event) => (event > 0 && time - times[event - 1] > gap ? ++number : number));
}

/**
 * The sessions of a history.
 *
 * @param {import("./finder.js").Finder} finder
 * @param {ArrayLike<number>} items of each event
 * @param {ArrayLike<number> | null} times of each event
 * @param {number[]} session of each event
 * @returns {Session[]}
 */
export function describe(finder, items, times, session) {
  const groups = [];
  session.forEach((number, event) => (groups[number] ??= []).push(event));
  return groups.map((events) => describeOne(finder, items, times, events));
}

function describeOne(finder, items, times, events) {
  const { tables, traits, constants } = finder;
  const own = events.map((event) => items[event]);
  const values = [...means(events.map((event) => eventTraits(tables, items[event], times && times[event] / DAY)))];
  values.push(Math.log(events.length));
  if (times) values.push(times[events[0]] / DAY, ...calendar(times[events[0]], constants.weekend));
  const taste = means(own.map((item) => tables.vectors.subarray(item * tables.width, (item + 1) * tables.width)));
  return {
    items: own,
    held: new Set(own),
    begun: times && times[events[0]] / DAY,
    time: times && times[events[0]],
    taste,
    length: Math.sqrt(dot(taste, taste)),
    traits: Float64Array.from(values, (value, at) => (value - traits.centre[at]) / traits.spread[at]),
  };
}

/** How popular an item is, how old, and how late the event is among the item's events. */
function eventTraits(tables, item, day) {
  const popularity = Math.log1p(tables.events[item]);
  if (day === null) return [popularity];
  // An item without training events is new, and neither early nor late.
  const age = Math.log1p(Math.max(day - tables.first[item], 0));
  return [popularity, age, tables.events[item] > 0 ? day - tables.middle[item] : 0];
}

/** The hour as an angle of a day and of half a day, and whether it was a weekend. */
function calendar(time, weekend) {
  const angle = (2 * Math.PI * remainder(time, DAY)) / DAY;
  const [cosine, sine] = [Math.fround(Math.cos(angle)), Math.fround(Math.sin(angle))];
  const weekday = remainder(Math.floor(time / DAY) + 3, 7); // the first day of 1970 was a Thursday
  return [cosine, sine, cosine ** 2 - sine ** 2, 2 * cosine * sine, Number(weekday >= weekend)];
}

function means(rows) {
  const sums = new Float64Array(rows[0].length);
  for (const row of rows) for (let at = 0; at < sums.length; at++) sums[at] += row[at];
  return sums.map((sum) => sum / rows.length);
}

/**
 * The features of a pair of sessions; symmetric.
 *
 * @param {Session} one
 * @param {Session} other
 * @param {import("./finder.js").Constants} constants
 * @returns {number[]}
 */
export function pairFeatures(one, other, constants) {
  const [left, right] = [one.traits, other.traits];
  const likeness = dot(one.taste, other.taste);
  const features = [
    ...left.map((value, at) => Math.abs(value - right[at])),
    ...left.map((value, at) => value * right[at]),
    ...left.map((value, at) => value + right[at]),
    likeness,
    likeness / Math.max(one.length * other.length, 1e-9),
    Number(one.items.some((item) => other.held.has(item))),
  ];
  if (one.begun === null) return features;
  const sameWeekday = remainder(Math.floor(one.begun), 7) === remainder(Math.floor(other.begun), 7);
  return [...features, Math.log(Math.abs(one.begun - other.begun) + constants.half_an_hour), Number(sameWeekday)];
}
