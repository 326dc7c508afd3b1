// Client of the service's public API.

export class ServiceError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
    this.heading = HEADINGS[status] ?? (status >= 500 ? "The service has a problem" : "That did not work");
  }
}

const HEADINGS = {
  0: "The service does not answer",
  401: "A key is needed",
  404: "Not found",
  429: "Too many requests at once",
  503: "The service is busy",
};

let key = null; // kept in memory only
let asking = null; // the open key prompt, if there is one
let askForKey = async () => null;

/** `question(wrong)` shows a form and returns the key, or null. */
export function keysComeFrom(question) {
  askForKey = question;
}

/** The response to a request, sent with the key if there is one; prompts for a key where one is needed. */
export async function fetched(path, options = {}) {
  for (let wrong = false; ; wrong = true) {
    const sent = key;
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...keyHeader(sent) } }).catch(
      () => {
        throw new ServiceError(0, "unreachable", "No answer came. Is the service still running?");
      },
    );
    if (response.status !== 401) return response;
    if (key === sent) {
      asking ??= askForKey(wrong || sent !== null).finally(() => {
        asking = null;
      });
      const given = await asking;
      if (given === null) throw new ServiceError(401, "unauthorised", "This service requires an API key.");
      key = given;
    }
  }
}

function keyHeader(sent) {
  return sent === null ? {} : { Authorization: `Bearer ${sent}` };
}

async function fetchJson(path, options) {
  const response = await fetched(path, options);
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  const error = body?.error ?? { code: "unreadable", message: `The service answered with status ${response.status}.` };
  throw new ServiceError(response.status, error.code, error.message);
}

function postJson(path, body) {
  return fetchJson(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

const query = (values) => new URLSearchParams(values).toString();

export const findAccounts = (search, limit = 20) => fetchJson(`/v1/accounts?${query({ search, limit })}`);
export const findItems = (search, limit = 20) => fetchJson(`/v1/items?${query({ search, limit })}`);
export const peopleOf = (account, k) => fetchJson(`/v1/accounts/${encodeURIComponent(account)}/people?${query({ k })}`);
export const peopleIf = (request) => postJson("/v1/people", request);
export const whoIsWatching = (request) => postJson("/v1/who", request);
export const recommend = (request) => postJson("/v1/recommend", request);
export const population = () => fetchJson("/v1/population");
export const liveQuality = () => fetchJson("/v1/quality");
export const storeEvents = (events) => postJson("/v1/events", { events });
export const aboutModel = () => fetchJson("/v1/model");
