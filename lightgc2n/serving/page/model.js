// The second tab: how good the model is beside the best simple baseline, its card, and the report where there is one.

import { element, failure, show, styled, waiting } from "./dom.js";
import { liveSection } from "./live.js";
import { rendered } from "./markdown.js";

const MEANINGS = {
  "RC@5": "the right item is among the first five",
  "RC@20": "the right item is among the first twenty",
  "MRR@5": "the mean of 1 / place of the right item, among the first five",
  "MRR@20": "the mean of 1 / place of the right item, among the first twenty",
};
const FOLDED = ["Data", "Protocol", "Metrics", "Settings", "Files", "Versions"]; // parts of the card that few readers need

/** Draws the description of the model, which `about()` returns, into `place`. */
export async function drawModel(place, about) {
  show(place, waiting("Asking the service about its model…"));
  try {
    const model = await about();
    show(place, heading(model), liveSection(), quality(model), facts(model), card(model), report(model));
  } catch (problem) {
    show(
      place,
      failure(problem, () => drawModel(place, about)),
    );
  }
}

function heading(model) {
  return element(
    "div",
    { class: "finding" },
    element("p", { class: "eyebrow" }, "The model that answers here"),
    element("h1", {}, `${model.model}, trained on ${model.dataset}`),
  );
}

/** The metrics as pairs of bars: the model, and the best simple baseline where it was measured. */
function quality(model) {
  const { values = {}, baseline = null, targets = null } = model.metrics ?? {};
  const names = Object.keys(MEANINGS).filter((name) => name in values);
  if (!names.length) return null;
  const most = Math.max(...names.flatMap((name) => [values[name], baseline?.values[name] ?? 0]));
  const bar = (kind, who, value) =>
    element(
      "div",
      { class: `score ${kind}` },
      element("span", { class: "who" }, who),
      styled(element("span", { class: "bar", "aria-hidden": "true" }), { "--share": value / (most || 1) }),
      element("span", { class: "number" }, `${(100 * value).toFixed(2)}\u00a0%`),
    );
  const rows = names.map((name) =>
    element(
      "li",
      {},
      element("p", {}, element("strong", {}, name), ` ${MEANINGS[name]}`),
      bar("own", model.model, values[name]),
      baseline ? bar("simple", baseline.name, baseline.values[name]) : null,
    ),
  );
  const tested = targets ? ` Measured on ${number(targets)} test events, ranking all items.` : "";
  return element(
    "section",
    { class: "quality", "aria-labelledby": "quality-heading" },
    element("h2", { id: "quality-heading" }, "How good it is"),
    element("p", { class: "lead" }, verdict(model, baseline)),
    element("ul", { class: "scores" }, rows),
    element("p", { class: "hint" }, `A simple baseline only counts events, for example to list the most popular items.${tested}`),
  );
}

function verdict(model, baseline) {
  if (!baseline)
    return "No simple baseline was measured on the same events, so there is nothing to compare these numbers with. Export a run of lightgc2n compare to see a baseline here.";
  const [own, other] = [model.metrics.values["MRR@20"], baseline.values["MRR@20"]];
  const by = `${(100 * Math.abs(own / other - 1)).toFixed(0)}\u00a0%`;
  return own > other
    ? `Its MRR@20 is ${by} above the best simple baseline, ${baseline.name}.`
    : `Its MRR@20 is ${by} below the best simple baseline, ${baseline.name}: use that rule instead, or train for longer.`;
}

function facts(model) {
  const rows = [
    ["Items", number(model.items)],
    ["Accounts", number(model.accounts)],
    ["Tells people apart", model.people ? "yes" : "no"],
    ["Bundle", String(model.checksum).slice(0, 12)],
  ];
  return element(
    "dl",
    { class: "facts" },
    rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

const number = (value) => (typeof value === "number" ? value.toLocaleString("en-GB") : String(value));

/** The model card; long lists of raw values are folded. */
function card(model) {
  const made = element("article", { class: "card", "aria-label": "Model card" });
  let into = made;
  for (const part of rendered(model.card, 1)) {
    if (/^H[1-3]$/.test(part.tagName)) {
      into = made;
      if (FOLDED.includes(part.textContent)) {
        into = element("details", {}, element("summary", {}, part));
        made.append(into);
        continue;
      }
    }
    into.append(part);
  }
  return made;
}

function report(model) {
  if (!model.report) {
    return element(
      "section",
      { class: "report" },
      element("h2", {}, "Experiments"),
      element(
        "p",
        { class: "empty" },
        "This service was started without a report. ",
        element("code", {}, "lightgc2n serve BUNDLE --report report.html"),
        " shows one here.",
      ),
    );
  }
  return element(
    "section",
    { class: "report" },
    element("h2", {}, "Experiments"),
    element("p", {}, element("a", { href: "/report", target: "_blank", rel: "noopener" }, "Open the report by itself")),
    element("iframe", { src: "/report", title: "Report of the experiments", sandbox: "", loading: "lazy" }),
  );
}
