// The service, as functions. An error is an Error with plain words.

async function reply(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the service does not answer");
  }
  if (!response.ok) {
    const words = await response.json().then((body) => body.error, () => "");
    throw new Error(words || `the service answers ${response.status}`);
  }
  return response;
}

const send = (path, options) => reply(path, options).then((response) => (response.status === 204 ? null : response.json()));
const posted = (body) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
const post = (path, body) => send(path, posted(body));

function form(file) {
  const data = new FormData();
  data.append("file", file, file.name);
  return { method: "POST", body: data };
}

export const documents = () => send("/v1/documents").then((body) => body.documents);
export const upload = (file) => send("/v1/documents", form(file));
export const remove = (id) => send(`/v1/documents/${id}`, { method: "DELETE" });
export const text = (id) => send(`/v1/documents/${id}/text`);
export const fileAddress = (id) => `/v1/documents/${id}/file`;
export const ask = (id, questions) => post(`/v1/documents/${id}/ask`, { questions }).then((body) => body.replies);
export const find = (question) => post("/v1/find", { question });
export const heatmap = (id, question) => post(`/v1/documents/${id}/heatmap`, { question });
export const extract = (id, schema) => post(`/v1/documents/${id}/extract`, { schema });
export const formSheet = (id, schema) => reply(`/v1/documents/${id}/form.xlsx`, posted({ schema })).then((response) => response.blob());
export const verify = (id, text) => post(`/v1/documents/${id}/verify`, { text });
export const span = (id, start, end) => send(`/v1/documents/${id}/span?start=${start}&end=${end}`);
export const startReview = (ids, questions) => post("/v1/reviews", { documents: ids, questions });
export const questionsOf = (file) => send("/v1/reviews/questions", form(file));
export const review = (id) => send(`/v1/reviews/${id}`);

// Calls `told` with every new state until it is final.
export function follow(path, told) {
  const source = new EventSource(`${path}/events`);
  source.onmessage = (event) => {
    const state = JSON.parse(event.data);
    told(state);
    if (state.state === "ready" || state.state === "failed") source.close();
  };
  source.addEventListener("gone", () => source.close());
  return source;
}
