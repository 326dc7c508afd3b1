/**
 * Reads the people finder from the device part of a bundle.
 */

const MIDDLE = 128; // the byte that represents 0
const NIBBLE_MIDDLE = 8; // the four bits that represent 0

/** The constants of bundles that were written before `finder.json` had them. */
const FIRST_CONSTANTS = {
  "analysed_sessions": 2000,
  "centre_steps": 10,
  "doubt": 0.2,
  "farthest_count": 4,
  "farthest_pair": 6,
  "fit_weight": 3.0,
  "half_an_hour": 0.02,
  "landmarks": 64,
  "least_ratio": 0.02,
  "most_people": 5,
  "most_sessions": 300,
  "pair_shares": [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0],
  "same_person_share": 0.5,
  "steps": 20,
  "sum_weight": 0.1,
  "taste_prior": 0.1,
  "weekday_prior": 1.2,
  "weekend": 5
};

/**
 * @typedef {typeof FIRST_CONSTANTS} Constants as `finder_constants` of `load_bundle.py` explains them
 *
 * @typedef {object} Tables statistics of each item in the training logs
 * @property {number} width of a vector
 * @property {Float32Array} vectors row by row
 * @property {ArrayLike<number>} events the number of training events of each item
 * @property {ArrayLike<number> | null} first the day of its first event; Infinity for an item without events
 * @property {ArrayLike<number> | null} middle the mean of its days
 *
 * @typedef {object} Scale
 * @property {ArrayLike<number>} centre
 * @property {ArrayLike<number>} spread
 *
 * @typedef {object} Habits what is learned of habits from all accounts
 * @property {ArrayLike<number>} group of each item; `groups`: none
 * @property {number} groups how many there are
 * @property {ArrayLike<number>} together for each group those of another session of the person, row by row
 * @property {ArrayLike<number> | null} hours for each type of people the log probabilities of the hours of a working day
 *   and of a weekend
 * @property {ArrayLike<number>} kinds the log probability of each type
 * @property {{fit: number, sum: number, taste: number, weekday: number, hour: number}} weights of each kind of evidence
 *
 * @typedef {object} Finder
 * @property {Constants} constants
 * @property {number} catalogue the number of items
 * @property {number | null} gap microseconds; a longer pause begins a new session; null: logs without times
 * @property {Tables} tables
 * @property {Scale} traits
 * @property {Scale & {inward: ArrayLike<number>, threshold: ArrayLike<number>, outward: ArrayLike<number>,
 *   straight: ArrayLike<number>, constant: number, prior: number}} contrast a small network over pairs of sessions
 * @property {Habits | null} habits null in bundles of earlier versions
 * @property {Scale & {weights: ArrayLike<number>, caution: number}} count softmax regression over features
 */

/**
 * @param {object} facts `finder.json`
 * @param {Record<string, import("./safetensors.js").Stored>} arrays `finder.safetensors`
 * @returns {Finder}
 */
export function readFinder(facts, arrays) {
  const data = (name) => arrays[name].data;
  const scale = (name) => ({ centre: data(`${name}.centre`), spread: data(`${name}.spread`) });
  const network = Object.fromEntries(
    ["inward", "threshold", "outward", "straight"].map((name) => [name, data(`contrast.${name}`)]),
  );
  return {
    constants: { ...FIRST_CONSTANTS, ...facts.constants },
    catalogue: arrays["tables.events"].shape[1],
    gap: facts.gap,
    tables: {
      ...vectorsOf(arrays),
      events: data("tables.events"),
      first: arrays["tables.first"]?.data ?? null,
      middle: arrays["tables.middle"]?.data ?? null,
    },
    traits: scale("traits"),
    contrast: { ...scale("contrast"), ...network, constant: data("contrast.constant")[0], prior: facts.prior },
    habits: arrays["habits.group"] ? habitsOfArrays(arrays) : null,
    count: { ...scale("count"), weights: data("count.weights"), caution: facts.caution },
  };
}

function habitsOfArrays(arrays) {
  const data = (name) => arrays[`habits.${name}`]?.data ?? null;
  const [fit, sum, taste, weekday, hour] = data("weights");
  return {
    group: data("group"),
    groups: arrays["habits.together"].shape[1],
    together: data("together"),
    hours: data("hours"),
    kinds: data("kinds"),
    weights: { fit, sum, taste, weekday, hour },
  };
}

/** Float32 vectors, 4-bit vectors, or (schema 2) bytes with a scale for each row. */
function vectorsOf(arrays) {
  const { data, shape } = arrays["tables.vectors"];
  const [width, scales] = [shape[2], arrays["tables.scales"]?.data];
  if (!(data instanceof Uint8Array)) return { width, vectors: data };
  if (!scales) return { width: 2 * width, vectors: ofNibbles(data, width) };
  return { width, vectors: Float32Array.from(data, (byte, at) => (byte - MIDDLE) * scales[Math.floor(at / width)]) };
}

/** Unpacks unit or zero vectors; the lower bits hold the first half of a vector. */
function ofNibbles(packed, bytes) {
  const vectors = new Float32Array(2 * packed.length);
  for (let first = 0; first < packed.length; first += bytes) {
    const row = packed.subarray(first, first + bytes);
    const halves = [...row.map((byte) => byte & 15), ...row.map((byte) => byte >> 4)];
    const steps = halves.map((half) => half - NIBBLE_MIDDLE);
    const length = Math.sqrt(steps.reduce((sum, step) => sum + step * step, 0)) || 1;
    vectors.set(steps.map((step) => step / length), 2 * first);
  }
  return vectors;
}
