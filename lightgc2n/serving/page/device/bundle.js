/**
 * Fetches the device part of a bundle and verifies it before use.
 */

import { readFinder } from "./finder.js";
import { readArrays } from "./safetensors.js";

const FORMAT = "lightgc2n bundle";
const SCHEMAS = [2, 3];
const FINDER_FACTS = "people/finder.json";
const FINDER = "people/finder.safetensors";

/**
 * @typedef {object} Bundle
 * @property {object} config the content of `config.json`: model, settings, data, metrics
 * @property {string[]} items item ids; the index of an id is the item's number
 * @property {Map<string, number>} index the number of each id
 * @property {Map<string, string>} titles of items by id, where they are known
 * @property {ArrayLike<number>} popularity training events of each item
 * @property {import("./finder.js").Finder | null} finder the people finder; null if the bundle was exported without it
 * @property {object} session the inference session of onnxruntime-web
 * @property {object} ort the namespace of onnxruntime-web
 */

/**
 * Fetches a bundle and opens its graph.
 *
 * @param {string | URL} base the address of the folder, with a slash at its end
 * @param {object} ort the namespace of onnxruntime-web
 * @param {(address: URL) => Promise<Response>} [get] fetches a file; `fetch` by default
 * @returns {Promise<Bundle>}
 */
export async function openBundle(base, ort, get = (address) => fetch(address)) {
  const read = (name) => readFile(new URL(name, new URL(base, globalThis.location?.href)), get);
  const config = readConfig(text(await read("config.json")));
  const sums = readSums(text(await read("SHA256SUMS")));
  const names = ["config.json", ...config.files].filter((name) => name !== "README.md");
  const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await read(name)])));
  await Promise.all(Object.entries(files).map(([name, file]) => refuseDamaged(name, file, sums)));
  const items = lines(files["items.txt"]);
  const { popularity } = readArrays(files["weights.safetensors"], ["popularity"]);
  if (items.length !== config.items || popularity.data.length !== config.items) {
    throw new Error("The files of this bundle do not match: they have different numbers of items.");
  }
  return {
    config,
    items,
    index: new Map(items.map((item, number) => [item, number])),
    titles: new Map(lines(files["titles.tsv"]).map((line) => splitOnce(line, "\t"))),
    popularity: popularity.data,
    finder: FINDER in files ? readFinder(JSON.parse(text(files[FINDER_FACTS])), readArrays(files[FINDER])) : null,
    session: await openSession(ort, files),
    ort,
  };
}

async function readFile(address, get) {
  const answer = await get(address);
  if (!answer.ok) throw new Error(`${address.pathname}: the server answered ${answer.status}.`);
  return answer.arrayBuffer();
}

function readConfig(written) {
  const config = JSON.parse(written);
  if (config.format !== FORMAT || !Array.isArray(config.files)) throw new Error("This is not a bundle of lightgc2n.");
  if (!SCHEMAS.includes(config.schema)) {
    throw new Error(`A bundle of schema ${config.schema}; this page reads ${SCHEMAS.join(" and ")}.`);
  }
  return config;
}

/** @returns {Map<string, string>} the checksum of each file */
function readSums(listed) {
  const rows = listed.trimEnd().split("\n");
  return new Map(rows.map((line) => splitOnce(line, "  ")).map(([sum, name]) => [name, sum]));
}

/** crypto.subtle exists only on secure pages, such as localhost; elsewhere checksums are not verified. */
async function refuseDamaged(name, file, sums) {
  if (!globalThis.crypto?.subtle) return;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  const checksum = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (sums.get(name) !== checksum) throw new Error(`${name}: its checksum differs from SHA256SUMS.`);
}

function openSession(ort, files) {
  // Threads need a cross-origin isolated page, and would gain little here.
  ort.env.wasm.numThreads = 1;
  const weights = { path: "weights.safetensors", data: new Uint8Array(files["weights.safetensors"]) };
  return ort.InferenceSession.create(new Uint8Array(files["model.onnx"]), {
    executionProviders: ["wasm"],
    externalData: [weights],
    logSeverityLevel: 3,
  });
}

const text = (file) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(file);

const lines = (file) => (file ? text(file).split("\n").slice(0, -1) : []);

function splitOnce(line, mark) {
  const place = line.indexOf(mark);
  return [line.slice(0, place), line.slice(place + mark.length)];
}
