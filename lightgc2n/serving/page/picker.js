// An autocomplete field for accounts and items.

import { element, say, show } from "./dom.js";

const PAUSE = 150; // milliseconds after the last keystroke

/**
 * A labelled field with suggestions.
 *
 * `find(text)` returns {options, total}, and `named(option)` returns [name, remark]; `chosen(option)` is called with the
 * choice.
 */
export function picker({ id, label, placeholder, find, named, chosen, nothing, clears = false }) {
  const list = element("ul", {
    id: `${id}-list`,
    class: "suggestions",
    role: "listbox",
    "aria-label": label,
    hidden: true,
  });
  const field = element("input", {
    id,
    type: "search",
    role: "combobox",
    placeholder,
    autocomplete: "off",
    spellcheck: "false",
    enterkeyhint: "go",
    "aria-expanded": "false",
    "aria-controls": list.id,
    "aria-autocomplete": "list",
  });
  let options = [],
    active = -1,
    latest = 0,
    timer = 0;

  const close = () => {
    latest += 1; // ignore responses to earlier requests
    clearTimeout(timer);
    list.hidden = true;
    active = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (option) => {
    field.value = clears ? "" : named(option)[0];
    close();
    chosen(option);
  };
  const mark = (place) => {
    active = place;
    [...list.querySelectorAll("[role=option]")].forEach((row, number) => {
      row.setAttribute("aria-selected", number === place);
      if (number === place) row.scrollIntoView({ block: "nearest" });
    });
    field.setAttribute("aria-activedescendant", `${id}-${place}`);
  };
  const open = async () => {
    const turn = (latest += 1);
    const text = field.value.trim();
    let results;
    try {
      results = await find(text);
    } catch (problem) {
      results = { options: [], total: 0, problem };
    }
    if (turn !== latest) return;
    options = results.options;
    active = -1;
    show(list, ...rows(results, text));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    say(results.problem?.message ?? (results.total ? `${results.total} found` : nothing(text)));
  };
  const rows = (results, text) => {
    if (results.problem) return [remark(results.problem.message)];
    if (!results.total) return [remark(nothing(text))];
    const shown = options.map((option, place) => {
      const [name, more] = named(option);
      return element(
        "li",
        {
          id: `${id}-${place}`,
          role: "option",
          "aria-selected": "false",
          onmousedown: (event) => event.preventDefault(),
          onclick: () => choose(option),
        },
        element("span", { class: "name" }, name),
        more ? element("span", { class: "more" }, more) : null,
      );
    });
    const left = results.total - options.length;
    return left > 0 ? [...shown, remark(`and ${left.toLocaleString("en-GB")} more: type to narrow down`)] : shown;
  };
  const keys = {
    ArrowDown: () => (list.hidden ? open() : mark((active + 1) % options.length)),
    ArrowUp: () => (list.hidden ? open() : mark((active + options.length - 1 + (active < 0)) % options.length)),
    Escape: close,
    Enter: () => {
      if (!list.hidden && options.length) choose(options[Math.max(active, 0)]);
      else open();
    },
  };
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(open, PAUSE);
  });
  field.addEventListener("click", () => list.hidden && open());
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    if (event.key.startsWith("Arrow") && !list.hidden && !options.length) return;
    event.preventDefault();
    keys[event.key]();
  });
  const box = element("div", { class: "picker" }, element("label", { for: id }, label), field, list);
  return { box, field };
}

const remark = (text) => element("li", { class: "remark", role: "presentation" }, text);
