// The search box: words such as "group:edge state:nacked web" and the parameters of the API that they mean.
import type { State } from "./api";

export interface Search {
  filter: Record<string, string[]>;
  problem: string; // a sentence about keys that the search ignores; "": none
}

const repeatable = ["state", "kind"]; // the keys that the API takes more than once

// The words of the page for values of the API.
const values: Record<string, string> = { "state:refused": "nacked", "kind:refused": "nack" };

// The search for a state.
export const stateKey = (s: State) => (s === "NACKED" ? "state:refused" : `state:${s.toLowerCase()}`);

// Splits a search into filters. Quotes keep spaces in a word. Words without a key select nodes whose ID contains them in
// this order: the API takes one pattern.
export function parseSearch(text: string, keys: string[]): Search {
  const filter: Search["filter"] = {};
  const words: string[] = [];
  const unknown: string[] = [];
  const repeated: string[] = [];
  const add = (key: string, value: string) => {
    if (!filter[key] || repeatable.includes(key)) filter[key] = [...(filter[key] ?? []), value];
    else repeated.push(key);
  };
  for (const quoted of text.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []) {
    const word = quoted.replaceAll('"', "");
    const at = word.indexOf(":");
    const key = word.slice(0, at);
    if (at >= 1 && !keys.includes(key)) unknown.push(key);
    else if (at >= 1 && at < word.length - 1) add(key, values[word] ?? word.slice(at + 1));
    else if (at < 1 && word.includes("*")) add("node", word);
    else if (at < 1 && word) words.push(word.replace(/[?{}\\]/g, "\\$&"));
  }
  if (words.length) add("node", `**${words.join("**")}**`);
  const problems = [
    unknown.length > 0 && `The search has no key ${unknown.join(", ")}. Keys are ${keys.join(", ")}.`,
    repeated.length > 0 && `The search takes one value of ${[...new Set(repeated)].join(", ")}, and ignores the others.`,
  ];
  return { filter, problem: problems.filter(Boolean).join(" ") };
}
