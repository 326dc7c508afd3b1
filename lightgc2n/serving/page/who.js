// Who is watching now: the chance of each person on a weekday and at an hour, and after items of the session.
// The service computes the chances, not the model in this browser.

import { findItems, whoIsWatching } from "./api.js";
import { badge, button, element, failure, listed, percent, show, styled } from "./dom.js";
import { moment } from "./history.js";
import { section } from "./parts.js";
import { picker } from "./picker.js";
import { WEEKDAYS, quoted } from "./words.js";

const HOUR = 3600e3;
const DAY = 24 * HOUR;
const MONDAY = 4 * DAY; // the first one after 1 January 1970

/** The section of an account as it is stored; null if it has one person or no times. */
export function whoIsThere({ account, stored }) {
  const newest = stored.events.at(-1)?.time;
  if (account === null || !newest || stored.people.length < 2) return null;
  const answer = element("div", { class: "watching", "aria-live": "polite" });
  const last = new Date(moment(newest));
  const query = { day: (last.getUTCDay() + 6) % 7, hour: last.getUTCHours(), begun: [] };
  let turn = 0; // number of the newest request

  async function ask() {
    const mine = (turn += 1);
    const request = { account, time: timeAfter(moment(newest), query), items: query.begun.map((one) => one.item) };
    try {
      const watching = await whoIsWatching(request);
      if (mine === turn) show(answer, ...strip(watching, query, clear));
    } catch (problem) {
      if (mine === turn) show(answer, failure(problem, ask));
    }
  }
  const change = (more) => {
    Object.assign(query, more);
    ask();
  };
  const clear = () => change({ begun: [] });

  const choices = element(
    "div",
    { class: "row" },
    choice("Weekday", WEEKDAYS, query.day, (day) => change({ day })),
    newest.length > 10 ? choice("Hour", hours(), query.hour, (hour) => change({ hour })) : null,
    begun((item) => change({ begun: [...query.begun, item] })),
  );
  ask();
  return section("now", "Who is watching now?", choices, answer);
}

/** The first such weekday and hour that is a day or more after the newest event, as the service reads times. */
function timeAfter(newest, { day, hour }) {
  const earliest = Math.ceil((newest + DAY - MONDAY) / DAY);
  const date = earliest + ((day - earliest) % 7 + 7) % 7;
  return new Date(MONDAY + date * DAY + hour * HOUR).toISOString().slice(0, 16);
}

const hours = () => Array.from({ length: 24 }, (_, hour) => `${hour} h`);

function choice(label, options, chosen, changed) {
  const made = options.map((words, value) => element("option", { value, selected: value === chosen }, words));
  const select = element("select", { onchange: (event) => changed(Number(event.target.value)) }, made);
  return element("label", {}, `${label} `, select);
}

function begun(chosen) {
  return picker({
    id: "begun-item",
    label: "Started with",
    placeholder: "an item, if any",
    clears: true,
    find: async (text) => {
      const { items, total } = await findItems(text);
      return { options: items, total };
    },
    named: (item) => (item.title ? [item.title, item.item] : [item.item, null]),
    chosen,
    nothing: (text) => `No item contains “${text}”.`,
  }).box;
}

/** A bar with a part for each person, and the same in words. */
function strip({ people, steps }, query, clear) {
  const { chances } = steps.at(-1);
  const parts = people.map((letter, place) => ({ letter, chance: chances[place] }));
  const summary = listed(parts.map(({ letter, chance }) => `${letter} ${percent(chance)}`));
  const bar = parts.map(({ letter, chance }) =>
    styled(element("span", { "data-person": letter }), { "--share": chance }),
  );
  const names = parts.map(({ letter, chance }) =>
    element("li", { "data-person": letter }, badge(letter), ` ${percent(chance)}`),
  );
  const after = query.begun.length ? `after ${listed(query.begun.map(quoted))}` : "before anything is started";
  return [
    element("div", { class: "watching-bar", role: "img", "aria-label": `Who is watching, ${after}: ${summary}` }, bar),
    element("ul", { class: "watching-people" }, names),
    element(
      "p",
      { class: "hint" },
      `Estimated for the stored account, ${after}. Often wrong: let the viewer choose whose list to see. `,
      query.begun.length ? button("Nothing started", clear, { class: "link" }) : null,
    ),
  ];
}
