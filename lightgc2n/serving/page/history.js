// An editable history, and the effect of an edit on people and lists. No DOM and no requests here.
//
// An entry is {key, item, title, category, time, session, added, removed}. A removed entry stays in its place, so that it can be
// restored, and is left out of requests.

const MINUTE = 60_000,
  DAY = 86_400_000;
let additions = 0; // counted, so that every added entry has its own key

/** The entries of a response. */
export function entriesOf(answer) {
  return answer.events.map((event, place) => ({
    key: `e${place}`,
    item: event.item,
    title: event.title,
    category: event.categories?.[0] ?? null,
    time: event.time ?? null,
    session: answer.sessions[place],
    added: false,
    removed: false,
  }));
}

export const kept = (entries) => entries.filter((entry) => !entry.removed);

export function without(entries, keys) {
  const gone = new Set(keys);
  return entries.flatMap((entry) => {
    if (!gone.has(entry.key)) return [entry];
    return entry.added ? [] : [{ ...entry, removed: true }];
  });
}

export function withAgain(entries, keys) {
  const back = new Set(keys);
  return entries.map((entry) => (back.has(entry.key) ? { ...entry, removed: false } : entry));
}

/** The entries and a new newest event: in its own session a day later, or in an added session five minutes later. */
export function withAdded(entries, { item, title, categories }, timed, now) {
  const last = entries.at(-1);
  const session = last?.added ? last.session : "added";
  const key = `a${(additions += 1)}`;
  const time = timed ? timeAfter(last, now) : null;
  return [...entries, { key, item, title, category: categories?.[0] ?? null, time, session, added: true, removed: false }];
}

function timeAfter(last, now) {
  if (!last) return written(now, true);
  const hours = last.time.length > 10;
  const step = last.added ? (hours ? 5 * MINUTE : 0) : DAY;
  return written(moment(last.time) + step, hours);
}

/** Milliseconds of a time as the service writes it, in the time zone of the log. */
export const moment = (time) => Date.parse(`${time.replace(" ", "T").padEnd(16, "T00:00")}:00Z`);

const written = (milliseconds, hours) =>
  new Date(milliseconds)
    .toISOString()
    .slice(0, hours ? 16 : 10)
    .replace("T", " ");

/** The request for the people behind these entries. */
export function question(account, entries, timed, k) {
  const events = kept(entries);
  const request = { history: events.map((entry) => entry.item), k };
  if (account !== null) request.account = account;
  if (timed) request.times = events.map((entry) => entry.time);
  return request;
}

/** The event of each entry in the response, which has only the newest events of a long history. */
export function eventsByKey(entries, answer) {
  const newest = answer.events.length ? kept(entries).slice(-answer.events.length) : [];
  return new Map(newest.map((entry, place) => [entry.key, answer.events[place]]));
}

/**
 * New letter -> letter to show, so that a person keeps their letter when others go.
 *
 * A person keeps the letter of the earlier person with whom they share most events. Without shared events they get an
 * unused letter.
 */
export function lettersFor(before, after, people) {
  const shared = new Map();
  for (const [key, event] of after) {
    const was = before.get(key)?.person;
    if (was) shared.set(`${event.person}${was}`, (shared.get(`${event.person}${was}`) ?? 0) + 1);
  }
  const letters = new Map(),
    taken = new Set();
  for (const [pair] of [...shared].sort((one, other) => other[1] - one[1])) {
    const [now, was] = pair;
    if (letters.has(now) || taken.has(was)) continue;
    letters.set(now, was);
    taken.add(was);
  }
  const used = new Set([...before.values()].map((event) => event.person));
  const free = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].filter((letter) => !used.has(letter));
  for (const { name } of people) if (!letters.has(name)) letters.set(name, free.shift());
  return letters;
}

/** The same response with the letters to show as the names of people. */
export function renamed(answer, letters) {
  const called = (name) => letters.get(name) ?? name;
  const people = answer.people.map((person, place) => ({ ...person, name: called(person.name), place }));
  const order = answer.people.map((person) => called(person.name));
  const events = answer.events.map((event) => ({ ...event, person: called(event.person), order }));
  return { ...answer, events, people: people.sort((one, other) => one.name.localeCompare(other.name)) };
}

/** For each item the number of places it moved up (negative: down) or "new", and the items that left the list. */
export function moves(before, after) {
  if (!before) return { moved: new Map(), gone: [] };
  const ranks = new Map(before.items.map((one) => [one.item, one.rank]));
  const moved = new Map();
  for (const one of after.items) {
    if (!ranks.has(one.item)) moved.set(one.item, "new");
    else if (ranks.get(one.item) !== one.rank) moved.set(one.item, ranks.get(one.item) - one.rank);
  }
  const still = new Set(after.items.map((one) => one.item));
  return { moved, gone: before.items.filter((one) => !still.has(one.item)) };
}

/** The lists of a response by name, in the order of display. */
export function listsOf(answer) {
  const lists = answer.people.map((person) => [person.name, person.next]);
  if (answer.together) lists.push(["together", answer.together]);
  // With one person, their list is the account's list, so it is shown once.
  return new Map(answer.count === 1 ? lists : [...lists, ["account", answer.account_list]]);
}
