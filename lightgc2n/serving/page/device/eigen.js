/**
 * Eigenvalues and eigenvectors of a symmetric matrix.
 *
 * Householder reflections make it tridiagonal, then the QL algorithm with implicit shifts diagonalizes it. Matrices are
 * lists of rows.
 */

const MOST_ROUNDS = 60; // of QL for one eigenvalue; usually three

/**
 * Eigenvalues from the smallest to the largest, and the vector of each as a row.
 *
 * @param {Float64Array[]} matrix symmetric; it is not changed
 * @returns {{values: Float64Array, vectors: Float64Array[]}}
 */
export function eigen(matrix) {
  return solve(matrix, matrix.map((_, at) => axis(matrix.length, at)));
}

/**
 * Eigenvalues alone, from the smallest to the largest.
 *
 * @param {Float64Array[]} matrix symmetric; it is not changed
 * @returns {Float64Array}
 */
export function eigenvalues(matrix) {
  return solve(matrix, matrix.map(() => new Float64Array(0))).values; // with an empty basis no vectors are computed
}

function axis(length, place) {
  const unit = new Float64Array(length);
  unit[place] = 1;
  return unit;
}

/** Diagonalizes the matrix; the basis becomes the eigenvectors. */
function solve(matrix, basis) {
  const { diagonal, beside } = tridiagonal(matrix, basis);
  for (let place = 0; place < diagonal.length; place++) settle(diagonal, beside, basis, place);
  const order = Array.from(diagonal.keys()).sort((one, other) => diagonal[one] - diagonal[other]);
  return { values: Float64Array.from(order, (at) => diagonal[at]), vectors: order.map((at) => basis[at]) };
}

/** The tridiagonal form of the matrix; the basis is transformed along with it. */
function tridiagonal(matrix, basis) {
  const size = matrix.length;
  const rows = matrix.map((row) => Float64Array.from(row));
  for (let column = 0; column < size - 2; column++) reflect(rows, basis, column);
  return {
    diagonal: Float64Array.from(rows, (row, at) => row[at]),
    // The last entry is unused.
    beside: Float64Array.from(rows, (row, at) => (at + 1 < size ? row[at + 1] : 0)),
  };
}

/** One Householder reflection: zeros the column below its subdiagonal entry. */
function reflect(rows, basis, column) {
  const size = rows.length;
  const first = column + 1;
  const mirror = new Float64Array(size); // the unit normal of the reflection
  for (let at = first; at < size; at++) mirror[at] = rows[at][column];
  const length = Math.sqrt(dot(mirror, mirror));
  mirror[first] += mirror[first] < 0 ? -length : length;
  const norm = Math.sqrt(dot(mirror, mirror));
  if (norm === 0) return;
  for (let at = first; at < size; at++) mirror[at] /= norm;
  // (1 - 2vv') A (1 - 2vv') = A - 2vw' - 2wv' with w = Av - (v'Av) v.
  const image = Float64Array.from(rows, (row) => dot(row, mirror));
  const along = dot(image, mirror);
  const change = image.map((value, at) => value - along * mirror[at]);
  for (let at = column; at < size; at++) {
    const row = rows[at];
    const mirrored = 2 * mirror[at];
    const changed = 2 * change[at];
    for (let other = column; other < size; other++) row[other] -= mirrored * change[other] + changed * mirror[other];
  }
  const turned = new Float64Array(basis[0].length);
  for (let at = first; at < size; at++) addTimes(turned, basis[at], mirror[at]);
  for (let at = first; at < size; at++) addTimes(basis[at], turned, -2 * mirror[at]);
}

/** Iterates until the eigenvalue at `place` has converged. */
function settle(diagonal, beside, basis, place) {
  for (let round = 0; round < MOST_ROUNDS; round++) {
    let end = place;
    while (end < diagonal.length - 1 && !vanishes(diagonal, beside, end)) end++;
    if (end === place) return;
    chase(diagonal, beside, basis, place, end);
  }
  throw new Error("the eigenvalue iteration did not converge");
}

function vanishes(diagonal, beside, at) {
  return Math.abs(beside[at]) <= Number.EPSILON * (Math.abs(diagonal[at]) + Math.abs(diagonal[at + 1]));
}

/** One QL sweep from `end` up to `place` with the Wilkinson shift. */
function chase(diagonal, beside, basis, place, end) {
  const half = (diagonal[place + 1] - diagonal[place]) / (2 * beside[place]);
  const root = Math.hypot(half, 1);
  let shifted = diagonal[end] - diagonal[place] + beside[place] / (half + (half < 0 ? -root : root));
  let [sine, cosine, moved] = [1, 1, 0];
  for (let at = end - 1; at >= place; at--) {
    const bulge = sine * beside[at];
    const rest = cosine * beside[at];
    const length = Math.hypot(bulge, shifted);
    beside[at + 1] = length;
    if (length === 0) {
      // The matrix is block diagonal here.
      diagonal[at + 1] -= moved;
      beside[end] = 0;
      return;
    }
    sine = bulge / length;
    cosine = shifted / length;
    const value = diagonal[at + 1] - moved;
    const turn = (diagonal[at] - value) * sine + 2 * cosine * rest;
    moved = sine * turn;
    diagonal[at + 1] = value + moved;
    shifted = cosine * turn - rest;
    rotate(basis[at], basis[at + 1], cosine, sine);
  }
  diagonal[place] -= moved;
  beside[place] = shifted;
  beside[end] = 0;
}

function rotate(one, other, cosine, sine) {
  for (let at = 0; at < one.length; at++) {
    const left = one[at];
    const right = other[at];
    other[at] = sine * left + cosine * right;
    one[at] = cosine * left - sine * right;
  }
}

/** The product of two vectors. */
export function dot(one, other) {
  let sum = 0;
  for (let at = 0; at < one.length; at++) sum += one[at] * other[at];
  return sum;
}

function addTimes(vector, other, factor) {
  for (let at = 0; at < vector.length; at++) vector[at] += factor * other[at];
}
