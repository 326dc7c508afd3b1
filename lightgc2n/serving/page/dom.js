// Creates elements without parsing HTML: strings of the service always become text nodes.

/**
 * An element with attributes, listeners (`onclick` and the like) and children; a child that is null is left out.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets custom properties for the style sheet; the content security policy forbids style attributes. */
export function styled(made, properties) {
  for (const [name, value] of Object.entries(properties)) made.style.setProperty(name, value);
  return made;
}

export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

/** Announces a sentence to screen readers. */
export function say(sentence) {
  const place = document.getElementById("said");
  place.textContent = "";
  requestAnimationFrame(() => {
    place.textContent = sentence;
  });
}

export function show(place, ...children) {
  place.replaceChildren(...children.filter((child) => child !== null));
}

/** A loading indicator; it appears with a delay, so that a fast response does not flicker. */
export function waiting(sentence) {
  return element("p", { class: "waiting" }, sentence);
}

/** An error message with a button labelled `words` that calls `again`. */
export function failure(problem, again, words = "Try again") {
  return element(
    "div",
    { class: "failure", role: "alert" },
    element("h2", {}, problem.heading ?? "That did not work"),
    element("p", {}, capital(problem.message)),
    again ? element("p", {}, button(words, again)) : null,
  );
}

/** The letter of a person in their colour. */
export const badge = (letter) =>
  element("span", { class: "badge", "data-person": letter, "aria-hidden": "true" }, letter);

export const capital = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
export const counted = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en-GB")} ${number === 1 ? one : many}`;

/** "a", "a and b", "a, b and c" */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
