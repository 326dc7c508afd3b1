/**
 * Reads safetensors files: eight bytes with the header's length, a JSON header, then the data.
 */

/** How the numbers of each kind become an array of plain numbers. */
const KINDS = {
  F64: (bytes) => new Float64Array(bytes),
  F32: (bytes) => new Float32Array(bytes),
  I64: (bytes) => Float64Array.from(new BigInt64Array(bytes), Number),
  U64: (bytes) => Float64Array.from(new BigUint64Array(bytes), Number),
  I32: (bytes) => new Int32Array(bytes),
  U32: (bytes) => new Uint32Array(bytes),
  U16: (bytes) => new Uint16Array(bytes),
  U8: (bytes) => new Uint8Array(bytes),
};

/**
 * @typedef {object} Stored
 * @property {number[]} shape
 * @property {ArrayLike<number>} data row by row
 */

/**
 * The arrays of a file by name.
 *
 * @param {ArrayBuffer} file
 * @param {string[]} [wanted] names; without it all
 * @returns {Record<string, Stored>}
 */
export function readArrays(file, wanted) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets: [first, last] }] of Object.entries(header)) {
    if (name === "__metadata__" || (wanted && !wanted.includes(name))) continue;
    if (!(dtype in KINDS)) throw new Error(`${name}: numbers of kind ${dtype} cannot be read here`);
    // A copy, since the data may not be aligned for a typed array.
    arrays[name] = { shape, data: KINDS[dtype](file.slice(8 + length + first, 8 + length + last)) };
  }
  return arrays;
}
