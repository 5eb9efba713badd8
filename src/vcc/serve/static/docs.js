// The routes of the service, from its OpenAPI file.

import { $, element } from "./dom.js";

const api = await (await fetch("/openapi.json")).json();

function example(schema, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(api.components.schemas[schema.$ref.split("/").at(-1)], depth + 1);
  if (schema.examples) return schema.examples[0];
  if (schema.anyOf) return example(schema.anyOf[0], depth + 1);
  if (schema.type === "object") {
    return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, inner]) => [name, example(inner, depth + 1)]));
  }
  if (schema.type === "array") return [example(schema.items, depth + 1)];
  if ("default" in schema) return schema.default;
  return { string: schema.contentMediaType || schema.format === "binary" ? "(a file)" : "text", integer: 0, number: 0.5, boolean: true }[schema.type] ?? null;
}

function block(title, content) {
  const schema = Object.values(content ?? {})[0]?.schema;
  if (!schema || !Object.keys(schema).length) return [];
  return [element("p", { textContent: `${title} (${Object.keys(content)[0]})` }),
    element("pre", { textContent: JSON.stringify(example(schema), null, 1), tabIndex: 0 })];
}

const groups = new Map();
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const codes = Object.entries(route.responses).flatMap(([code, { description }]) => [
      element("dt", { textContent: code }), element("dd", { textContent: description })]);
    const made = element("details", {},
      element("summary", {}, element("b", { textContent: method.toUpperCase() }), element("code", { textContent: path })),
      element("p", { textContent: route.description ?? route.summary }),
      ...block("Request", route.requestBody?.content), ...block("Result", Object.values(route.responses)[0].content),
      element("dl", {}, ...codes));
    const tag = route.tags?.[0] ?? "other";
    groups.set(tag, [...(groups.get(tag) ?? []), made]);
  }
}
$("routes").append(...[...groups].flatMap(([tag, made]) => [element("h2", { textContent: tag }), ...made]));
