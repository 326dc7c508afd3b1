/**
 * Recommends from a bundle in the browser, with the same results as Python.
 */

const NOTHING = -1n; // padding in place of an item number

/**
 * @typedef {object} Listed
 * @property {string} item
 * @property {string} [title]
 * @property {number} score orders this list; not comparable with other lists
 * @property {number} rank 1 is the best
 *
 * @typedef {object} Answer
 * @property {Listed[]} items best first
 * @property {boolean} fallback there is no history, so these are the most popular items
 * @property {string[]} notes
 * @property {number} milliseconds the duration of the computation
 *
 * @typedef {object} Wish
 * @property {string[]} history item ids, oldest first; ids that are not in the catalogue are left out
 * @property {number} [k] length of the list
 * @property {boolean} [excludeSeen] leave items of the history out
 * @property {string[]} [allow] the only items that may be listed
 * @property {string[]} [deny] items that may not be listed
 * @property {ArrayLike<number>} [account] the vector of a known account, for models with the input `account`
 * @property {string[]} [held] training items of that account besides its history, for models with the input `held`
 */

/**
 * The k best next items for a history.
 *
 * @param {import("./bundle.js").Bundle} bundle
 * @param {Wish} wish
 * @returns {Promise<Answer>}
 */
export async function recommend(bundle, { history, k = 20, excludeSeen = false, allow, deny, account, held = [] }) {
  const started = performance.now();
  const { numbers, missing } = numbersOf(bundle, history);
  const listed = mayBeListed(bundle, allow, deny, excludeSeen ? numbers : []);
  const best = numbers.length
    ? await ranked(bundle, { numbers, account, held: numbersOf(bundle, held).numbers }, listed, k)
    : popular(bundle, listed, k);
  const notes = [];
  if (missing.length) notes.push(`left out of the history, because not in ${bundle.config.data.name}: ${missing.join(", ")}`);
  if (!numbers.length) notes.push("no history: the most popular items");
  if (!best.length) notes.push("no item is left to list");
  const items = best.map(([number, score], place) => named(bundle, number, score, place + 1));
  return { items, fallback: !numbers.length, notes, milliseconds: performance.now() - started };
}

/**
 * The item numbers of known ids, and the unknown ids.
 *
 * @param {import("./bundle.js").Bundle} bundle
 * @param {string[]} ids
 */
export function numbersOf(bundle, ids) {
  const known = ids.filter((id) => bundle.index.has(id));
  const missing = [...new Set(ids.filter((id) => !bundle.index.has(id)))];
  return { numbers: known.map((id) => bundle.index.get(id)), missing };
}

function named(bundle, number, score, rank) {
  const item = bundle.items[number];
  return bundle.titles.has(item) ? { item, title: bundle.titles.get(item), score, rank } : { item, score, rank };
}

/** For each item whether it may be listed at all. */
function mayBeListed(bundle, allow, deny, seen) {
  const listed = new Uint8Array(bundle.items.length).fill(allow ? 0 : 1);
  for (const number of numbersOf(bundle, allow ?? []).numbers) listed[number] = 1;
  for (const number of [...numbersOf(bundle, deny ?? []).numbers, ...seen]) listed[number] = 0;
  return listed;
}

/** Pairs of item and score; items without training events fill the end of a short list. */
async function ranked(bundle, query, listed, k) {
  const learned = (number) => bundle.popularity[number] > 0;
  const first = await bestAmong(bundle, query, listed, learned, k);
  if (first.length >= Math.min(k, bundle.items.length)) return first;
  const others = await bestAmong(bundle, query, listed, (number) => !learned(number), k);
  return [...first, ...others].slice(0, k);
}

async function bestAmong(bundle, query, listed, among, k) {
  const { ort, session, config } = bundle;
  const handicap = Float32Array.from(listed, (may, number) => (may && among(number) ? 0 : -Infinity));
  const feeds = {
    history: longs(ort, query.numbers),
    handicap: new ort.Tensor("float32", handicap, [1, handicap.length]),
    k: new ort.Tensor("int64", BigInt64Array.of(BigInt(Math.min(k, handicap.length))), [1]),
  };
  if (session.inputNames.includes("account")) {
    const start = Float32Array.from(query.account ?? new Float32Array(config.account_width));
    feeds.account = new ort.Tensor("float32", start, [1, config.account_width]);
  }
  if (session.inputNames.includes("held")) feeds.held = longs(ort, query.held);
  const outputs = await session.run(feeds, ["best_scores", "best_items"]);
  const scores = Array.from(outputs.best_scores.data);
  if (scores.some((score) => Number.isNaN(score) || score === Infinity)) throw new Error("a score is not finite.");
  const pairs = Array.from(outputs.best_items.data, (item, place) => [Number(item), scores[place]]);
  return pairs.filter(([, score]) => score !== -Infinity);
}

/** One row of item numbers; one padding entry if there are none. */
function longs(ort, numbers) {
  const row = numbers.length ? BigInt64Array.from(numbers, BigInt) : BigInt64Array.of(NOTHING);
  return new ort.Tensor("int64", row, [1, row.length]);
}

function popular(bundle, listed, k) {
  const numbers = Array.from(bundle.popularity.keys()).filter((number) => listed[number]);
  numbers.sort((one, other) => bundle.popularity[other] - bundle.popularity[one] || one - other);
  return numbers.slice(0, k).map((number) => [number, bundle.popularity[number]]);
}
