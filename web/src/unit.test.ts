import { describe, expect, it } from "vitest";
import { matches, may } from "./actions";
import type { Status } from "./api";
import { session, urlOf } from "./api";
import { linesOf } from "./content";
import { filled } from "./parts";
import { parse } from "./route";
import { parseSearch, stateKey } from "./search";
import { split } from "./stream";
import { rowHeight, windowOf } from "./table";
import { problemsOf } from "./views/problems";
import { duration, visible, wordOf } from "./words";

describe("URLs", () => {
  it("encode each part as one segment", () => {
    expect(urlOf("/api/v1/clients/{node}/explain", ["a/b?c"], { type: "LDS", name: "", all: true, state: ["nacked", "stale"] })).toBe(
      "/api/v1/clients/a%2Fb%3Fc/explain?type=LDS&all=1&state=nacked&state=stale",
    );
  });
  it("are decoded, except malformed escapes", () => {
    expect(parse(new URL("http://h/clients/a%2Fb/%zz?q=x+y")).path).toEqual(["clients", "a/b", "%zz"]);
    for (const name of [".", "..", "%.", "%%..", "...", "%"]) expect(parse(new URL(urlOf("/clients/{}", [name]), "http://h")).path).toEqual(["clients", name]);
    expect(parse(new URL("http://h/?q=x+y")).query.get("q")).toBe("x y");
  });
});

describe("the lines of a message", () => {
  it("are those of indented JSON, with the paths of the fields", () => {
    const body = { a: [{ b: 1, c: {} }, "x"], d: null, e: [] };
    const lines = linesOf(body);
    expect(lines.map((l) => l.text).join("\n")).toBe(JSON.stringify(body, null, 2));
    expect(lines.map((l) => l.path)).toEqual(["", "a", "a[0]", "a[0].b", "a[0].c", "", "a[1]", "", "d", "e", ""]);
  });
});

describe("search", () => {
  const keys = ["node", "group", "state"];
  it("has keys, words and patterns", () => {
    expect(parseSearch(" group:edge  web state:nacked state:stale db-* ", keys)).toEqual({
      filter: { group: ["edge"], node: ["db-*"], state: ["nacked", "stale"] },
      problem: "The search takes one value of node, and ignores the others.",
    });
  });
  it("makes one pattern of several words", () => {
    expect(parseSearch('web edge {x}? ""', keys)).toEqual({ filter: { node: ["**web**edge**\\{x\\}\\?**"] }, problem: "" });
  });
  it("ignores a key without a value, and names unknown keys", () => {
    expect(parseSearch("group: colour:red", keys)).toEqual({
      filter: {},
      problem: "The search has no key colour. Keys are node, group, state.",
    });
  });
  it("keeps spaces in quotes", () => {
    expect(parseSearch('agent:"envoy 1.40.0" web "a b', ["agent"]).filter).toEqual({ agent: ["envoy 1.40.0"], node: ["**web**a b**"] });
  });
  it("has the words of the page for states and kinds", () => {
    expect(parseSearch("state:refused kind:refused", ["state", "kind"]).filter).toEqual({ state: ["nacked"], kind: ["nack"] });
    expect([stateKey("NACKED"), stateKey("NOT_SENT"), wordOf("NACKED"), wordOf("nack"), wordOf("NOT_SENT")]).toEqual([
      "state:refused",
      "state:not_sent",
      "refused",
      "refused",
      "not sent",
    ]);
  });
  it("keeps colons in values", () => {
    expect(parseSearch("node:stream:41", keys).filter).toEqual({ node: ["stream:41"] });
  });
});

describe("roles", () => {
  it("match groups by patterns", () => {
    for (const [pattern, name] of [
      ["edge-*", "edge-eu_2"],
      ["edge-**", "edge-a.b/c"],
      ["*", "é1"],
      ["a.b", "a.b"],
      ["a\\*", "a*"],
    ] as const)
      expect(matches(pattern, name)).toBe(true);
    for (const [pattern, name] of [
      ["edge-*", "edge-"],
      ["edge-*", "edge-a.b"],
      ["a.b", "axb"],
      ["*", ""],
      ["(a|b)", "a"],
    ] as const)
      expect(matches(pattern, name)).toBe(false);
  });
  it("count for all groups of a change", () => {
    session.value = { apiVersion: "v1", kind: "Session", name: "x", signed_in: true, sign_in: [], roles: [{ role: "operate", groups: ["edge-*"] }] };
    expect([may("operate", ["edge-1"]), may("operate", ["edge-1", "pay"]), may("operate", []), may("commit", ["edge-1"])]).toEqual([true, false, false, false]);
    session.value = { ...session.value, roles: [{ role: "commit" }] };
    expect([may("operate", []), may("commit", ["pay"])]).toEqual([true, true]);
    session.value = undefined;
    expect(may("operate", ["edge-1"])).toBe(false);
  });
});

describe("links to other programs", () => {
  const links = [
    { name: "a", url: "https://h/?n={node}&g={group}" },
    { name: "b", url: "https://h/{node}" },
    { name: "c", url: "https://h/" },
    { name: "d", url: "javascript:alert('{node}')" },
  ];
  it("encode values, and need all of them", () => {
    expect(filled(links, { node: "a b&/\u202e", group: "x" })).toEqual([
      { name: "a", url: "https://h/?n=a%20b%26%2F%E2%80%AE&g=x" },
      { name: "b", url: "https://h/a%20b%26%2F%E2%80%AE" },
    ]);
    expect(filled(links, { node: "x", group: undefined }).map((l) => l.name)).toEqual(["b"]);
    expect(filled(links, {}).map((l) => l.name)).toEqual(["c"]);
  });
});

describe("events", () => {
  it("are split, and the rest is kept", () => {
    expect(split(': hello\n\nid: 1\nevent: ack\ndata: {"id":1}\n\ndata: {"i')).toEqual({ data: ['{"id":1}'], rest: 'data: {"i' });
  });
});

describe("a window of a table", () => {
  it("contains the visible rows", () => {
    for (const top of [0, 31, 32, 5000, 1_600_000]) {
      const w = windowOf(top, 900);
      expect(w.from * rowHeight).toBeLessThanOrEqual(top);
      expect((w.from + w.count) * rowHeight).toBeGreaterThanOrEqual(top + 900);
      expect(w.count).toBeLessThanOrEqual(70);
    }
  });
  it("is the same after a small movement", () => {
    expect(windowOf(40_000, 900)).toEqual(windowOf(40_010, 900));
  });
});

describe("durations", () => {
  it.each([
    [-5, "0 s"],
    [999, "0 s"],
    [61_000, "61 s"],
    [120_000, "2 min"],
    [7_200_000, "2 h"],
    [172_800_000, "2 d"],
  ])("of %d ms", (ms, text) => expect(duration(ms)).toBe(text));
});

describe("problems", () => {
  const healthy: Status = {
    apiVersion: "v1",
    kind: "Status",
    server: { version: "", replica: "", since: "", xds: "", dir: "" },
    config: { revision: 1, files: 1, resources: 1, groups: 0, dangling: 0, doubts: 0 },
    clients: { connected: 1, by: { SYNCED: 1 } },
    refusals: [],
    troubles: [],
    turned_away: [],
  };
  it("are absent from a healthy status", () => expect(problemsOf(healthy)).toEqual([]));
  it("are worst first, and lead to one client or to the list", () => {
    const refusal = {
      type: "LDS",
      error: "bad",
      since: "2026-01-01T00:00:00Z",
      partly: false,
      resources: [{ type: "LDS", name: "http", place: "a.yaml:1:2" }],
    };
    const lines = problemsOf({
      ...healthy,
      troubles: [{ code: "flaps", since: "2026-01-01T00:00:00Z", text: "leaves often", node: "a" }],
      refusals: [
        { ...refusal, clients: 1, nodes: ["a"] },
        { ...refusal, clients: 2, nodes: ["a", "b"] },
      ],
    });
    expect(lines.map((l) => [l.look, l.href])).toEqual([
      ["bad", "/clients/a?type=LDS&name=http"],
      ["bad", "/clients?q=state%3Arefused+type%3Alds"],
      ["warn", "/clients/a"],
    ]);
  });
});

describe("texts", () => {
  it("show invisible characters as escapes", () => {
    for (const c of ["\u0000", "\u001b", "\u200b", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069", "\ufeff"])
      expect(visible(`a${c}b`)).toBe(`a\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}b`);
    expect(visible("é 漢\n\t𝒳")).toBe("é 漢\n\t𝒳");
  });
});
