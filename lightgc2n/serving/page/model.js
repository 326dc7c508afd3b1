// The second tab: the model card, and the report of experiments where the service has one.

import { element, failure, show, waiting } from "./dom.js";
import { rendered } from "./markdown.js";

/** Draws into `place` what `about()` tells of the model. */
export async function drawModel(place, about) {
  show(place, waiting("Asking the service about its model…"));
  try {
    const model = await about();
    show(
      place,
      heading(model),
      facts(model),
      element("article", { class: "card", "aria-label": "Model card" }, rendered(model.card, 1)),
      report(model),
    );
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
    element("p", { class: "eyebrow" }, "What answers here"),
    element("h1", {}, `${model.model}, trained on ${model.dataset}`),
  );
}

function facts(model) {
  const measured = ["RC@5", "RC@20", "MRR@20"].filter((name) => name in (model.metrics?.values ?? {}));
  const rows = [
    ...measured.map((name) => [name, `${(100 * model.metrics.values[name]).toFixed(2)}\u00a0%`]),
    ["Items", number(model.items)],
    ["Accounts", number(model.accounts)],
    ["Tells people apart", model.people ? "yes" : "no"],
    ["Bundle", String(model.checksum).slice(0, 12)],
    ["Schema", String(model.schema)],
  ];
  return element(
    "dl",
    { class: "facts" },
    rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

const number = (value) => (typeof value === "number" ? value.toLocaleString("en-GB") : String(value));

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
