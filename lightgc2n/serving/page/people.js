// The people of an account: their number with its probability, and a card for each with the best items for them.

import { badge, button, capital, counted, element, percent, styled } from "./dom.js";
import { bestItems, headingOf } from "./lists.js";
import { WEEKDAYS, cameBackTo, inWords, shareOf } from "./words.js";

/** How often accounts have one to five people, as bars; `counts` are numbers of accounts. */
export function populationChart({ accounts, counts }) {
  const most = Math.max(...counts);
  const rows = counts.map((number, place) =>
    element(
      "li",
      {},
      element("span", { class: "people" }, place === 0 ? "one person" : `${inWords(place + 1)} people`),
      styled(element("span", { class: "bar", "aria-hidden": "true" }), { "--share": number / most }),
      element("span", { class: "number" }, number > 0 && number < 0.005 * accounts ? "< 1\u00a0%" : percent(number / accounts)),
    ),
  );
  return element(
    "figure",
    { class: "population" },
    element("figcaption", {}, element("strong", {}, "How many people share an account here?")),
    element("ol", {}, rows),
    element("p", { class: "hint" }, `The model’s estimate for ${counted(accounts, "account")}.`),
  );
}

/** The chances of one to five people as a small bar chart. */
export function chancesChart(answer) {
  const description = answer.chances.map((chance, place) => `${inWords(place + 1)}: ${percent(chance)}`).join(", ");
  const most = Math.max(...answer.chances);
  const bars = answer.chances.map((chance, place) =>
    element(
      "div",
      { class: place + 1 === answer.count ? "chance found" : "chance" },
      element("span", { class: "number" }, percent(chance)),
      styled(element("span", { class: "column" }), { "--share": chance / most }),
      element("span", { class: "people" }, String(place + 1)),
    ),
  );
  return element(
    "figure",
    { class: "chances" },
    element("div", { class: "columns", role: "img", "aria-label": description }, bars),
    element("figcaption", {}, "Chances of one to five people"),
  );
}

/** The card of one person, with the best items for them unless `seen` is null; `forget` removes their events. */
export function personCard(person, { isNew, seen, forget }) {
  return element(
    "article",
    { class: "person", id: `card-${person.name}`, "data-person": person.name, "aria-label": `Person ${person.name}` },
    element(
      "h3",
      {},
      badge(person.name),
      `Person ${person.name}`,
      isNew ? element("span", { class: "tag" }, "new") : null,
    ),
    element("p", { class: "quantity" }, `${counted(person.events, "event")}, ${shareOf(person)}`),
    element("p", { class: "portrait" }, `${capital(person.description)}.`),
    seen ? element("h4", {}, "Show next") : null,
    seen ? bestItems(person.name, person.next, seen) : null,
    person.likes.length ? element("p", { class: "likes" }, cameBackTo(person)) : null,
    person.active ? rhythm(person.active) : null,
    element("p", { class: "actions" }, button(`Forget person ${person.name}`, forget, { class: "quiet" })),
  );
}

/** The card of everybody together, or of the account as one person. */
export function sharedCard(name, list, seen) {
  const [title, remark] = headingOf(name);
  return element(
    "article",
    { class: "person shared", id: `card-${name}`, "aria-label": title },
    element("h3", {}, title),
    element("p", { class: "quantity" }, remark),
    element("h4", {}, "Show next"),
    bestItems(name, list, seen),
  );
}

/** The card of a person who was there before the edit. */
export function missingCard(letter, { left, heirs, bringBack }) {
  const why =
    left === 0
      ? "Forgotten: none of their events is left."
      : `No longer a separate person: ${counted(left, "event")} of theirs ${left === 1 ? "is" : "are"} now assigned to ${heirs}.`;
  return element(
    "article",
    { class: "person missing", "data-person": letter, "aria-label": `Person ${letter}` },
    element("h3", {}, badge(letter), `Person ${letter}`),
    element("p", { class: "quantity" }, left === 0 ? "0 events" : "No longer found"),
    element("p", { class: "portrait" }, why),
    left === 0
      ? element("p", { class: "actions" }, button(`Bring person ${letter} back`, bringBack, { class: "quiet back" }))
      : null,
  );
}

/** Days and hours as two rows of little bars. */
function rhythm(active) {
  const days = strip(
    "By day",
    active.weekdays,
    WEEKDAYS.map((day) => day[0]),
    WEEKDAYS,
  );
  if (!active.hours) return element("div", { class: "rhythm" }, days);
  const clock = active.hours.map((_, hour) => (hour % 6 === 0 ? String(hour) : ""));
  return element(
    "div",
    { class: "rhythm" },
    days,
    strip(
      "By hour",
      active.hours,
      clock,
      active.hours.map((_, hour) => `${hour} h`),
      "clock",
    ),
  );
}

function strip(label, shares, marks, names, kind = "") {
  const most = Math.max(...shares) || 1;
  const top = shares.indexOf(Math.max(...shares));
  return element(
    "div",
    { class: `strip ${kind}`, role: "img", "aria-label": `${label}: most at ${names[top]}, ${percent(shares[top])}` },
    shares.map((share, place) =>
      element(
        "span",
        { class: "slot" },
        styled(element("i"), { "--share": share / most }),
        element("span", {}, marks[place]),
      ),
    ),
  );
}
