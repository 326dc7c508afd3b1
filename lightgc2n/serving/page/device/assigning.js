/**
 * Assigns sessions to people by the evidence about pairs of sessions, as `people/assigning.py` does.
 *
 * Evidence is log(p_same / p_other) of each pair: a symmetric matrix in rows, 0 on the diagonal.
 */

import { eigen } from "./eigen.js";
import { habitScores, habitTotal } from "./habits.js";

/**
 * Precomputes what the assignment needs for every number of people.
 *
 * @param {Float64Array[]} evidence
 * @param {number[]} size events of each session; a longer one counts more, by its root
 * @param {import("./finder.js").Constants} constants
 * @param {ReturnType<typeof import("./habits.js").habitsOf>} habits of the same sessions
 */
export function prepare(evidence, size, constants, habits) {
  const weight = size.map(Math.sqrt);
  const ratios = evidence.map((row) => row.map(Math.exp));
  ratios.forEach((row, at) => (row[at] -= 1)); // a session is no evidence about itself
  const weighted = evidence.map((row, at) => row.map((value, other) => value * Math.sqrt(weight[at] * weight[other])));
  const weights = habits?.weights ?? { fit: constants.fit_weight, sum: constants.sum_weight };
  return { constants, evidence, weight, ratios, weights, habits, spectrum: evidence.length > 1 ? eigen(weighted) : null };
}

/**
 * The share of each person in each session; rows sum to one.
 *
 * @param {ReturnType<typeof prepare>} prepared
 * @param {number} people how many there are
 * @returns {Float64Array[]}
 */
export function assign(prepared, people) {
  const { constants, evidence, weight, weights, habits } = prepared;
  // With so few sessions nothing shows that a person came twice.
  if (evidence.length <= people) return evidence.map((_, at) => unit(people, at));
  const start = spectralStart(prepared.spectrum, people, constants.centre_steps);
  let belongs = start.map((row) => row.map((share) => (1 - constants.doubt) * share + constants.doubt / people));
  for (let step = 0; step < constants.steps; step++) {
    const total = product(evidence, masses(belongs, weight));
    belongs = shares(fits(prepared, belongs), total, weights, habits && habitScores(habits, belongs));
  }
  return belongs;
}

/**
 * How likely the sessions are if each belongs to the person with the largest share.
 *
 * @param {ReturnType<typeof prepare>} prepared
 * @param {Float64Array[]} belongs
 */
export function likelihood(prepared, belongs) {
  const { evidence, weight, weights, habits } = prepared;
  const most = belongs.map((row) => unit(row.length, row.indexOf(Math.max(...row))));
  const [fitting, total] = [fits(prepared, most), product(evidence, masses(most, weight))];
  const pairs = most.map((row, at) => {
    const person = row.indexOf(1);
    return weights.fit * fitting[at][person] + (weights.sum / 2) * total[at][person];
  });
  return pairs.reduce((one, other) => one + other, 0) + habitTotal(habits, most);
}

/** Sessions grouped by the leading eigenvectors of the evidence, each scaled by the root of its value; 0 or 1. */
function spectralStart({ values, vectors }, people, centreSteps) {
  const leading = Array.from({ length: people }, (_, place) => values.length - people + place);
  const scales = leading.map((at) => Math.sqrt(Math.max(values[at], 0)));
  const points = Array.from(values, (_, session) => leading.map((at, place) => vectors[at][session] * scales[place]));
  const origin = [new Array(people).fill(0)];
  let centres = [points[farthest(points, origin)]];
  while (centres.length < people) centres.push(points[farthest(points, centres)]);
  let nearest = [];
  for (let step = 0; step < centreSteps; step++) {
    nearest = points.map((point) => smallest(centres.map((centre) => squaredDistance(point, centre))));
    centres = centres.map((_, person) => centreOf(points, nearest, person));
  }
  return nearest.map((person) => unit(people, person));
}

/** The place of the point whose nearest centre is farthest. */
function farthest(points, centres) {
  return smallest(points.map((point) => -Math.min(...centres.map((centre) => squaredDistance(point, centre)))));
}

function centreOf(points, nearest, person) {
  const own = points.filter((_, at) => nearest[at] === person);
  return points[0].map((_, axis) => own.reduce((sum, point) => sum + point[axis], 0) / Math.max(own.length, 1e-9));
}

function squaredDistance(one, other) {
  return one.reduce((sum, value, axis) => sum + (value - other[axis]) ** 2, 0);
}

/** The place of the smallest value, of equal ones the first. */
function smallest(values) {
  return values.reduce((best, value, at) => (value < values[best] ? at : best), 0);
}

function unit(length, place) {
  const row = new Float64Array(length);
  row[place] = 1;
  return row;
}

/**
 * How well each session fits each person's other sessions: log((sum of ratios + 1) / (sum of weights + 1)).
 *
 * @param {ReturnType<typeof prepare>} prepared
 * @param {Float64Array[]} belongs
 * @returns {Float64Array[]}
 */
export function fits(prepared, belongs) {
  const mass = masses(belongs, prepared.weight);
  const total = columnSums(mass);
  return product(prepared.ratios, mass).map((row, at) =>
    row.map((sum, person) => Math.log((sum + 1) / (total[person] - mass[at][person] + 1))),
  );
}

/**
 * The shares of further sessions, given those of the assigned ones: one mean-field step.
 *
 * @param {Float64Array[]} evidence of each pair of a further and an assigned session
 * @param {number[]} size events of each assigned session
 * @param {Float64Array[]} belongs the shares of these
 * @param {import("./finder.js").Constants} constants
 * @returns {Float64Array[]}
 */
export function assignOthers(evidence, size, belongs, constants) {
  const mass = masses(belongs, size.map(Math.sqrt));
  const total = columnSums(mass);
  const ratios = evidence.map((row) => row.map(Math.exp));
  const fit = product(ratios, mass).map((row) => row.map((sum, person) => Math.log((sum + 1) / (total[person] + 1))));
  const weights = { fit: constants.fit_weight, sum: constants.sum_weight };
  return shares(fit, product(evidence, mass), weights, null);
}

function shares(fit, total, weights, habits) {
  const score = (value, at, person) =>
    weights.fit * value + weights.sum * total[at][person] + (habits ? habits[at][person] : 0);
  return fit.map((row, at) => softmax(row.map((value, person) => score(value, at, person))));
}

/**
 * @param {ArrayLike<number>} scores
 * @returns {Float64Array} positive, with a sum of one
 */
export function softmax(scores) {
  const most = Math.max(...scores);
  const likely = Float64Array.from(scores, (score) => Math.exp(score - most));
  const sum = likely.reduce((one, other) => one + other, 0);
  return likely.map((value) => value / sum);
}

function masses(belongs, weight) {
  return belongs.map((row, at) => row.map((share) => share * weight[at]));
}

function columnSums(rows) {
  return rows.reduce((sums, row) => sums.map((sum, at) => sum + row[at]), new Float64Array(rows[0].length));
}

/** The product of two matrices. */
function product(left, right) {
  return left.map((row) => {
    const sums = new Float64Array(right[0].length);
    for (let at = 0; at < row.length; at++) {
      const value = row[at];
      const other = right[at];
      for (let column = 0; column < sums.length; column++) sums[column] += value * other[column];
    }
    return sums;
  });
}
