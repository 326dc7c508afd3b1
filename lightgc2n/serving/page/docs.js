// The page of the HTTP API: Swagger UI where it was installed (scripts/fetch-web), else forms that send requests.

import { element, show } from "./dom.js";

const { SwaggerUIBundle } = globalThis;
if (SwaggerUIBundle) {
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#swagger",
    deepLinking: true,
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
    onComplete: () => {
      document.getElementById("swagger").hidden = false;
      document.getElementById("plain").hidden = true;
    },
  });
} else {
  for (const hidden of document.querySelectorAll(".try, .api-key")) hidden.hidden = false;
  document.querySelector(".api-key").addEventListener("submit", (event) => event.preventDefault());
  for (const form of document.querySelectorAll(".try form"))
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(form);
    });
}

/** Sends the request of a form, announces its status and its time, and shows its body. */
async function send(form) {
  const outcome = form.querySelector(".outcome");
  const answer = form.querySelector(".answer");
  const [address, options] = requestOf(form);
  show(outcome, "Waiting…");
  show(answer);
  try {
    const before = performance.now();
    const response = await fetch(address, options);
    const text = await response.text();
    const took = `${Math.round(performance.now() - before)}\u00a0ms`;
    const status = element("strong", { class: response.ok ? "good" : "bad" }, `${response.status} ${response.statusText}`);
    show(outcome, status, ` in ${took}: ${options.method} `, element("code", {}, address));
    show(answer, element("pre", { tabindex: "0", "aria-label": "Body of the answer" }, element("code", {}, readable(text))));
  } catch (problem) {
    show(outcome, element("strong", { class: "bad" }, "No answer came."), ` ${problem.message}`);
  }
}

/** The address and the options for fetch: path parameters filled in, empty query parameters left out. */
function requestOf(form) {
  let address = form.dataset.path;
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("input")) {
    if (field.dataset.in === "path") address = address.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value !== "") query.set(field.name, field.value);
  }
  if (query.size) address += `?${query}`;
  const headers = {};
  const key = document.getElementById("key").value;
  if (key) headers.Authorization = `Bearer ${key}`;
  const body = form.querySelector("textarea")?.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return [address, { method: form.dataset.method, headers, body }];
}

/** JSON with line breaks; anything else as it is. */
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
