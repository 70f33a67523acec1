// The workers of the page search for the number for which SHA-256(salt + number) equals the challenge.
const primes = [];
for (let n = 2; primes.length < 64; n++) if (primes.every(p => n % p)) primes.push(n);
const fraction = x => (x - Math.floor(x)) * 2 ** 32 | 0;
const K = Int32Array.from(primes, p => fraction(Math.cbrt(p))), I = Int32Array.from(primes.slice(0, 8), p => fraction(Math.sqrt(p)));

const s0 = x => (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
const s1 = x => (x >>> 17 | x << 15) ^ (x >>> 19 | x << 13) ^ x >>> 10;
const second = (a, b, c) => ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;

// schedule and rounds compute SHA-256 for a block W and a state S, up to round end.
function schedule(W, end) {
  for (let i = 16; i < end; i++) W[i] = W[i - 16] + s0(W[i - 15]) + W[i - 7] + s1(W[i - 2]) | 0;
}
function rounds(S, W, from, end) {
  let a = S[0], b = S[1], c = S[2], d = S[3], e = S[4], f = S[5], g = S[6], h = S[7];
  for (let i = from; i < end; i++) {
    const t = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (g ^ e & (f ^ g)) + K[i] + W[i] | 0, u = second(a, b, c);
    h = g; g = f; f = e; e = d + t | 0; d = c; c = b; b = a; a = t + u | 0;
  }
  S[0] = a; S[1] = b; S[2] = c; S[3] = d; S[4] = e; S[5] = f; S[6] = g; S[7] = h;
}

// checker returns a function that reports whether a number solves the challenge. Salt and number fit into one block.
function checker(salt, want) {
  const block = new Uint8Array(64), view = new DataView(block.buffer), W = new Int32Array(64), S = new Int32Array(8);
  return number => {
    const {written} = new TextEncoder().encodeInto(salt + number, block);
    block.fill(0, written);
    block[written] = 128;
    for (let i = 0; i < 15; i++) W[i] = view.getInt32(i * 4);
    W[15] = written * 8;
    schedule(W, 64);
    S.set(I);
    rounds(S, W, 0, 64);
    return S.every((word, i) => (word + I[i] | 0) === want[i]);
  };
}

// early returns the value of a after round 56 of 0…63 for the wanted hash. A round computes two words and moves six. The last seven
// rounds can therefore be inverted without the block: four are inverted in full, and the other three only move the resulting d.
function early(want) {
  let [a, b, c, d, e, f, g, h] = want.map((word, i) => word - I[i]);
  for (let i = 0; i < 4; i++) [a, b, c, d, e, f, g] = [b, c, d, e - a + second(b, c, d) | 0, f, g, h];
  return d;
}

// plain replaces find in browsers without SIMD or WebAssembly. It tries one number at a time.
const plain = (M, W) => {
  const S = new Int32Array(8);
  return (at, end) => {
    for (at >>= 2, end >>= 2; at < end; at++) {
      W[12] = M[at];
      schedule(W, 57);
      for (let i = 0; i < 8; i++) S[i] = M[i];
      S[0] += W[12];
      S[4] += W[12];
      rounds(S, W, 13, 57);
      if (S[0] === M[8]) break;
    }
    return at * 4 & -16;
  };
};

// kernel returns find and its memory, whose layout gen/kernel.go describes. W is the block for which the memory is prepared.
function kernel(W) {
  try {
    const bytes = Uint8Array.from(atob(simd), c => c.charCodeAt());
    if (WebAssembly.validate(bytes)) {
      const {memory, find} = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
      return {M: new Int32Array(memory.buffer), find};
    }
  } catch {
    // The browser has no WebAssembly, or does not support 'wasm-unsafe-eval' in a policy.
  }
  const M = new Int32Array(16384);
  return {M, find: plain(M, W)};
}

// prepare fills the memory for a block in which word 12 varies.
function prepare(M, W) {
  const S = Int32Array.from(I), varies = [], same = i => i !== 12 && !varies[i];
  W[12] = 0;
  rounds(S, W, 0, 13);
  M.set(S);
  for (let i = 13; i < 57; i++) {
    if (i > 15) {
      varies[i] = ![i - 16, i - 15, i - 7, i - 2].every(same);
      W[i] = (same(i - 16) && W[i - 16]) + (same(i - 15) && s0(W[i - 15])) + (same(i - 7) && W[i - 7]) + (same(i - 2) && s1(W[i - 2]));
    }
    M[16 + i] = same(i) ? K[i] + W[i] : K[i];
    M[80 + i] = W[i];
  }
}

// search returns the number, or -1. Several searches run in parallel, each in its part of the numbers. count is called with the number
// of tries.
function search({challenge, salt, maxnumber, part, parts}, count) {
  const want = Int32Array.from(challenge.match(/.{8}/g), word => parseInt(word, 16)), is = checker(salt, want);
  const oneByOne = (from, end) => {
    for (let number = from + part; number <= end; number += parts) {
      if (is(number)) return number;
      count(1);
    }
    return -1;
  };
  // The salts of rooms have eleven words. After such a salt the first four digits are word 11, and up to four more are in word 12.
  const inFours = () => {
    const bytes = new DataView(new ArrayBuffer(64)), W = new Int32Array(64), {M, find} = kernel(W), from = 1024;
    const put = (at, text) => [...text].forEach((c, i) => bytes.setUint8(at + i, c.charCodeAt()));
    put(0, salt);
    M[8] = early(want);
    for (let digits = 1, many = 10; digits <= 4; digits++, many *= 10) {
      for (let n = 0; n < many; n++) {
        put(48, String(n).padStart(digits, 0) + "\x80");
        M[from / 4 + n] = bytes.getInt32(48);
      }
      for (let head = 1000 + part; head < 10000 && head * many <= maxnumber; head += parts) {
        put(44, String(head));
        for (let i = 0; i < 15; i++) W[i] = bytes.getInt32(i * 4);
        W[15] = (48 + digits) * 8;
        prepare(M, W);
        const first = head * many, most = Math.min(first + many - 1, maxnumber);
        for (let at = from, end = from + Math.ceil(many / 4) * 16; (at = find(at, end)) < end; at += 16) {
          const four = first + (at - from) / 4;
          for (let number = four; number < four + 4 && number <= most; number++) if (is(number)) return number;
        }
        count(many);
      }
    }
    return -1;
  };
  if (salt.length !== 44) return oneByOne(0, maxnumber);
  const few = oneByOne(0, Math.min(maxnumber, 9999)), most = few < 0 ? inFours() : few;
  return most < 0 ? oneByOne(1e8, maxnumber) : most;
}
