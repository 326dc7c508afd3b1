// Live quality by day as plots, and the decisions of the pipeline; both are refreshed while they are visible.

import { liveQuality } from "./api.js";
import { button, counted, element, failure, say, show, styled } from "./dom.js";

const AGAIN = 15_000; // milliseconds
const WEEK = 7; // days of the summary
const ROOM = 1.3; // height of a plot, relative to its highest line
const SHOWN = 10; // decisions that are shown; the others are folded
const METRICS = [
  ["mrr", "MRR@20", "the mean of 1 / place of what came next, among the first twenty"],
  ["rc", "RC@20", "what came next was among the first twenty"],
];
const KINDS = { first: "first model", promoted: "promoted", kept: "live model kept", rollback: "rolled back" };

/** A section that loads live quality; it stays hidden where the service has no store. */
export function liveSection() {
  const place = element("section", { class: "live", "aria-labelledby": "live-heading", hidden: true });
  const update = async (requested = false) => {
    try {
      const quality = await liveQuality();
      place.hidden = quality.recording === "off" && !quality.promotions.length;
      if (place.hidden || (!requested && place.contains(document.activeElement))) return; // the reader is in it
      draw(place, quality, () => update(true));
      if (!requested) return;
      place.querySelector("[data-focus]").focus({ preventScroll: true });
      say("Live quality is up to date.");
    } catch (problem) {
      place.hidden = false;
      show(
        place,
        failure(problem, () => update(true)),
      );
    }
  };
  const timer = setInterval(() => {
    if (!place.isConnected) clearInterval(timer);
    else if (!place.closest("[hidden]") && !document.hidden) update();
  }, AGAIN);
  update();
  return place;
}

function draw(place, quality, again) {
  const open = place.querySelector("details")?.open;
  const scored = quality.days.filter((day) => day.scored);
  const refresh = button("Refresh", again, { "data-focus": "refresh-live" });
  show(
    place,
    element(
      "div",
      { class: "live-head" },
      element("h2", { id: "live-heading", tabindex: "-1" }, "How good it is now"),
      refresh,
    ),
    ...(scored.length ? plots(scored, quality, open) : [element("p", { class: "empty" }, waitingFor(quality))]),
    quality.promotions.length ? decisions(quality.promotions) : null,
  );
}

function waitingFor(quality) {
  if (quality.recording === "off") return "This service has no store of events, so nothing is recorded.";
  return "No event has been scored yet.";
}

function plots(scored, quality, open) {
  const newest = scored.slice(-WEEK);
  const [own, simple] = ["model", "baseline"].map((name) => mean(newest, name, "mrr"));
  const share = total(quality.days, "scored") / Math.max(total(quality.days, "received"), 1);
  const sampled = `${count(total(quality.days, "scored"))} of ${count(total(quality.days, "received"))} events were scored (${per(share, 0)})`;
  return [
    element(
      "p",
      { class: "lead" },
      `Over ${newest.length === 1 ? "one day" : `the last ${newest.length} days`} its MRR@20 is ${per(own)}, `,
      `${own > simple ? "above" : own < simple ? "below" : "equal to"} the simple baseline’s ${per(simple)}.`,
    ),
    element("div", { class: "plots" }, METRICS.map((metric) => plot(metric, scored))),
    element(
      "ul",
      { class: "plot-legend" },
      key("own", "the model that was live, mean of seven days"),
      key("each", "on each day"),
      key("simple", `baseline, mean of seven days: ${quality.baseline}`),
      key("fresh", "a new model"),
    ),
    element(
      "p",
      { class: "hint" },
      "Before each event is stored, the live model and a simple baseline rank all items. ",
      `${sampled}${share < 0.995 ? ", a random sample under load." : "."}`,
    ),
    numbers(scored, open),
  ];
}

const key = (kind, words) =>
  element("li", {}, element("span", { class: `key ${kind}`, "aria-hidden": "true" }), words);

/** A column for each day: the bar is the model on that day, the lines are means of the week until then. */
function plot([metric, name, meaning], days) {
  const weeks = days.map((_, at) => days.slice(Math.max(0, at - WEEK + 1), at + 1));
  const highest = Math.max(...weeks.flatMap((week) => ["model", "baseline"].map((name) => mean(week, name, metric))));
  const most = Math.min(ROOM * highest, 1) || 1; // a day of a few questions may be higher, and is cut off
  const columns = days.map((day, at) => {
    const fresh = at > 0 && day.models.some((one) => !days[at - 1].models.includes(one));
    const title = `${day.day}: ${per(day.model[metric])}, baseline ${per(day.baseline[metric])}, ${counted(day.scored, "event")}`;
    const column = element("span", { class: "day", title }, fresh ? element("i", { class: "fresh" }) : null);
    return styled(column, {
      "--day": Math.min(day.model[metric] / most, 1),
      "--own": mean(weeks[at], "model", metric) / most,
      "--simple": mean(weeks[at], "baseline", metric) / most,
    });
  });
  const [first, last] = [days[0], days.at(-1)];
  const description = `${name} by day, from ${per(first.model[metric])} on ${first.day} to ${per(last.model[metric])} on ${last.day}; baseline ${per(first.baseline[metric])} and ${per(last.baseline[metric])}`;
  return element(
    "figure",
    { class: "live-plot" },
    element("figcaption", {}, element("strong", {}, name), ` ${meaning}`),
    element("p", { class: "top-value", "aria-hidden": "true" }, per(most)),
    element("div", { class: "days", role: "img", "aria-label": description }, columns),
    element(
      "p",
      { class: "ends", "aria-hidden": "true" },
      element("span", {}, first.day),
      days.length > 1 ? element("span", {}, last.day) : null,
    ),
  );
}

function numbers(days, open) {
  const row = (tag, cells) => element("tr", {}, cells.map((cell) => element(tag, {}, cell)));
  const head = row("th", ["Day", "Scored of received", "MRR@20", "Baseline", "RC@20", "Baseline"]);
  const rows = [...days]
    .reverse()
    .map((day) =>
      row("td", [
        day.day,
        `${count(day.scored)} of ${count(day.received)}`,
        ...METRICS.flatMap(([metric]) => [per(day.model[metric]), per(day.baseline[metric])]),
      ]),
    );
  return element(
    "details",
    { open },
    element("summary", {}, "Numbers by day"),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, rows))),
  );
}

/** Decisions of the pipeline, the newest first. */
function decisions(promotions) {
  const rows = [...promotions].reverse().map((one) =>
    element(
      "li",
      { class: one.kind },
      element("p", {}, element("strong", {}, `Round ${one.round}: ${KINDS[one.kind] ?? one.kind}`), ` · ${moment(one.at)}`),
      element("p", { class: "hint" }, describe(one)),
    ),
  );
  const list = (some) => element("ol", { class: "decisions", reversed: true }, some);
  return element(
    "div",
    { class: "history" },
    element("h3", {}, "Promotions"),
    list(rows.slice(0, SHOWN)),
    rows.length > SHOWN ? element("details", {}, element("summary", {}, "Earlier ones"), list(rows.slice(SHOWN))) : null,
  );
}

function describe({ reason, judged, model }) {
  const words = `${String(reason ?? "").replace(/^./, (letter) => letter.toUpperCase())}.`;
  const bundle = model ? ` Bundle ${model}.` : "";
  if (!judged) return words + bundle;
  const sign = judged.difference < 0 ? "−" : "+";
  return `${words} On ${counted(judged.questions, "event")} that neither model has seen: MRR@20 ${judged.mrr.toFixed(2)}\u00a0%, live ${judged.live_mrr.toFixed(2)}\u00a0% (${sign}${Math.abs(judged.difference).toFixed(2)}).${bundle}`;
}

const total = (days, name) => days.reduce((sum, day) => sum + day[name], 0);
const mean = (days, name, metric) =>
  days.reduce((sum, day) => sum + day.scored * day[name][metric], 0) / total(days, "scored");
const per = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const count = (value) => value.toLocaleString("en-GB");
const moment = (at) => `${String(at).slice(0, 16).replace("T", " ")} UTC`;
