// What to show next: for each person, for all together, for the account; with what moved.

import { badge, button, counted, element, listed } from "./dom.js";
import { listsOf, moves } from "./history.js";
import { thumbnails } from "./thumbnails.js";
import { nameOf, quoted } from "./words.js";

const NAMED = 3; // items that a sentence names
export const BEST = 5; // items on a card
const HEADINGS = {
  together: ["Together", "suits everybody"],
  account: ["The account", "seen as one person"],
};
const SIGNS = "↻ had before · + add to the history"; // explained where a list stands alone
/** The heading of a list and a remark. */
export const headingOf = (name) => HEADINGS[name] ?? [`Person ${name}`, "for them alone"];

/**
 * All lists in full; `before` are the lists to compare with, or null. `seenBy(name)` returns the items in the
 * history of the person of a list, or of anybody. `add(item)`, if given, adds an item to the history.
 */
export function drawLists(answer, before, seenBy, add) {
  const lists = listsOf(answer);
  const earlier = before ? listsOf(before) : new Map();
  return element(
    "div",
    { class: "lists" },
    [...lists].map(([name, list]) =>
      column(name, list, { earlier: earlier.get(name), compared: before !== null, alone: lists.size === 1 }, seenBy(name), add),
    ),
  );
}

/** The number of places in all lists whose item changed. */
export function movedPlaces(answer, before) {
  const earlier = listsOf(before);
  let moved = 0;
  for (const [name, list] of listsOf(answer))
    moved += earlier.has(name) ? moves(earlier.get(name), list).moved.size : list.items.length;
  return moved;
}

function column(name, list, { earlier, compared, alone }, seen, add) {
  const [title, remark] = headingOf(name);
  const { moved, gone } = moves(earlier, list);
  const thumbnail = thumbnails(list.items);
  const rows = list.items.map((item) => row(item, thumbnail, moved.get(item.item), seen.has(item.item), name, add));
  return element(
    "section",
    { class: "list", id: `list-${name}`, "data-list": name, "aria-label": `Next: ${title}` },
    alone
      ? element("h3", {}, "Best items")
      : element("h3", {}, HEADINGS[name] ? null : badge(name), title),
    element("p", { class: "remark" }, alone ? add && SIGNS : compared && !earlier ? "a new list" : remark),
    list.fallback ? element("p", { class: "flag" }, "Not personal: the most popular items") : null,
    rows.length ? element("ol", {}, rows) : element("p", { class: "none" }, "No item is left to list."),
    list.notes.length && !list.fallback ? element("p", { class: "gone" }, list.notes.join("; ")) : null,
    gone.length ? element("p", { class: "gone" }, `No longer here: ${shortened(gone.map(quoted))}`) : null,
  );
}

/** The first items of a list, for a card. */
export function bestItems(name, list, seen) {
  if (list.fallback) return element("p", { class: "flag" }, "Not personal: the most popular items");
  const best = list.items.slice(0, BEST);
  const thumbnail = thumbnails(best);
  const rows = best.map((item) =>
    element(
      "li",
      { "data-item": item.item, title: item.title ? item.item : null },
      thumbnail(item),
      element("span", { class: "name" }, nameOf(item)),
      seen.has(item.item) ? seenSign(name) : null,
    ),
  );
  return rows.length
    ? element("ol", { class: "best", "aria-label": `Best for ${headingOf(name)[0]}` }, rows)
    : element("p", { class: "none" }, "No item is left to list.");
}

const shortened = (names) =>
  names.length > NAMED ? `${names.slice(0, NAMED).join(", ")} and ${names.length - NAMED} more` : listed(names);

/** The mark of an item in the history of the person of this list; in a list for all, in the history of anybody. */
function seenSign(name) {
  const who = name in HEADINGS ? "in the history" : `in the history of person ${name}`;
  return element(
    "span",
    { class: "seen", title: who },
    element("span", { "aria-hidden": "true" }, "↻"),
    element("span", { class: "unseen" }, who),
  );
}

function row(item, thumbnail, move, seen, list, add) {
  const name = nameOf(item);
  return element(
    "li",
    { "data-item": item.item, class: move === undefined ? null : "changed", title: item.title ? item.item : null },
    thumbnail(item),
    element("span", { class: "name" }, name),
    seen ? seenSign(list) : null,
    move === undefined ? null : mark(move),
    add &&
      button("+", () => add(item), {
        class: "add",
        "aria-label": `Add ${name} to the history`,
        title: "Add this item to the history",
      }),
  );
}

function mark(move) {
  if (move === "new") return element("span", { class: "move new" }, "new");
  const words = `${move > 0 ? "up" : "down"} ${counted(Math.abs(move), "place")}`;
  return element(
    "span",
    { class: `move ${move > 0 ? "up" : "down"}` },
    element("span", { "aria-hidden": "true" }, `${move > 0 ? "▲" : "▼"}${Math.abs(move)}`),
    element("span", { class: "unseen" }, words),
  );
}
