// The third tab: runs the model in this browser, measures it, and compares its list with the service's.

import { element, button, counted, failure, show, waiting } from "./dom.js";
import { fetched, findItems, peopleIf, recommend as askService } from "./api.js";
import { kept, question } from "./history.js";
import { inWords, nameOf } from "./words.js";

const K = 20;
const RUNS = 20;
const SAME_SCORE = 1e-5; // relative; items with closer scores may be in either order
const MEGABYTE = 1e6;

let opened = null; // the bundle, fetched once

/** Draws into `place`; `current` is the open account, or null. */
export async function drawBrowser(place, about, current) {
  const result = element("div", { class: "result", "aria-live": "polite" });
  show(place, heading(), result);
  try {
    const model = await about();
    if (!model.device) return show(result, howToGetIt());
    const query = await historyOf(current);
    if (opened) return await run(result, query);
    const start = button("Fetch the model and run it here", () => run(result, query), { class: "strong" });
    show(
      result,
      element(
        "p",
        { class: "hint" },
        "This fetches the model and onnxruntime-web from the service, about 15 MB, once.",
      ),
      element("p", { class: "row" }, start),
    );
  } catch (problem) {
    show(
      result,
      failure(problem, () => drawBrowser(place, about, current)),
    );
  }
}

function heading() {
  return element(
    "div",
    { class: "finding" },
    element("p", { class: "eyebrow" }, "On this device"),
    element("h1", {}, "The same model, inside this browser"),
    element(
      "p",
      { class: "lead" },
      "The model is small enough to run in a browser. The list is computed on this device; ",
      "the service is called only to compare.",
    ),
  );
}

function howToGetIt() {
  return element(
    "div",
    { class: "card howto" },
    element("h2", {}, "onnxruntime-web is not installed"),
    element(
      "p",
      {},
      "Browsers run the model with onnxruntime-web, which is not part of this package. In the project’s folder,",
    ),
    element("pre", { tabindex: "0" }, element("code", {}, "scripts/fetch-web")),
    element("p", {}, "fetches it with npm and checks it. Then start the service again."),
  );
}

/** The shown history, or a few items if there is none. */
async function historyOf(current) {
  const events = current ? kept(current.entries) : [];
  if (events.length)
    return {
      ...question(null, events, current.timed, K),
      whose: `the ${counted(events.length, "event")} of ${current.account ?? "your own history"}`,
    };
  const { items } = await findItems("", 3);
  return {
    history: items.map((one) => one.item),
    k: K,
    whose: `three items (no account is open): ${items.map(nameOf).join(", ")}`,
  };
}

async function open() {
  const [ort, { openBundle }] = await Promise.all([import("/ort/ort.wasm.min.mjs"), import("./device/bundle.js")]);
  const started = performance.now();
  const sizes = [];
  const get = async (address) => {
    const answer = await fetched(address.pathname);
    sizes.push(Number(answer.headers.get("content-length")));
    return answer;
  };
  const bundle = await openBundle("/device/", ort, get);
  return { bundle, milliseconds: performance.now() - started, bytes: sizes.reduce((sum, one) => sum + one, 0) };
}

async function run(place, query) {
  show(place, waiting("Fetching the model and starting it…"));
  try {
    opened ??= open();
    const { bundle, milliseconds, bytes } = await opened;
    const { history, k } = query;
    const { recommend } = await import("./device/recommend.js");
    let answer = await recommend(bundle, { history, k });
    const times = [];
    for (let turn = 0; turn < RUNS; turn += 1)
      times.push((answer = await recommend(bundle, { history, k })).milliseconds);
    const started = performance.now();
    const served = await askService({ history, k });
    const round = performance.now() - started;
    const facts = [
      ["A list here, median", time(median(times))],
      ["A list from the service, network included", time(round)],
      ["Starting the model", time(milliseconds)],
      ["Fetched for it", `${(bytes / MEGABYTE).toFixed(2)} MB`],
    ];
    show(
      place,
      numbers([...facts, ...(await people(bundle, query))]),
      verdict(answer, served),
      sideBySide(answer, served, query.whose),
    );
  } catch (problem) {
    opened = null;
    show(
      place,
      failure(problem.heading ? problem : { heading: "The model does not run here", message: problem.message }, () =>
        run(place, query),
      ),
    );
  }
}

const time = (milliseconds) => `${milliseconds.toFixed(milliseconds < 10 ? 2 : 0)}\u00a0ms`;
const median = (values) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];

/** The number of people that this browser estimates, beside the estimate of the service. */
async function people(bundle, query) {
  if (!bundle.finder || !query.times) return [];
  const [{ analysed, findPeople }, { numbersOf }] = await Promise.all([
    import("./device/people.js"),
    import("./device/recommend.js"),
  ]);
  const started = performance.now();
  const newest = analysed(bundle.finder, numbersOf(bundle, query.history).numbers, query.times);
  const here = findPeople(bundle.finder, newest.items, newest.times);
  const took = performance.now() - started;
  const { count } = await peopleIf({ history: query.history, times: query.times, k: 1 });
  const agreed = count === here.count ? "as the service says" : `the service says ${inWords(count)}`;
  return [
    ["Finding people here", time(took)],
    ["People found here", `${here.count}, ${agreed}`],
  ];
}

function numbers(facts) {
  return element(
    "dl",
    { class: "facts" },
    facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

/** Whether two lists are equal up to the order of items with nearly equal scores. */
export function compare(here, there) {
  const scores = new Map(there.map((one) => [one.item, one.score]));
  const differs = here.findIndex((one, place) => {
    const other = there[place];
    if (other?.item === one.item) return false;
    const score = scores.get(one.item) ?? one.score;
    return !other || Math.abs(score - other.score) > SAME_SCORE * Math.max(1, Math.abs(score), Math.abs(other.score));
  });
  const swapped = here.filter((one, place) => there[place]?.item !== one.item).length;
  const same = differs < 0 && here.length === there.length;
  return { same, from: same ? 0 : (differs < 0 ? here.length : differs) + 1, swapped };
}

function verdict(answer, served) {
  const { same, from, swapped } = compare(answer.items, served.items);
  const words = !same
    ? `The lists differ, from place ${from} on.`
    : swapped
      ? `The same list as the service’s, except for ${swapped} places with nearly equal scores.`
      : `The same list as the service’s, all ${answer.items.length} places.`;
  return element(
    "p",
    { class: same ? "verdict same" : "verdict other" },
    element("span", { "aria-hidden": "true" }, same ? "✓" : "≠"),
    words,
  );
}

function sideBySide(answer, served, whose) {
  const row = (one, place) =>
    element(
      "tr",
      {},
      element("td", {}, String(place + 1)),
      element("td", {}, nameOf(one)),
      element("td", {}, served.items[place] ? nameOf(served.items[place]) : ""),
    );
  return element(
    "figure",
    { class: "compared" },
    element("figcaption", {}, `For ${whose}`),
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Both lists" },
      element(
        "table",
        {},
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            ["Place", "This browser", "The service"].map((name) => element("th", { scope: "col" }, name)),
          ),
        ),
        element("tbody", {}, answer.items.map(row)),
      ),
    ),
  );
}
