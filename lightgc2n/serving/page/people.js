// Who they are: how many, how sure that is, and a card with a sentence for each.

import { button, counted, element, percent, styled } from "./dom.js";
import { WEEKDAYS, inWords, portrait } from "./words.js";

/** The chances of one to five people as a small bar chart. */
export function chancesChart(answer) {
  const said = answer.chances.map((chance, place) => `${inWords(place + 1)}: ${percent(chance)}`).join(", ");
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
    element("div", { class: "columns", role: "img", "aria-label": said }, bars),
    element("figcaption", {}, "How many people? The chances of one to five"),
  );
}

export const badge = (letter) =>
  element("span", { class: "badge", "data-person": letter, "aria-hidden": "true" }, letter);

/** The card of one person; `forget` is called when their events are to go. */
export function personCard(person, { isNew, forget }) {
  return element(
    "article",
    { class: "person", "data-person": person.name, "aria-label": `Person ${person.name}` },
    element(
      "h3",
      {},
      badge(person.name),
      `Person ${person.name}`,
      isNew ? element("span", { class: "tag" }, "new") : null,
    ),
    element("p", { class: "quantity" }, `${counted(person.events, "event")}, ${percent(person.share)} of the account`),
    element("p", { class: "portrait" }, portrait(person)),
    person.active ? rhythm(person.active) : null,
    element("p", { class: "actions" }, button(`Forget person ${person.name}`, forget, { class: "quiet" })),
  );
}

/** What is left of somebody who was there before the change. */
export function missingCard(letter, { left, heirs, bringBack }) {
  const why =
    left === 0
      ? "Forgotten: none of their events is left."
      : `No longer told apart: ${counted(left, "event")} of theirs ${left === 1 ? "is" : "are"} now given to ${heirs}.`;
  return element(
    "article",
    { class: "person missing", "data-person": letter, "aria-label": `Person ${letter}` },
    element("h3", {}, badge(letter), `Person ${letter}`),
    element("p", { class: "quantity" }, left === 0 ? "0 events" : "Not found now"),
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
    ),
  );
}

function strip(label, shares, marks, names) {
  const most = Math.max(...shares) || 1;
  const top = shares.indexOf(Math.max(...shares));
  return element(
    "div",
    { class: "strip", role: "img", "aria-label": `${label}: most at ${names[top]}, ${percent(shares[top])}` },
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
