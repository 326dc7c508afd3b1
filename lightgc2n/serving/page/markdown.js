// As much Markdown as model cards use: headings, paragraphs, lists, tables, code. It makes text, never markup.

import { element } from "./dom.js";

/** The elements of a text. `level` is added to headings, so that a card stands below the page's own. */
export function rendered(text, level = 0) {
  const lines = text.split(/\r?\n/);
  const elements = [];
  let place = 0;
  const taken = (fits) => {
    const from = place;
    while (place < lines.length && fits(lines[place])) place += 1;
    return lines.slice(from, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (heading) {
      elements.push(element(`h${Math.min(heading[1].length + level, 6)}`, {}, ...inline(heading[2])));
      place += 1;
    } else if (line.startsWith("```")) {
      place += 1;
      const code = taken((one) => !one.startsWith("```"));
      place += 1;
      elements.push(element("pre", { tabindex: "0" }, element("code", {}, code.join("\n"))));
    } else if (isTable(line)) elements.push(table(taken(isTable)));
    else if (isItem(line))
      elements.push(
        element(
          "ul",
          {},
          taken(isItem).map((one) => element("li", {}, ...inline(one.replace(/^\s*[-*]\s+/, "")))),
        ),
      );
    else if (line.trim() === "") place += 1;
    else
      elements.push(
        element(
          "p",
          {},
          ...inline(
            taken((one) => one.trim() !== "" && !/^#{1,6}\s|^```/.test(one) && !isTable(one) && !isItem(one)).join(" "),
          ),
        ),
      );
  }
  return elements;
}

const isTable = (line) => line.startsWith("|");
const isItem = (line) => /^\s*[-*]\s+/.test(line);
const cells = (line) =>
  line
    .replace(/^\||\|\s*$/g, "")
    .split("|")
    .map((cell) => cell.trim());

function table(lines) {
  const rule = lines.length > 1 && /^[|\s:-]+$/.test(lines[1]);
  const row = (line, tag) =>
    element(
      "tr",
      {},
      cells(line).map((cell) => element(tag, tag === "th" ? { scope: "col" } : {}, ...inline(cell))),
    );
  const body = lines.slice(rule ? 2 : 0).map((line) => row(line, "td"));
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", {}, rule ? element("thead", {}, row(lines[0], "th")) : null, element("tbody", {}, body)),
  );
}

/** Code and strong words; links stay the words they are. */
function inline(text) {
  return text
    .split(/(`[^`]+`|\*\*[^*]+\*\*)/)
    .filter(Boolean)
    .map((part) => {
      if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return element("code", {}, part.slice(1, -1));
      if (part.length > 4 && part.startsWith("**") && part.endsWith("**"))
        return element("strong", {}, part.slice(2, -2));
      return part.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
    });
}
