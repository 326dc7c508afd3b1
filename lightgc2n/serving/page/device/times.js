/**
 * Parses times of events into microseconds since 1970.
 */

export const HOUR = 3600e6;
export const DAY = 24 * HOUR;
const WRITTEN =
  /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,6})\d*)?)?(Z|[+-]\d\d:?\d\d)?)?$/;

/**
 * Microseconds of an ISO date in the log's own time zone, or in UTC if a zone is given.
 *
 * @param {string | number} time a number already is in microseconds
 * @returns {number}
 */
export function microseconds(time) {
  if (typeof time === "number") return time;
  const match = WRITTEN.exec(time);
  if (!match) throw new Error(`expected an ISO date like 2024-05-01 20:15, found ${JSON.stringify(time)}`);
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part ?? 0));
  const whole = Date.UTC(year, month - 1, day, hour, minute, second);
  return whole * 1000 + Number((match[7] ?? "0").padEnd(6, "0")) - offset(match[8]);
}

/** The offset of a time zone from UTC. */
function offset(zone) {
  if (!zone || zone === "Z") return 0;
  const minutes = 60 * Number(zone.slice(1, 3)) + Number(zone.slice(-2));
  return (zone[0] === "-" ? -1 : 1) * minutes * 60e6;
}

/** The nonnegative remainder. */
export const remainder = (value, by) => ((value % by) + by) % by;
