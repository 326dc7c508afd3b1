// One account: what is known of it, what is changed for a try, and what follows from that.

import { findItems, peopleIf, peopleOf, recommend } from "./api.js";
import { badge, chancesChart, missingCard, personCard } from "./people.js";
import { button, counted, element, failure, listed, say, show, waiting } from "./dom.js";
import { entriesOf, eventsByKey, kept, lettersFor, question, renamed, withAdded, withAgain, without } from "./history.js";
import { drawLists, movedPlaces } from "./lists.js";
import { drawTimeline } from "./timeline.js";
import { picker } from "./picker.js";
import { changesIn, headline, inWords, nameOf, quoted, sureness, when, whose } from "./words.js";

const K = 10;

/** Draws accounts into `place`. `opened(account)` is told which one is there, `entries` are those seen now. */
export function accountView(place, opened) {
  let state = null; // {account, timed, stored, base, start, answer, entries, past, chosen, all}
  let turn = 0;

  async function open(account) {
    const mine = (turn += 1);
    state = null;
    place.setAttribute("aria-busy", "true");
    show(place, waiting(`Asking who shares ${account}…`));
    try {
      const stored = lettered(await peopleOf(account, K));
      if (mine !== turn) return;
      begin(account, stored, stored.events.some((event) => event.time));
      say(`${headline(stored, account)}. ${sureness(stored)}`);
      opened(account);
    } catch (problem) {
      if (mine === turn) await openWithoutPeople(account, problem, mine);
    } finally {
      if (mine === turn) place.setAttribute("aria-busy", "false");
    }
  }

  /** Where a bundle cannot tell people apart, the account's list is still there. */
  async function openWithoutPeople(account, problem, mine) {
    const list = problem.code === "cannot_be_answered" ? await recommend({ account, k: K }).catch(() => null) : null;
    if (mine !== turn) return;
    if (list === null) return show(place, failure(problem, () => open(account)));
    const answer = { people: [], together: null, account_list: list };
    show(place, failure({ heading: `Account ${account}`, message: problem.message }), section("next", "What to show next", drawLists(answer, null, new Set(), null)));
    opened(account);
  }

  /** Nobody's account: a history from nothing. */
  async function blank() {
    const mine = (turn += 1);
    try {
      const answer = await ask(null, [], true);
      if (mine === turn) begin(null, answer, true);
    } catch (problem) {
      if (mine === turn) show(place, failure(problem, blank));
    }
  }

  function begin(account, stored, timed) {
    const base = entriesOf(stored);
    state = { account, timed, stored, base, start: null, answer: stored, entries: base, past: [], chosen: null, all: false };
    build();
    draw();
  }

  /** Another history: asks for it, and for the unchanged one asked in the same way, with which it is compared. */
  async function change(entries, sentence, past) {
    const mine = (turn += 1), { account, timed, base } = state;
    place.setAttribute("aria-busy", "true");
    try {
      const [start, found] = await Promise.all([state.start ?? ask(account, base, timed), ask(account, entries, timed)]);
      if (mine !== turn) return;
      const storedEvents = eventsByKey(base, state.stored);
      const first = state.start ?? called(storedEvents, base, start);
      const edited = entries.some((entry) => entry.added || entry.removed);
      const answer = edited ? called(eventsByKey(base, first), entries, found) : state.stored;
      state = { ...state, start: first, answer, entries, past, problem: null };
      draw();
      say(`${sentence} ${told()}`);
    } catch (problem) {
      if (mine !== turn) return;
      state = { ...state, problem };
      draw();
    } finally {
      if (mine === turn) place.setAttribute("aria-busy", "false");
    }
  }

  const edit = (entries, sentence) => change(entries, sentence, [...state.past, state.entries]);
  const undo = () => change(state.past.at(-1), "Undone.", state.past.slice(0, -1));
  const reset = () => change(state.base, "Back to the history as it is stored.", []);
  const add = (item) => edit(withAdded(state.entries, item, state.timed, Date.now()), `${quoted(item)} was added.`);
  const remove = (keys, sentence) => edit(without(state.entries, keys), sentence);
  const restore = (keys, sentence) => edit(withAgain(state.entries, keys), sentence);
  const isEdited = () => state.entries.some((entry) => entry.added || entry.removed);

  function told() {
    if (!isEdited()) return "";
    const { answer, start } = state;
    return `${headline(answer, state.account)}. ${counted(movedPlaces(answer, start), "place")} in the lists changed.`;
  }

  const parts = {};

  function build() {
    for (const name of ["summary", "marks", "chosen", "people", "lists", "whatif"]) parts[name] = element("div", { class: `part-${name}` });
    parts.whatif.setAttribute("role", "region");
    parts.whatif.setAttribute("aria-label", "What if");
    const adding = picker({
      id: "add-item", label: "Add to the history", placeholder: "Search for an item", clears: true,
      find: async (text) => { const { items, total } = await findItems(text); return { options: items, total }; },
      named: (item) => (item.title ? [item.title, item.item] : [item.item, null]),
      chosen: add, nothing: (text) => `No item contains “${text}”.`,
    });
    show(
      place,
      parts.summary,
      section("history", "Who did what", legend(), parts.marks, element("div", { class: "tools" }, parts.chosen, element("div", {}, adding.box, state.timed ? element("p", { class: "hint" }, "It becomes a sitting of its own, a day after the last one.") : null))),
      section("people", "Who they are", parts.people),
      section("next", "What to show next", element("p", { class: "hint" }, "↻ had before · + what if they have this next?"), parts.lists),
      parts.whatif,
    );
  }

  function draw() {
    const active = document.activeElement?.dataset ?? {};
    drawSummary();
    drawMarks(active.key);
    drawChosen();
    drawPeople();
    show(parts.lists, drawLists(state.answer, isEdited() ? state.start : null, new Set(kept(state.entries).map((one) => one.item)), add));
    drawWhatIf();
    refocus(place, active);
  }

  function drawSummary() {
    const { answer, account, entries } = state;
    const about = answer.count ? sureness(answer) : account === null
      ? "Add something to the history below, and watch who appears and what is shown to them."
      : "Without any event there is nobody to be found, and the lists show what is popular.";
    show(
      parts.summary,
      element(
        "div", { class: "finding" },
        element("p", { class: "eyebrow" }, account === null ? "A history of your own" : `Account ${account}`, ` · ${counted(kept(entries).length, "event")}`),
        element("h1", {}, headline(answer, account)),
        element("p", { class: "lead" }, about),
      ),
      answer.count ? chancesChart(answer) : null,
    );
  }

  function drawMarks(focused) {
    const { answer, entries, all } = state;
    const stored = eventsByKey(state.base, state.stored);
    const lanes = [...new Set([...(isEdited() ? state.start : answer).people, ...answer.people].map((person) => person.name))].sort();
    const shown = entries.map((entry) => ({ ...entry, was: stored.get(entry.key)?.person }));
    if (!entries.length) return show(parts.marks, element("p", { class: "empty" }, "Nothing here yet."));
    drawTimeline(parts.marks, {
      entries: shown, events: eventsByKey(entries, answer), lanes, chosen: state.chosen, current: focused, choose, all,
      remove: (key) => toggle(key),
      showAll: () => { state = { ...state, all: true }; draw(); },
    });
  }

  function choose(key) {
    state = { ...state, chosen: key };
    draw();
  }

  function toggle(key) {
    const entry = state.entries.find((one) => one.key === key);
    state = { ...state, chosen: key };
    if (entry.removed) restore([key], `${quoted(entry)} is back.`);
    else remove([key], `${quoted(entry)} was removed.`);
  }

  function drawChosen() {
    const entry = state.entries.find((one) => one.key === state.chosen);
    if (!entry) {
      return show(parts.chosen, element("p", { class: "hint" }, "Point at a mark to see whose it probably is. Choose one to take it away and see what changes."));
    }
    const event = eventsByKey(state.entries, state.answer).get(entry.key);
    const sitting = state.entries.filter((one) => one.sitting === entry.sitting && one.added === entry.added && !one.removed);
    const keys = sitting.map((one) => one.key);
    show(
      parts.chosen,
      element("p", { class: "chosen-name" }, event ? badge(event.person) : null, element("strong", {}, nameOf(entry)), when(entry.time) ? ` · ${when(entry.time)}` : null),
      element("p", { class: "chosen-whose" }, event ? whose(event) : "Removed: the answers below do without it."),
      element(
        "p", { class: "row" },
        button(entry.removed ? "Put it back" : "Remove this event", () => toggle(entry.key), { "data-focus": "toggle" }),
        !entry.removed && keys.length > 1
          ? button(`Forget this sitting (${counted(keys.length, "event")})`, () => remove(keys, "The sitting was forgotten."), { "data-focus": "toggle-sitting" })
          : null,
      ),
    );
  }

  function drawPeople() {
    const { answer, start, base } = state;
    const before = isEdited() ? start.people.map((person) => person.name) : [];
    const now = new Map(answer.people.map((person) => [person.name, person]));
    const letters = [...new Set([...before, ...now.keys()])].sort();
    const cards = letters.map((letter) => {
      if (now.has(letter)) {
        const keys = keysOf(letter, state.entries, answer);
        return personCard(now.get(letter), {
          isNew: before.length > 0 && !before.includes(letter),
          forget: () => remove(keys, `Person ${letter} was forgotten: ${counted(keys.length, "event")} removed.`),
        });
      }
      const theirs = keysOf(letter, base, start);
      return missingCard(letter, {
        left: theirs.filter((key) => !state.entries.find((entry) => entry.key === key).removed).length,
        heirs: heirsOf(theirs), bringBack: () => restore(theirs, `Person ${letter} is back.`),
      });
    });
    show(parts.people, cards.length ? element("div", { class: "cards" }, cards) : element("p", { class: "empty" }, "Nobody to tell of."));
  }

  function heirsOf(keys) {
    const events = eventsByKey(state.entries, state.answer);
    return listed([...new Set(keys.map((key) => events.get(key)?.person).filter(Boolean))].sort());
  }

  function drawWhatIf() {
    const { problem, entries, answer, start } = state;
    parts.whatif.hidden = !problem && !isEdited();
    if (parts.whatif.hidden) return show(parts.whatif);
    const changed = isEdited() ? movedPlaces(answer, start) : 0;
    const people = isEdited() && answer.count !== start.count ? `, ${inWords(answer.count)} ${answer.count === 1 ? "person" : "people"} instead of ${inWords(start.count)}` : "";
    show(
      parts.whatif,
      problem
        ? element("p", { class: "wrong", role: "alert" }, `${problem.heading}: ${problem.message}`)
        : element("p", {}, element("strong", {}, `What if: ${changesIn(entries)}. `), element("span", {}, `${counted(changed, "place")} in the lists changed${people}.`)),
      element(
        "p", { class: "row" },
        element("a", { class: "button", href: "#next", onclick: jump }, "See the lists"),
        state.past.length ? button("Undo", undo, { "data-focus": "undo" }) : null,
        isEdited() ? button("Start over", reset, { "data-focus": "reset" }) : null,
      ),
    );
  }

  return { open, blank, current: () => state };
}

async function ask(account, entries, timed) {
  if (kept(entries).length) return peopleIf(question(account, entries, timed, K));
  const list = await recommend({ history: [], k: K });
  return { account, count: 0, confidence: 0, chances: [], events: [], people: [], sessions: [], together: null, account_list: list };
}

/** An answer with the letters that its people had before. */
function called(before, entries, answer) {
  return renamed(answer, lettersFor(before, eventsByKey(entries, answer), answer.people));
}

const lettered = (answer) => renamed(answer, new Map());

function keysOf(letter, entries, answer) {
  return [...eventsByKey(entries, answer)].filter(([, event]) => event.person === letter).map(([key]) => key);
}

function section(id, heading, ...children) {
  return element("section", { id, "aria-labelledby": `${id}-heading` }, element("h2", { id: `${id}-heading`, tabindex: "-1" }, heading), ...children);
}

function legend() {
  const kind = (look, words) => element("li", {}, element("span", { class: `sample ${look}`, "aria-hidden": "true" }, look === "unsure" ? "a" : "A"), words);
  return element("ul", { class: "legend" }, kind("sure", "theirs by 80 % or more"), kind("likely", "by 50 % or more"), kind("unsure", "by less: anybody’s"));
}

/** Jumps within the tab, and leaves the address alone. */
function jump(event) {
  event.preventDefault();
  document.getElementById("next").scrollIntoView();
  document.getElementById("next-heading").focus({ preventScroll: true });
}

/** The element that had the focus was drawn anew: its successor gets it, or else what the change says. */
function refocus(place, { key, focus }) {
  if (!key && !focus) return;
  const next = place.querySelector(key ? `.mark[data-key="${key}"]` : `[data-focus="${focus}"]`) ?? place.querySelector("[data-focus=undo], [data-focus=toggle]");
  next?.focus({ preventScroll: true });
}
