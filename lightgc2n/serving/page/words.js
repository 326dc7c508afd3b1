// Sentences that describe the numbers.

import { capital, counted, listed, percent } from "./dom.js";
import { moment } from "./history.js";

const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
export const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const COUNTS = ["no", "one", "two", "three", "four", "five"];

export const nameOf = (thing) => thing.title ?? thing.item;
/** The title in quotation marks, for use within a sentence. */
export const quoted = (thing) => (thing.title ? `“${thing.title}”` : thing.item);
export const inWords = (number) => COUNTS[number] ?? String(number);

/** {day, month, year, clock} of a time as the service writes it. */
export function dateOf(time) {
  const date = new Date(moment(time));
  return {
    day: date.getUTCDate(),
    month: MONTHS[date.getUTCMonth()],
    year: date.getUTCFullYear(),
    clock: time.length > 10 ? time.slice(11) : null,
  };
}

export function when(time) {
  if (!time) return null;
  const { day, month, year, clock } = dateOf(time);
  return `${day} ${month} ${year}${clock ? `, ${clock}` : ""}`;
}

/** The confidence of a count, and the next most likely counts. */
export function sureness(answer) {
  const { confidence, count } = answer;
  const others = answer.chances
    .map((chance, place) => ({ chance, people: place + 1 }))
    .filter(({ chance, people }) => people !== count && chance >= 0.2)
    .sort((one, other) => other.chance - one.chance);
  const given = `it gives ${manyPeople(count)} a chance of ${percent(confidence)}`;
  if (others[0]?.chance > confidence) {
    // The count is biased towards one person: an account is split only on clear evidence.
    const other = `${manyPeople(others[0].people)} ${percent(others[0].chance)}`;
    return `The model is uncertain: ${given} and ${other}, and tells people apart only where the evidence is clear.`;
  }
  const rest = others.length
    ? ` Next most likely: ${listed(others.map(({ chance, people }) => `${inWords(people)} (${percent(chance)})`))}.`
    : "";
  return `The model is ${sure(confidence)} of that: ${given}.${rest}`;
}

/** An example account in a few words: "Three people, quite sure". */
export function exampleOf({ count, confidence }) {
  return `${capital(manyPeople(count))}, ${sure(confidence)}`;
}

const sure = (confidence) =>
  confidence >= 0.85 ? "very sure" : confidence >= 0.65 ? "quite sure" : confidence >= 0.45 ? "not very sure" : "uncertain";

const manyPeople = (count) => `${inWords(count)} ${count === 1 ? "person" : "people"}`;

/** How many people, as a sentence. */
export function headline(answer, account) {
  if (answer.count === 0) return account === null ? "No one yet" : "No one is left";
  const many = manyPeople(answer.count);
  const what = account === null ? "made this history" : answer.count === 1 ? "uses this account" : "share this account";
  return `${capital(many)} probably ${what}`;
}

/** The items that a person often repeats. */
export function cameBackTo({ likes }) {
  const often = likes.slice(0, 2).map((like) => `${quoted(like)} (${counted(like.events, "time")})`);
  return `Came back to ${listed(often)}.`;
}

/** The share of the account's events that a person has; never 0 % or 100 % beside other people. */
export function shareOf({ share }) {
  const words = share < 1 && share >= 0.995 ? "over 99\u00a0%" : share > 0 && share < 0.005 ? "under 1\u00a0%" : percent(share);
  return `${words} of the account`;
}

/** The description of one event for screen readers. */
export function spoken(entry, event) {
  const parts = [when(entry.time), nameOf(entry)];
  if (entry.removed) parts.push("removed");
  else if (event) parts.push(`person ${event.person}, ${Math.round(100 * event.probability)} percent`);
  if (entry.added) parts.push("added");
  return parts.filter(Boolean).join(", ");
}

/** The most probable person of an event, and the next most probable ones. */
export function whose(event) {
  const others = event.shares
    .map((share, place) => [event.order[place], share])
    .filter(([letter, share]) => letter !== event.person && share >= 0.005);
  others.sort((one, other) => other[1] - one[1]);
  const rest = others.length ? ` (${others.map(([letter, share]) => `${letter} ${percent(share)}`).join(", ")})` : "";
  return `Person ${event.person}’s with a chance of ${percent(event.probability)}${rest}.`;
}

/** The number of removed and added events of an edited history. */
export function changesIn(entries) {
  const added = entries.filter((entry) => entry.added).length;
  const removed = entries.filter((entry) => entry.removed).length;
  const parts = [];
  if (removed) parts.push(`${counted(removed, "event")} removed`);
  if (added) parts.push(`${counted(added, "event")} added`);
  return parts.join(", ");
}
