// Everything the page asks of its server, and nothing of anyone else.

export class Refused extends Error {}

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is caunet serve still running?");
  }
  const data = await response.json().catch(() => null);
  if (response.ok && data) return data;
  const error = new Refused(reason(data) ?? `The server answered ${response.status} without a reason.`);
  error.status = response.status;
  error.retryAfter = Number(response.headers.get("Retry-After")) || 1;
  throw error;
}

export const models = () => ask("/api/models");

export function infer(question, signal) {
  if (!question.picture) {
    const headers = { "Content-Type": "application/json" };
    return ask("/api/infer", { method: "POST", headers, body: JSON.stringify(question), signal });
  }
  return ask("/api/infer", { method: "POST", body: form({ ...question, z: JSON.stringify(question.z) }), signal });
}

// `reduced`: how many times smaller the files are than the pictures; the answer is in pixels of those.
export const estimate = (a, b, model, reduced, signal) =>
  ask("/api/estimate", { method: "POST", body: form({ a, b, model, reduced }), signal });

export const stack = (frames, model, signal) =>
  ask("/api/stack", { method: "POST", body: form({ ...Object.fromEntries(frames.map((frame, n) => [`frame_${n + 1}`, frame])), model }), signal });

export const volumes = (a, b, model, signal) => ask("/api/volumes", { method: "POST", body: form({ a, b, model }), signal });

export const volumesExample = (model, signal) => ask("/api/volumes/example", { method: "POST", body: form({ model }), signal });

// Any picture as PNG; the server chooses the factor if none is given.
export const picture = (file, factor) =>
  ask("/api/picture", { method: "POST", body: form({ picture: file, ...(factor ? { factor } : {}) }) });

// At most one question is on its way: the newest waits for the answer, those in between are dropped.
// (Aborting each question for the next would leave a steady drag without any answer.)
export class Latest {
  #waiting = null;
  #running = null;

  constructor(question, answered, failed) {
    Object.assign(this, { question, answered, failed });
  }

  // `stale`: what is on its way belongs to another picture or task, so do not wait for it.
  ask(value, { stale = false } = {}) {
    this.#waiting = value;
    if (stale) this.#running?.abort();
    if (stale || !this.#running) this.#next();
  }

  async #next() {
    const value = this.#waiting;
    const mine = new AbortController();
    this.#waiting = null;
    this.#running = mine;
    try {
      const answer = await this.question(value, mine.signal);
      if (this.#running === mine) this.answered(answer, value);
    } catch (error) {
      if (this.#running === mine && error.name !== "AbortError") await this.#trouble(error, value);
    }
    if (this.#running !== mine) return;
    this.#running = null;
    if (this.#waiting) this.#next();
  }

  async #trouble(error, value) {
    this.failed(error);
    if (error.status !== 503) return;
    await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(error.retryAfter, 5)));
    this.#waiting ??= value;
  }
}

function form(fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  return body;
}

function reason(data) {
  const detail = data?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((one) => one.msg ?? String(one)).join("; ");
  return null;
}
