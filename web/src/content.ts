// The lines of a message in JSON, each with the path of its field.
export interface ContentLine {
  path: string; // such as "virtual_hosts[0].name"; "": of no field
  text: string;
}

export function linesOf(body: unknown): ContentLine[] {
  const all: ContentLine[] = [];
  const add = (path: string, indent: string, lead: string, v: unknown, tail: string) => {
    const entries: [string, string, unknown][] = Array.isArray(v)
      ? v.map((x, i) => [`${path}[${i}]`, "", x])
      : v && typeof v === "object"
        ? Object.entries(v).map(([k, x]) => [path ? `${path}.${k}` : k, `${JSON.stringify(k)}: `, x])
        : [];
    const [open, close] = Array.isArray(v) ? "[]" : "{}";
    if (!entries.length) {
      all.push({ path, text: indent + lead + JSON.stringify(v ?? null) + tail });
      return;
    }
    all.push({ path, text: indent + lead + open });
    entries.forEach(([p, l, x], i) => {
      add(p, `${indent}  `, l, x, i < entries.length - 1 ? "," : "");
    });
    all.push({ path: "", text: indent + close + tail });
  };
  add("", "", "", body, "");
  return all;
}
