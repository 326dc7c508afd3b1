// The page: tabs, the address, the key, and the search for an account.

import { aboutModel, findAccounts, keysComeFrom, population } from "./api.js";
import { accountView } from "./account.js";
import { button, counted, element, failure, show } from "./dom.js";
import { drawBrowser } from "./browser.js";
import { drawModel } from "./model.js";
import { populationChart } from "./people.js";
import { picker } from "./picker.js";
import { exampleOf } from "./words.js";

const SUGGESTED = 6;
const part = (id) => document.getElementById(id);

keysComeFrom(askForKey);
let known = null; // the response of /v1/model
const about = () =>
  (known ??= aboutModel().catch((problem) => {
    known = null;
    throw problem;
  }));

const view = accountView(
  part("account"),
  about,
  (account) => {
    const address = `#account/${encodeURIComponent(account)}`;
    if (location.hash !== address) history.replaceState(null, "", address);
    document.title = `${account} · Who shares this account?`;
  },
  () => search.field.focus(),
);

function open(account) {
  part("find-account").classList.add("found");
  search.field.value = account;
  view.open(account);
}

const openers = {
  account: () => {},
  model: () => {
    known = null; // the service may have loaded another bundle
    drawModel(part("panel-model"), about);
  },
  browser: () => drawBrowser(part("panel-browser"), about, view.current()),
};

function select(name, focus = false) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) tab.focus();
    part(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  openers[name]();
}

function go(name, focus) {
  const account = view.current()?.account;
  const address = name === "account" && account ? `#account/${encodeURIComponent(account)}` : `#${name}`;
  history.replaceState(null, "", address);
  select(name, focus);
}

function listenToTabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const step = { ArrowRight: 1, ArrowLeft: -1 };
  for (const tab of all) {
    tab.addEventListener("click", () => go(tab.id.slice(4)));
    tab.addEventListener("keydown", (event) => {
      if (!(event.key in step)) return;
      event.preventDefault();
      const tabs = all.filter((one) => !one.hidden);
      go(tabs[(tabs.indexOf(tab) + step[event.key] + tabs.length) % tabs.length].id.slice(4), true);
    });
  }
}

/** The tab and the account of the address: #tab or #account/ID. */
function follow() {
  const [name, account] = location.hash.slice(1).split("/");
  if (!Object.hasOwn(openers, name)) return;
  select(name);
  const wanted = name === "account" && account ? decoded(account) : null;
  if (wanted && view.current()?.account !== wanted) open(wanted);
}

/** Decodes a name of the address; an invalid encoding is returned unchanged. */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

const search = picker({
  id: "account-search",
  label: "Account",
  placeholder: "Search for an account",
  find: async (text) => {
    const { accounts, total } = await findAccounts(text);
    return { options: accounts, total };
  },
  named: (one) => [one.account, counted(one.events, "event")],
  chosen: (one) => open(one.account),
  nothing: (text) => (text ? `No account contains “${text}”.` : "This service holds no accounts."),
});
search.field.addEventListener("focus", () => search.field.select());

function drawSearch() {
  const intro = element(
    "div",
    { class: "intro" },
    element("h1", {}, "Who shares this account?"),
    element(
      "p",
      { class: "lead" },
      "A family’s account mixes what several people watch or buy. Pick one: you see how many people are probably ",
      "behind it, who did what, and what to show each of them next.",
    ),
  );
  const blank = button(
    "or start with an empty history",
    () => {
      part("find-account").classList.add("found");
      view.blank();
    },
    { class: "link" },
  );
  const suggestions = element("div", { class: "suggested" });
  const chart = element("div", { class: "crowd" });
  show(part("find-account"), intro, search.box, suggestions, element("p", { class: "blank" }, blank), chart);
  return { suggestions, chart };
}

/** The population and example accounts, or the first accounts where the bundle has no such summary. */
async function suggest({ suggestions, chart }) {
  try {
    const summary = await population();
    if (summary.accounts) show(chart, populationChart(summary));
    if (summary.examples.length)
      return chips(
        suggestions,
        "For example",
        summary.examples.map((one) => [one.account, exampleOf(one), one.account, `, ${counted(one.events, "event")}`]),
      );
    const { accounts, total } = await findAccounts("", SUGGESTED);
    if (total) {
      const rows = accounts.map((one) => [one.account, one.account, counted(one.events, "event")]);
      return chips(suggestions, `A few of ${total.toLocaleString("en-GB")}`, rows);
    }
    const none = "This service holds no accounts’ histories. You can still build a history of your own:";
    show(suggestions, element("p", { class: "empty" }, none));
  } catch (problem) {
    show(
      suggestions,
      failure(problem, () => suggest({ suggestions, chart })),
    );
  }
}

/** Buttons that open accounts; `rows` are [account, words, remark, more for wide screens]. */
function chips(place, label, rows) {
  show(
    place,
    element("p", { id: "suggested-label" }, label),
    element(
      "ul",
      { class: "chips", "aria-labelledby": "suggested-label" },
      rows.map(([account, words, remark, more]) =>
        element(
          "li",
          {},
          element(
            "button",
            { type: "button", onclick: () => open(account), "data-account": account },
            words,
            element("span", { class: "more" }, remark, more ? element("span", { class: "size" }, more) : null),
          ),
        ),
      ),
    ),
  );
}

function askForKey(wrong) {
  const dialog = part("key"),
    field = part("key-field");
  part("key-wrong").textContent = wrong ? "The service does not accept this key." : "";
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "use" ? field.value : null), { once: true });
  });
}

/** Highlights the same item in the other lists while the pointer is on it. */
function lightUpTwins() {
  const light = (event) => {
    const item = event.target.closest?.("[data-item]")?.dataset.item;
    for (const one of document.querySelectorAll(".twin")) one.classList.remove("twin");
    if (item === undefined) return;
    for (const one of document.querySelectorAll("[data-item]")) one.classList.toggle("twin", one.dataset.item === item);
  };
  document.addEventListener("pointerover", light);
  document.addEventListener("focusin", light);
}

part("key-cancel").addEventListener("click", () => part("key").close());
listenToTabs();
lightUpTwins();
suggest(drawSearch());
follow();
addEventListener("hashchange", follow);
// Without onnxruntime-web, or with a bundle that no browser can run, there is nothing to show in the third tab.
about()
  .then((model) => {
    if (model.device) part("tab-browser").hidden = false;
  })
  .catch(() => {});
