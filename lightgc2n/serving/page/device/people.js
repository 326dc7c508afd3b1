/**
 * How many people are behind a history, and who did what: as `people/finder.py` computes it, for histories that are not
 * in the training data.
 */

import { assign, assignOthers, fits, likelihood, prepare, softmax } from "./assigning.js";
import { eigenvalues } from "./eigen.js";
import { habitsOf } from "./habits.js";
import { describe, pairFeatures, sessionNumbers } from "./sessions.js";
import { microseconds } from "./times.js";

/**
 * @typedef {object} People
 * @property {number} count
 * @property {number} confidence the chance that the count is right
 * @property {number[]} chances the probabilities of one person, of two ...
 * @property {number[][]} share the probability of each person for each event; rows sum to one
 * @property {number[]} session the session id of each event
 */

/**
 * The newest sessions of a history, in which people are found.
 *
 * @param {import("./finder.js").Finder} finder
 * @param {number[]} items numbers of the items, oldest first
 * @param {(string | number)[] | null} [times] of each event; left out if the finder has no gap
 */
export function analysed(finder, items, times = null) {
  const session = sessionNumbers(checkedTimes(finder, items, times), items.length, finder.gap);
  const first = session.findIndex((number) => number > session.at(-1) - finder.constants.analysed_sessions);
  return { items: items.slice(first), times: times && times.slice(first) };
}

/**
 * The people behind a history.
 *
 * @param {import("./finder.js").Finder} finder
 * @param {number[]} items numbers of the items, oldest first
 * @param {(string | number)[] | null} [times] of each event, ISO or microseconds; left out if the finder has no gap
 * @returns {People}
 */
export function findPeople(finder, items, times = null) {
  const stamps = checkedTimes(finder, items, times);
  const session = sessionNumbers(stamps, items.length, finder.gap);
  const sessions = describe(finder, items, stamps, session);
  const places = sampled(sessions.length, finder.constants.most_sessions);
  const compared = places.map((place) => sessions[place]);
  const size = compared.map((one) => one.items.length);
  const prepared = prepare(evidenceWithin(finder, compared), size, finder.constants, habitsOf(finder, compared));
  const features = countFeatures(prepared, size, comeAgain(compared));
  const chances = atMost(countChances(finder, features), compared.length);
  const count = decide(chances, finder.count.caution);
  const share = withRest(finder, sessions, places, assign(prepared, count)).map((row) => Array.from(row));
  return {
    count,
    confidence: chances[count - 1],
    chances: Array.from(chances),
    share: session.map((number) => share[number]),
    session,
  };
}

/** The places of the sessions to compare: all of a short history; the newest half, and others at equal distances. */
function sampled(number, most) {
  if (number <= most) return Array.from({ length: number }, (_, place) => place);
  const newest = Math.floor(most / 2);
  const older = spread(number - newest, most - newest);
  return [...older, ...Array.from({ length: newest }, (_, place) => number - newest + place)];
}

/** `count` places at equal distances, the first one included. */
function spread(number, chosen) {
  return Array.from({ length: chosen }, (_, place) => Math.floor((place * number) / chosen));
}

/** The shares of all sessions; sessions that were not compared are assigned by their evidence with compared ones. */
function withRest(finder, sessions, places, assigned) {
  const all = new Array(sessions.length);
  places.forEach((place, at) => (all[place] = assigned[at]));
  const rest = Array.from(sessions.keys()).filter((place) => all[place] === undefined);
  const known = spread(places.length, Math.min(places.length, finder.constants.landmarks));
  const marks = known.map((at) => sessions[places[at]]);
  const size = marks.map((one) => one.items.length);
  const evidence = rest.map((place) => Float64Array.from(marks, (mark) => pairEvidence(finder, sessions[place], mark)));
  const shares = assignOthers(evidence, size, known.map((at) => assigned[at]), finder.constants);
  rest.forEach((place, at) => (all[place] = shares[at]));
  return all;
}

/**
 * The same people, those with the most events first; this order gives them their letters.
 *
 * @param {People} people
 * @returns {People}
 */
export function byWeight(people) {
  const total = (person) => people.share.reduce((sum, row) => sum + row[person], 0);
  const totals = Array.from({ length: people.count }, (_, person) => total(person));
  const events = totals.map(() => 0);
  for (const row of people.share) events[row.indexOf(Math.max(...row))] += 1;
  const order = Array.from(totals.keys()).sort(
    (one, other) => events[other] - events[one] || totals[other] - totals[one] || one - other,
  );
  return { ...people, share: people.share.map((row) => order.map((person) => row[person])) };
}

function checkedTimes(finder, items, times) {
  if (!items.length || items.some((item) => !(item >= 0 && item < finder.catalogue))) {
    throw new Error(`a history needs events, of items 0 to ${finder.catalogue - 1}.`);
  }
  if (finder.gap === null) return null;
  const stamps = times?.map(microseconds);
  if (stamps?.length !== items.length || stamps.some((time, at) => at > 0 && time < stamps[at - 1])) {
    throw new Error("a history needs a time for each event, oldest first: the finder was trained on logs with times.");
  }
  return stamps;
}

function evidenceWithin(finder, sessions) {
  const evidence = sessions.map(() => new Float64Array(sessions.length));
  for (let one = 0; one < sessions.length; one++) {
    for (let other = one + 1; other < sessions.length; other++) {
      evidence[one][other] = evidence[other][one] = pairEvidence(finder, sessions[one], sessions[other]);
    }
  }
  return evidence;
}

/** log(p_same / p_other) of a pair of sessions. */
function pairEvidence(finder, one, other) {
  const { constants } = finder;
  const odds = logOdds(finder.contrast, pairFeatures(one, other, constants), constants.farthest_pair);
  return Math.log(Math.max(1 + Math.expm1(odds) / constants.same_person_share, constants.least_ratio));
}

/** The logit that a pair of sessions is of one account, with equal priors: one hidden layer plus a linear term. */
function logOdds({ centre, spread, inward, threshold, outward, straight, constant, prior }, features, farthest) {
  const row = features.map((value, at) => Math.fround(clip((value - centre[at]) / spread[at], farthest)));
  const width = threshold.length;
  let sum = constant - prior;
  for (let unit = 0; unit < width; unit++) {
    let inside = threshold[unit];
    for (let at = 0; at < row.length; at++) inside += row[at] * inward[at * width + unit];
    sum += Math.tanh(inside) * outward[unit];
  }
  return row.reduce((total, value, at) => total + value * straight[at], sum);
}

const clip = (value, most) => Math.min(Math.max(value, -most), most);

/** The share of items that an earlier session has too, counting each item once a session. */
function comeAgain(sessions) {
  const held = sessions.flatMap((one) => Array.from(one.held));
  return 1 - new Set(held).size / held.length;
}

/** The features of an account from which people are counted; the length of its log is not one of them. */
function countFeatures(prepared, size, again) {
  const { constants, evidence } = prepared;
  const sessions = evidence.length;
  const pairs = evidence.flatMap((row, at) => Array.from(row.subarray(at + 1)));
  if (!pairs.length) pairs.push(0);
  const likely = constants.pair_shares.map((share) => mean(pairs.map((pair) => Math.log1p(share * Math.expm1(pair)))));
  const values = Array.from(eigenvalues(evidence)).reverse();
  const spectrum = Array.from({ length: constants.most_people }, (_, at) => (values[at] ?? 0) / sessions);
  const agreements = spectrum.map((_, at) => agreement(prepared, at + 1));
  return [
    mean(pairs),
    deviation(pairs),
    constants.pair_shares[likely.indexOf(Math.max(...likely))],
    ...likely,
    ...spectrum,
    ...steps(agreements.map(({ inside }) => inside)),
    ...steps(agreements.map(({ fit }) => fit)),
    deviation(size.map(Math.log)),
    Math.log1p(100 * again),
    ...(prepared.habits ? steps(agreements.map(({ likely }) => likely / sessions)).slice(1) : []),
  ];
}

/** The evidence within people and the fit of sessions to people, per session, for this number of people. */
function agreement(prepared, people) {
  const belongs = assign(prepared, people);
  const fitting = fits(prepared, belongs);
  let [inside, fit] = [0, 0];
  belongs.forEach((row, one) => {
    row.forEach((share, person) => {
      fit += fitting[one][person] * share;
      let others = 0;
      for (let other = 0; other < belongs.length; other++) others += prepared.evidence[one][other] * belongs[other][person];
      inside += share * others;
    });
  });
  const likely = prepared.habits ? likelihood(prepared, belongs) : 0;
  return { inside: inside / belongs.length, fit: fit / belongs.length, likely };
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

const deviation = (values) => {
  const average = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - average) ** 2)));
};

/** The differences of consecutive values. */
const steps = (values) => values.map((value, at) => value - (at > 0 ? values[at - 1] : 0));

/** The probabilities of one person, of two ...: softmax regression on features and their squares. */
function countChances({ count: { centre, spread, weights }, constants }, features) {
  const { most_people: people, farthest_count: farthest } = constants;
  const known = features.slice(0, centre.length); // older bundles have fewer features
  const scaled = known.map((value, at) => clip((value - centre[at]) / spread[at], farthest));
  const row = [1, ...scaled, ...scaled.map((value) => (value ** 2 - 1) / 2)];
  const score = (person) => row.reduce((sum, value, at) => sum + value * weights[at * people + person], 0);
  return softmax(Array.from({ length: people }, (_, person) => score(person)));
}

/** The chances given that there are at most this many people. */
function atMost(chances, most) {
  const possible = chances.map((chance, at) => (at < most ? chance : 0));
  const sum = possible.reduce((one, other) => one + other, 0);
  return possible.map((chance) => chance / sum);
}

/** The most probable count, with a bias towards one person. */
function decide(chances, caution) {
  const scores = Array.from(chances, (chance, at) => Math.log(chance + 1e-12) + (at === 0 ? caution : 0));
  return scores.indexOf(Math.max(...scores)) + 1;
}
