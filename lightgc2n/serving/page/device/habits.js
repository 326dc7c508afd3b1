/**
 * Evidence from all sessions of a person together: tastes, weekdays and hours, as `people/habits.py` computes it.
 */

import { DAY, remainder } from "./times.js";

const HOUR = DAY / 24;
const HALF_LOG_OF_TWO_PI = 0.5 * Math.log(2 * Math.PI);

/**
 * @typedef {object} Counts how often sessions have each group, as a Dirichlet multinomial sees it
 * @property {[number, number][][]} cells for each session its groups and their counts
 * @property {Float64Array[]} spread the counts of each session, spread over groups that go together
 * @property {number} prior the weight of each group
 *
 * @typedef {object} Hours
 * @property {Float64Array[]} chance for each session the log probability of its hour for each type of people
 * @property {ArrayLike<number>} kinds the log probability of each type
 */

/**
 * The habits in these sessions; null if the finder has learned none.
 *
 * @param {import("./finder.js").Finder} finder
 * @param {import("./sessions.js").Session[]} sessions
 */
export function habitsOf({ habits, constants }, sessions) {
  if (!habits) return null;
  const { weights } = habits;
  const kinds = [{ weight: weights.taste, ...ofCounts(tastes(habits, sessions, constants.taste_prior)) }];
  if (sessions[0].time !== null) {
    const weekday = ({ time }) => remainder(Math.floor(time / DAY) + 3, 7); // the first day of 1970 was a Thursday
    const days = sessions.map(weekday);
    kinds.push({ weight: weights.weekday, ...ofCounts(weekdays(days, constants.weekday_prior)) });
    if (habits.hours) {
      const chance = sessions.map(({ time }, at) => {
        const hour = Math.floor(remainder(time, DAY) / HOUR) + (days[at] >= constants.weekend ? 24 : 0);
        return Float64Array.from(habits.kinds, (_, type) => habits.hours[type * 48 + hour]);
      });
      kinds.push({ weight: weights.hour, ...ofHours({ chance, kinds: Array.from(habits.kinds) }) });
    }
  }
  return { weights, kinds: kinds.filter(({ weight }) => weight) };
}

function tastes({ group, groups, together }, sessions, prior) {
  const counts = sessions.map(({ items }) => {
    const row = new Float64Array(groups);
    for (const item of items) if (group[item] < groups) row[group[item]] += 1;
    return row;
  });
  const cells = counts.map((row) => Array.from(row.entries()).filter(([, count]) => count > 0));
  const spread = cells.map((own) => {
    const row = new Float64Array(groups);
    for (const [from, count] of own) for (let to = 0; to < groups; to++) row[to] += count * together[from * groups + to];
    return row;
  });
  return { cells, spread, prior };
}

function weekdays(days, prior) {
  const spread = days.map((day) => Float64Array.from({ length: 7 }, (_, at) => Number(at === day)));
  return { cells: days.map((day) => [[day, 1]]), spread, prior };
}

/** log Γ of a positive number, by Stirling's series after three recursion steps. */
export function logGamma(value) {
  const above = value + 3;
  const series = (above - 0.5) * Math.log(above) - above + HALF_LOG_OF_TWO_PI + 1 / (12 * above);
  return series - Math.log(value * (value + 1) * (value + 2));
}

const sum = (values) => values.reduce((one, other) => one + other, 0);

/** For each person the sum of the rows, weighted by the share in each session. */
function sums(belongs, rows, first) {
  return Array.from(belongs[0], (_, person) => {
    const total = Float64Array.from(rows[0], (_, at) => first[at] ?? first);
    rows.forEach((row, at) => row.forEach((value, column) => (total[column] += belongs[at][person] * value)));
    return total;
  });
}

/** @param {Counts} counts */
function ofCounts({ cells, spread, prior }) {
  const sizes = spread.map(sum);
  const wide = spread[0].length;
  const nothing = logGamma(wide * prior) - wide * logGamma(prior);
  return {
    /** The log probability of each session given the others of each person. */
    scores(belongs) {
      const total = sums(belongs, spread, prior);
      const all = total.map(sum);
      return belongs.map((row, at) =>
        row.map((share, person) => {
          const rest = Math.max(all[person] - share * sizes[at], prior);
          let score = logGamma(rest) - logGamma(rest + sizes[at]);
          for (const [group, count] of cells[at]) {
            const others = Math.max(total[person][group] - share * spread[at][group], prior);
            score += logGamma(others + count) - logGamma(others);
          }
          return score;
        }),
      );
    },
    /** The log probability of all sessions of each person. */
    totals(belongs) {
      return sums(belongs, spread, prior).map((total) => nothing + sum(total.map(logGamma)) - logGamma(sum(total)));
    },
  };
}

/** @param {Hours} hours */
function ofHours({ chance, kinds }) {
  return {
    scores(belongs) {
      const total = sums(belongs, chance, kinds);
      return belongs.map((row, at) =>
        row.map((share, person) => {
          const scores = total[person].map((value, type) => value - share * chance[at][type]);
          const most = Math.max(...scores);
          const likely = scores.map((score) => Math.exp(score - most));
          return Math.log(sum(likely.map((value, type) => value * Math.exp(chance[at][type]))) / sum(likely));
        }),
      );
    },
    totals(belongs) {
      return sums(belongs, chance, kinds).map((total) => {
        const most = Math.max(...total);
        return most + Math.log(sum(total.map((value) => Math.exp(value - most))));
      });
    },
  };
}

/** The weighted log probability of each session given the others of each person. */
export function habitScores({ kinds }, belongs) {
  return kinds
    .map(({ weight, scores }) => scores(belongs).map((row) => row.map((score) => weight * score)))
    .reduce(added, belongs.map((row) => new Float64Array(row.length)));
}

const added = (one, other) => one.map((row, at) => row.map((value, column) => value + other[at][column]));

/** The weighted log probability of all sessions, if they belong to these people. */
export function habitTotal({ kinds }, belongs) {
  return sum(kinds.map(({ weight, totals }) => weight * sum(totals(belongs))));
}
