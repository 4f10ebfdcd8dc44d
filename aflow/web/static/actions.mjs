// The dialogs that write: a savepoint, and the stop of a job. The token is sent with the request, and kept by the browser's
// own manager of passwords only.

import { post } from "./connection.mjs";
import { byId } from "./dom.mjs";
import { bytes, duration } from "./format.mjs";

/** Connect the buttons and dialogs; `job` returns the name of the present job. */
export function connectActions(job) {
  connect("savepoint", async (token) => {
    const { savepoint } = await post(job(), "savepoints", token, { path: byId("savepoint-path").value });
    return `Written: ${savepoint.path}, ${bytes(savepoint.bytes)} in ${duration(savepoint.duration_ms)}.`;
  });
  connect("stop", async (token) => {
    const body = { drain: byId("stop-drain").checked };
    if (byId("stop-savepoint").value) body.savepoint = byId("stop-savepoint").value;
    if (byId("stop-deadline").value) body.deadline = Number(byId("stop-deadline").value);
    const { status } = await post(job(), "stop", token, body);
    return `Accepted: the job is ${status}.`;
  });
}

function connect(name, send) {
  const dialog = byId(`${name}-dialog`);
  const form = byId(`${name}-form`);
  const error = form.querySelector(".form-error");
  const result = form.querySelector(".form-result");
  const submit = form.querySelector("[type=submit]");
  const clear = () => {
    error.textContent = "";
    result.textContent = "";
  };
  byId(`${name}-open`).addEventListener("click", () => {
    clear();
    dialog.showModal();
  });
  form.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clear();
    submit.disabled = true;
    const [node, text] = await send(byId(`${name}-token`).value).then(
      (done) => [result, done],
      (failure) => [error, failure.status === 401 ? "The token is wrong." : failure.message],
    );
    submit.disabled = false;
    node.textContent = text;
  });
}

/** Enable the buttons if the job can do what they are for, and say why not in their titles. */
export function updateActions(description, snapshot) {
  const ended = ["finished", "cancelled", "failed", "created"].includes(snapshot.status);
  const off = description.writes ? "" : "Writes are off: the application was started without a token.";
  const still = ended ? `The job is ${snapshot.status}.` : "";
  const without = description.checkpointing ? "" : "The job was started without checkpointing.";
  set("savepoint-open", off || still || without);
  set("stop-open", off || still);
  byId("stop-savepoint").disabled = Boolean(without);
}

function set(id, reason) {
  const button = byId(id);
  if (button.disabled !== Boolean(reason)) button.disabled = Boolean(reason);
  if (button.title !== reason) button.title = reason;
}
