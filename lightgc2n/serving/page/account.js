// The page of one account: its people and lists, and how they change with an edited history.

import { findItems, peopleIf, peopleOf, recommend, storeEvents } from "./api.js";
import { counted, element, failure, say, show, waiting } from "./dom.js";
import {
  entriesOf,
  eventsByKey,
  kept,
  lettersFor,
  listsOf,
  question,
  renamed,
  withAdded,
  withAgain,
  without,
} from "./history.js";
import { drawLists } from "./lists.js";
import {
  added,
  cards,
  chosenEvent,
  effect,
  hint,
  isEdited,
  jumps,
  lanes,
  legend,
  peopleHeading,
  remembered,
  section,
  seenBy,
  summary,
  whatIf,
} from "./parts.js";
import { picker } from "./picker.js";
import { drawTimeline } from "./timeline.js";
import { whoIsThere } from "./who.js";
import { headline, quoted, sureness } from "./words.js";

const K = 10;
const visit = Math.random().toString(36).slice(2); // an event that is sent twice is stored once
const LATER = "It is added as a separate session, a day after the newest one.";
const PARTS = ["summary", "people", "legend", "marks", "chosen", "later", "jump", "lists", "whatif"];

/**
 * Draws accounts into `place`. `about()` describes the model; `opened(account)` is called with the account that is shown,
 * `search()` to search for another.
 */
export function accountView(place, about, opened, search) {
  const parts = Object.fromEntries(PARTS.map((name) => [name, element("div", { class: `part-${name}` })]));
  let now = null; // the state that parts.js draws
  let keeps = false; // whether the service has a store for new events
  let turn = 0; // number of the newest request; older responses are discarded

  async function open(account) {
    const mine = (turn += 1);
    now = null;
    place.setAttribute("aria-busy", "true");
    show(place, waiting(`Asking who shares ${account}…`));
    try {
      const stored = renamed(await peopleOf(account, K), new Map());
      keeps = (await about().catch(() => null))?.store === "ok";
      if (mine !== turn) return;
      begin(
        account,
        stored,
        stored.events.some((event) => event.time),
      );
      opened(account);
      say(`${headline(stored, account)}. ${sureness(stored)}`);
    } catch (problem) {
      if (mine === turn) await openWithoutPeople(account, problem, mine);
    } finally {
      if (mine === turn) place.setAttribute("aria-busy", "false");
    }
  }

  /** Without a people finder only the account's list is shown. */
  async function openWithoutPeople(account, problem, mine) {
    const list = problem.code === "cannot_be_answered" ? await recommend({ account, k: K }).catch(() => null) : null;
    if (mine !== turn) return;
    if (list === null) {
      const unknown = problem.status === 404;
      const shown = unknown ? failure(problem, search, "Search for an account") : failure(problem, () => open(account));
      return show(place, shown);
    }
    const alone = { count: 0, people: [], together: null, account_list: list };
    const lists = drawLists(alone, null, () => new Set(), null);
    const notice = failure({ heading: `Account ${account}`, message: problem.message });
    show(place, notice, section("next", "What to show next", lists));
    opened(account);
  }

  /** Starts with an empty history, without an account. */
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
    const nothing = { start: null, past: [], chosen: null, zoom: null, problem: null };
    now = { ...nothing, keeps, account, timed, stored, base, answer: stored, entries: base };
    show(parts.marks); // without the timeline of another account, whose scroll position would be kept
    build();
    draw();
  }

  /** Requests the edited history and, for comparison, the unchanged one. */
  async function change(entries, sentence, past) {
    const mine = (turn += 1);
    const { account, timed, base, stored } = now;
    place.setAttribute("aria-busy", "true");
    try {
      const first = now.start ?? ask(account, base, timed).then((answer) => called(stored, base, base, answer));
      const [start, answer] = await Promise.all([first, ask(account, entries, timed)]);
      if (mine !== turn) return;
      now = { ...now, start, entries, past, problem: null };
      now.answer = isEdited(now) ? called(start, base, entries, answer) : stored;
      draw();
      say(isEdited(now) ? `${sentence} ${headline(now.answer, account)}. ${effect(now)}` : sentence);
    } catch (problem) {
      if (mine !== turn) return;
      now = { ...now, problem };
      draw();
    } finally {
      if (mine === turn) place.setAttribute("aria-busy", "false");
    }
  }

  const edit = (entries, sentence) => change(entries, sentence, [...now.past, now.entries]);
  const add = (item) => {
    const entries = withAdded(now.entries, item, now.timed, Date.now());
    now = { ...now, chosen: entries.at(-1).key }; // the panel below the timeline then shows it
    edit(entries, `${quoted(item)} was added.`);
  };
  const remove = (keys, sentence) => edit(without(now.entries, keys), sentence);
  const restore = (keys, sentence) => edit(withAgain(now.entries, keys), sentence);

  /** Stores the added events with the present time, then shows the stored account. */
  async function keep() {
    const { account } = now;
    const events = added(now).map(({ item, key }) => ({ account, item, id: `page-${visit}-${key}` }));
    try {
      await storeEvents(events);
      await open(account);
      say(`${counted(events.length, "event")} stored.`);
    } catch (problem) {
      redraw({ problem });
    }
  }

  const actions = {
    jump,
    keep,
    undo: () => change(now.past.at(-1), "Undone.", now.past.slice(0, -1)),
    reset: () => change(now.base, "Back to the history as it is stored.", []),
    removeSession: (keys) => remove(keys, "The session was forgotten."),
    forget: (letter, keys) => remove(keys, `Person ${letter} was forgotten: ${counted(keys.length, "event")} removed.`),
    bringBack: (letter, keys) => restore(keys, `Person ${letter} is back.`),
    toggle: (key) => {
      const entry = now.entries.find((one) => one.key === key);
      now = { ...now, chosen: key };
      if (entry.removed) restore([key], `${quoted(entry)} is back.`);
      else remove([key], `${quoted(entry)} was removed.`);
    },
  };

  function build() {
    parts.whatif.setAttribute("role", "region");
    parts.whatif.setAttribute("aria-label", "What if");
    const adding = element("div", {}, addition(add).box, parts.later);
    const tools = element("div", { class: "tools" }, parts.chosen, adding);
    show(
      place,
      parts.summary,
      section("people", "Who they are, and what to show each of them", parts.people),
      section("history", "Who did what", parts.legend, parts.marks, tools),
      whoIsThere(now),
      section(
        "next",
        "Full lists",
        hint("↻ this person had this item before; in a list for all, anybody had · + add this item to the history"),
        parts.jump,
        parts.lists,
      ),
      parts.whatif,
    );
  }

  function draw() {
    const focused = document.activeElement?.dataset ?? {};
    const earlier = isEdited(now) ? now.start : null;
    show(parts.summary, ...summary(now, () => open(now.account)));
    drawPeople();
    show(parts.legend, legend(now));
    drawMarks(focused.key);
    show(parts.later, now.timed && now.entries.length ? hint(LATER) : null);
    show(parts.chosen, ...chosenEvent(now, actions));
    show(parts.jump, jumps(listsOf(now.answer), "list"));
    show(
      parts.lists,
      drawLists(now.answer, earlier, (name) => seenBy(now, name), add),
    );
    show(parts.whatif, ...whatIf(now, actions));
    parts.whatif.hidden = !parts.whatif.hasChildNodes();
    refocus(place, focused);
  }

  /** Several people: their cards, and the full lists below. One person: the list beside the card. */
  function drawPeople() {
    const several = now.answer.count > 1;
    const whole = document.getElementById("next");
    document.getElementById("people-heading").textContent = peopleHeading(now);
    parts.people.classList.toggle("alone", !several);
    show(parts.people, jumps(listsOf(now.answer), "card"), cards(now, actions), several ? null : parts.lists);
    if (several) whole.append(parts.lists);
    whole.hidden = !several;
  }

  function drawMarks(current) {
    if (!now.entries.length) return show(parts.marks, element("p", { class: "empty" }, "Nothing here yet: the timeline appears once the history has an item."));
    drawTimeline(parts.marks, {
      entries: remembered(now),
      events: eventsByKey(now.entries, now.answer),
      lanes: lanes(now),
      chosen: now.chosen,
      current,
      zoom: now.zoom,
      choose: (key) => redraw({ chosen: key }),
      remove: actions.toggle,
      zoomTo: (zoom) => redraw({ zoom }),
    });
  }

  function redraw(more) {
    now = { ...now, ...more };
    draw();
  }

  let width = 0; // the timeline is as wide as the page
  new ResizeObserver(() => {
    if (now && parts.marks.clientWidth && parts.marks.clientWidth !== width) {
      const first = width === 0;
      width = parts.marks.clientWidth;
      if (!first) drawMarks();
    }
  }).observe(place);

  return { open, blank, current: () => now };
}

async function ask(account, entries, timed) {
  if (kept(entries).length) return peopleIf(question(account, entries, timed, K));
  const list = await recommend({ history: [], k: K });
  const nobody = { count: 0, confidence: 0, chances: [], events: [], people: [], sessions: [], together: null };
  return { ...nobody, account, account_list: list };
}

/** The response about `entries`, with the letters of people in the earlier response about `base`. */
function called(earlier, base, entries, answer) {
  return renamed(answer, lettersFor(eventsByKey(base, earlier), eventsByKey(entries, answer), answer.people));
}

function addition(add) {
  return picker({
    id: "add-item",
    label: "Add to the history",
    placeholder: "Search for an item",
    clears: true,
    find: async (text) => {
      const { items, total } = await findItems(text);
      return { options: items, total };
    },
    named: (item) => (item.title ? [item.title, item.item] : [item.item, null]),
    chosen: add,
    nothing: (text) => `No item contains “${text}”.`,
  });
}

/** Scrolls within the tab without changing the address. */
function jump(event) {
  event.preventDefault();
  const section = document.querySelector(".part-lists").closest("section");
  section.scrollIntoView();
  section.querySelector("h2").focus({ preventScroll: true });
}

/** Restores the focus after a redraw: to the same control, or to the one that undoes the change. */
function refocus(place, { key, focus }) {
  if (!key && !focus) return;
  const same = place.querySelector(key ? `.mark[data-key="${key}"]` : `[data-focus="${focus}"]`);
  const next = same ?? place.querySelector("[data-focus=undo], [data-focus=toggle]");
  next?.focus({ preventScroll: true });
}
