// Requests to the application, and the events of a job. Addresses are relative to the page, wherever it is mounted.

const READ_TOKEN = "aflow.read";

/** Milliseconds without an event after which a connection counts as broken. */
const SILENCE = 5_000;

/** The longest wait between two attempts to connect. */
const LONGEST_WAIT = 8_000;

export class RequestError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setReadToken(token) {
  sessionStorage.setItem(READ_TOKEN, token);
}

function address(...parts) {
  return new URL(["api", "jobs", ...parts.map(encodeURIComponent)].join("/"), document.baseURI);
}

async function checked(response) {
  if (response.ok) return response;
  let error = { code: "unknown", message: `the server answered ${response.status}` };
  try {
    error = (await response.json()).error ?? error;
  } catch {
    // Not from this application: a proxy, for example.
  }
  throw new RequestError(response.status, error.code, error.message);
}

async function get(url, signal) {
  const token = sessionStorage.getItem(READ_TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  return checked(await fetch(url, { headers, signal, cache: "no-store" }));
}

/** Return the entries of all jobs. */
export async function listJobs() {
  return (await (await get(address(), AbortSignal.timeout(SILENCE))).json()).jobs;
}

/** Send a write, and return the response. */
export async function post(job, command, token, body) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body) };
  return (await checked(await fetch(address(job, command), options))).json();
}

/**
 * Follows the events of one job from `run` until `close`, and connects again when the connection breaks.
 *
 * Calls `onEvent(name, data)`, and `onState(state, detail)` with connecting, live, disconnected or crowded (detail: ms until
 * the next attempt), ended or refused (detail: the error).
 */
export class JobEvents {
  constructor(job, { onEvent, onState }) {
    this.job = job;
    this.onEvent = onEvent;
    this.onState = onState;
    this.closed = false;
    this.abort = null;
  }

  close() {
    this.closed = true;
    this.abort?.abort();
  }

  async run() {
    let failures = 0;
    this.onState("connecting");
    while (!this.closed) {
      let outcome;
      try {
        outcome = await this.follow();
        failures = 0;
      } catch (error) {
        if (this.closed) return;
        if (error instanceof RequestError && [401, 403, 404].includes(error.status)) {
          this.closed = true;
          this.onState("refused", error);
          return;
        }
        failures += 1;
        const wait = Math.min(LONGEST_WAIT, 500 * 2 ** failures);
        this.onState(error.code === "too_many_clients" ? "crowded" : "disconnected", wait);
        await new Promise((resolve) => setTimeout(resolve, wait));
        continue;
      }
      if (outcome === "end") {
        this.closed = true;
        this.onState("ended");
      }
    }
  }

  /** Read one stream. Return "end" if the job has ended, and "again" if the server wants another connection. */
  async follow() {
    this.abort = new AbortController();
    let timer = setTimeout(() => this.abort.abort(), SILENCE);
    let received = false;
    let ended = false;
    try {
      const response = await get(address(this.job, "events"), this.abort.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(() => this.abort.abort(), SILENCE);
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          if (this.closed) return "closed";
          const [name, data] = parsed(event);
          if (!received) this.onState("live");
          received = true;
          ended ||= name === "end";
          this.onEvent(name, data);
        }
      }
    } finally {
      clearTimeout(timer);
    }
    if (ended) return "end";
    if (!received) throw new Error("the stream was empty");
    return "again";
  }
}

function parsed(event) {
  let name = "message";
  let data = "";
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return [name, JSON.parse(data)];
}
