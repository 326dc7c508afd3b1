// The parts of an account's page, each drawn from the state `now` and the callbacks of its buttons.
//
// `now` is {account, timed, stored, base, start, answer, entries, past, chosen, zoom, problem}: the answer to the stored
// history, its entries, the answer to start from when something is changed, and the answer and entries of this moment.

import { chancesChart, missingCard, personCard, sharedCard } from "./people.js";
import { badge, button, counted, element, listed } from "./dom.js";
import { eventsByKey, kept } from "./history.js";
import { headingOf, movedPlaces } from "./lists.js";
import { changesIn, headline, inWords, nameOf, sureness, when, whose } from "./words.js";

export const isEdited = (now) => now.entries.some((entry) => entry.added || entry.removed);

/** How many people, how sure that is, and the chances as a chart; `refresh` asks a service with a store again. */
export function summary(now, refresh) {
  const { answer, account } = now;
  const events = counted(kept(now.entries).length, "event");
  const text = element(
    "div",
    { class: "finding" },
    element(
      "p",
      { class: "eyebrow" },
      account === null ? "A history of your own" : `Account ${account}`,
      ` · ${events}`,
      now.keeps && account !== null ? [" · ", button("Refresh", refresh, { class: "link", "data-focus": "refresh" })] : null,
    ),
    element("h1", {}, headline(answer, account)),
    element("p", { class: "lead" }, answer.count ? sureness(answer) : withoutAnyone(account)),
    (answer.notes ?? []).map((note) => element("p", { class: "hint" }, `Note: ${note}.`)),
  );
  return [text, answer.count ? chancesChart(answer) : null];
}

function withoutAnyone(account) {
  return account === null
    ? "Add items with +, or from the search below, to see who is behind the history and what to show them."
    : "There are no events, so no people can be found; the list has the most popular items.";
}

/** Letters in the order of their lanes; people who were there before the edit keep their lane. */
export function lanes(now) {
  const before = isEdited(now) ? now.start.people : [];
  return [...new Set([...before, ...now.answer.people].map((person) => person.name))].sort();
}

/** The entries; removed ones with their earlier owner. */
export function remembered(now) {
  const events = eventsByKey(now.base, now.start ?? now.stored);
  return now.entries.map((entry) => ({ ...entry, was: events.get(entry.key)?.person }));
}

/** The selected event and its actions. */
export function chosenEvent(now, { toggle, removeSession }) {
  const entry = now.entries.find((one) => one.key === now.chosen);
  if (!now.entries.length) return [];
  if (!entry)
    return [hint("Point at a mark to see whose it probably is. Choose one to remove it and see what changes.")];
  const event = eventsByKey(now.entries, now.answer).get(entry.key);
  const keys = sessionOf(now.entries, entry);
  const many = !entry.removed && keys.length > 1;
  return [
    element(
      "p",
      { class: "chosen-name" },
      event ? badge(event.person) : null,
      element("strong", {}, nameOf(entry)),
      entry.category ? ` · ${entry.category}` : null,
      entry.time ? ` · ${when(entry.time)}` : null,
      entry.added ? element("span", { class: "tag" }, "added") : null,
    ),
    element("p", {}, event ? whose(event) : "Removed: people and lists on this page are computed without it."),
    element(
      "p",
      { class: "row" },
      action("toggle", entry.removed ? "Put it back" : "Remove this event", () => toggle(entry.key)),
      many
        ? action("session", `Forget this session (${counted(keys.length, "event")})`, () => removeSession(keys))
        : null,
    ),
  ];
}

function sessionOf(entries, { session, added }) {
  const same = entries.filter((one) => one.session === session && one.added === added && !one.removed);
  return same.map((one) => one.key);
}

/** A card for each person, and one for each person who was there before the edit. */
export function cards(now, { forget, bringBack }) {
  const { answer, start, base, entries } = now;
  const before = isEdited(now) ? start.people.map((person) => person.name) : [];
  const byLetter = new Map(answer.people.map((person) => [person.name, person]));
  const removed = new Set(entries.filter((entry) => entry.removed).map((entry) => entry.key));
  const made = [...new Set([...before, ...byLetter.keys()])].sort().map((letter) => {
    if (byLetter.has(letter)) {
      const keys = keysOf(letter, entries, answer);
      const seen = answer.count > 1 ? seenBy(now, letter) : null; // the only person's list stands beside the card
      const isNew = before.length > 0 && !before.includes(letter);
      return personCard(byLetter.get(letter), { isNew, seen, forget: () => forget(letter, keys) });
    }
    const keys = keysOf(letter, base, start);
    const left = keys.filter((key) => !removed.has(key));
    return missingCard(letter, {
      left: left.length,
      heirs: heirs(now, left),
      bringBack: () => bringBack(letter, keys),
    });
  });
  if (answer.together) made.push(sharedCard("together", answer.together, seenBy(now, null)));
  if (answer.count > 1) made.push(sharedCard("account", answer.account_list, seenBy(now, null)));
  return made.length ? element("div", { class: "cards" }, made) : null;
}

/** The items in the history of a person, or of the whole account. */
export function seenBy(now, letter) {
  const own = kept(now.entries);
  if (letter === null || letter === "together" || letter === "account") return new Set(own.map((entry) => entry.item));
  const events = eventsByKey(now.entries, now.answer);
  return new Set(own.filter((entry) => events.get(entry.key)?.person === letter).map((entry) => entry.item));
}

function keysOf(letter, entries, answer) {
  const own = [...eventsByKey(entries, answer)].filter(([, event]) => event.person === letter);
  return own.map(([key]) => key);
}

/** The people to whom these events are now assigned. */
function heirs(now, keys) {
  const events = eventsByKey(now.entries, now.answer);
  return listed([...new Set(keys.map((key) => events.get(key).person))].sort());
}

/** The heading above the cards. */
export const peopleHeading = ({ answer }) =>
  answer.count > 1
    ? "Who they are, and what to show each of them"
    : answer.count
      ? "Who it is, and what to show next"
      : "What to show next";

/** The bar that describes the edit and its effect; null without an edit. */
export function whatIf(now, { undo, reset, jump, keep }) {
  if (!now.problem && !isEdited(now)) return [];
  return [
    now.problem
      ? element("p", { class: "wrong", role: "alert" }, `${now.problem.heading}: ${now.problem.message}`)
      : element("p", {}, element("strong", {}, `What if: ${changesIn(now.entries)}. `), effect(now)),
    element(
      "p",
      { class: "row" },
      element("a", { class: "button", href: "#next", onclick: jump }, "See the lists"),
      now.past.length ? action("undo", "Undo", undo) : null,
      isEdited(now) ? action("reset", "Start over", reset) : null,
      now.keeps && now.account !== null && added(now).length
        ? action("keep", added(now).length === 1 ? "Keep the added event" : "Keep the added events", keep)
        : null,
    ),
  ];
}

/** The events that were added and are still there. */
export const added = (now) => kept(now.entries).filter((entry) => entry.added);

/** The effect of the edit, as a sentence. */
export function effect({ answer, start }) {
  const people = answer.count === 1 ? "person" : "people";
  const other =
    answer.count === start.count ? "" : `, ${inWords(answer.count)} ${people} instead of ${inWords(start.count)}`;
  return `${counted(movedPlaces(answer, start), "place")} in the lists changed${other}.`;
}

/** The legend of the marks. */
export function legend(now) {
  if (!now.entries.length) return null;
  const kind = (look, words) => {
    const sample = element("span", { class: `sample ${look}`, "aria-hidden": "true" }, look === "uncertain" ? "a" : "A");
    return element("li", {}, sample, words);
  };
  const kinds = [
    kind("sure", "probability 80 % or more"),
    kind("likely", "50 % or more"),
    kind("uncertain", "below 50 %: uncertain"),
    kind("removed", "removed"),
  ];
  return element("ul", { class: "legend" }, kinds);
}

/** Links to all cards or lists, for narrow screens on which they stand one below the other. */
export function jumps(lists, kind) {
  if (lists.size < 2) return null;
  const to = (name) => (event) => {
    event.preventDefault();
    document.getElementById(`${kind}-${name}`).scrollIntoView();
  };
  return element(
    "nav",
    { class: "jumps", "aria-label": kind === "card" ? "People" : "Lists" },
    [...lists.keys()].map((name) =>
      element(
        "a",
        { href: `#${kind}-${name}`, onclick: to(name), "data-person": name.length === 1 ? name : null },
        name.length === 1 ? name : headingOf(name)[0],
      ),
    ),
  );
}

export const hint = (words) => element("p", { class: "hint" }, words);

/** A button with a name, by which the focus is restored after a redraw. */
const action = (name, words, onclick) => button(words, onclick, { "data-focus": name });

export function section(id, heading, ...children) {
  const title = element("h2", { id: `${id}-heading`, tabindex: "-1" }, heading);
  return element("section", { id, "aria-labelledby": title.id }, title, ...children);
}
