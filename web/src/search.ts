// The search box: words such as "group:edge state:nacked web" and the parameters of the API that they mean.

export interface Search {
  filter: Record<string, string[]>;
  unknown: string[]; // keys that the search does not have
}

// Splits a search into filters. Quotes keep spaces in a word. A word without a key selects nodes whose ID contains it.
export function parseSearch(text: string, keys: string[]): Search {
  const s: Search = { filter: {}, unknown: [] };
  const add = (key: string, value: string) => {
    s.filter[key] = [...(s.filter[key] ?? []), value];
  };
  for (const quoted of text.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []) {
    const word = quoted.replaceAll('"', "");
    const at = word.indexOf(":");
    const key = word.slice(0, at);
    if (at < 1) add("node", word.includes("*") ? word : `**${word}**`);
    else if (!keys.includes(key)) s.unknown.push(key);
    else if (at < word.length - 1) add(key, word.slice(at + 1));
  }
  return s;
}
