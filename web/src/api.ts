// Requests to the admin API. The types come from its OpenAPI file, so a renamed field breaks the build.
import { signal } from "@preact/signals";
import type { components, paths } from "./api.gen";

type Schemas = components["schemas"];
export type Status = Schemas["Status"];
export type Client = Schemas["Client"];
export type TypeStatus = Schemas["TypeStatus"];
export type Refusal = Schemas["Refusal"];
export type Trouble = Schemas["Trouble"];
export type Explanation = Schemas["Explanation"];
export type ServedResource = Schemas["ServedResource"];
export type ClientResource = Schemas["ClientResource"];
export type Resource = Schemas["Resource"];
export type Propagation = Schemas["Propagation"];
export type Spread = Schemas["Spread"];
export type Diff = Schemas["Diff"];
export type Difference = Schemas["Difference"];
export type FieldValue = Schemas["FieldValue"];
export type ReferenceGraph = Schemas["ReferenceGraph"];
export type ReferenceNode = Schemas["ReferenceNode"];
export type Event = Schemas["Event"];
export type Revision = Schemas["Revision"];
export type Impact = Schemas["Impact"];
export type Rollout = Schemas["Rollout"];
export type Preview = Schemas["Preview"];
export type Check = Schemas["Check"];
export type ChangedItem = Schemas["ChangedItem"];
export type TypeLoad = Schemas["TypeLoad"];
export type Group = Schemas["Group"];
export type Hold = Schemas["Hold"];
export type Endpoint = Schemas["Endpoint"];
export type Replica = Schemas["Replica"];
export type State = Schemas["State"];

type Get = { [P in keyof paths]: paths[P] extends { get: { responses: { 200: { content: { "application/json": infer T } } } } } ? T : never };
export type Path = { [P in keyof Get]: Get[P] extends never ? never : P }[keyof Get];
type Post = {
  [P in keyof paths]: paths[P] extends {
    post: { requestBody?: { content: { "application/json": infer In } }; responses: { 200: { content: { "application/json": infer Out } } } };
  }
    ? { in: In; out: Out }
    : never;
};
export type PostPath = { [P in keyof Post]: Post[P] extends never ? never : P }[keyof Post];
export type Query = Record<string, string | number | boolean | string[] | undefined>;

// Who uses the page, and what it may do; undefined: not known yet. The credential is in a cookie that scripts cannot read.
export const session = signal<Schemas["Session"] | undefined>(undefined);

// Why the last sign-in by the issuer failed; "" if it did not.
export const signInFailure = signal("");

// True after an answer that asks for a credential.
export const signedOut = signal(false);

// The server of a store that answered last, and another one that answered before it.
export const replica = signal("");
export const replicaBefore = signal("");

// How far the clock of the browser is ahead of the server's, in ms.
export let clockAhead = 0;

const timeout = 30_000; // ms, for the whole answer of a request that changes nothing

// A Failure is an error answer of the API, or a request without an answer.
export class Failure extends Error {
  constructor(
    readonly status: number, // 0: the server did not answer
    message: string,
    readonly hint = "",
    readonly errors: string[] = [],
  ) {
    super(message);
  }
}

// A name that is a dot segment after any number of "%". A browser removes dot segments from paths, so the page and the API
// add one "%" to such a name.
const dots = /^%*\.\.?$/;

// The name of a decoded segment of a path.
export const nameOf = (segment: string) => (segment.startsWith("%") && dots.test(segment) ? segment.slice(1) : segment);

// Fills the parts in braces of a path, in order, and adds the query.
export function urlOf(path: string, parts: string[], query: Query = {}): string {
  let n = 0;
  const filled = path.replace(/\{[^}]*\}/g, () => encodeURIComponent((parts[n++] ?? "").replace(dots, "%$&")));
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const v of Array.isArray(value) ? value : [value]) {
      if (v !== undefined && v !== "" && v !== false) q.append(name, v === true ? "1" : String(v));
    }
  }
  const text = q.toString();
  return text ? `${filled}?${text}` : filled;
}

// Sends a request. It throws a Failure for each answer that is not a success.
export async function request(url: string, signal?: AbortSignal, body?: unknown, method = "POST", token = ""): Promise<Response> {
  const late = body === undefined ? [AbortSignal.timeout(timeout)] : [];
  let answer: Response;
  if (body !== undefined && !session.value) await loadSession();
  const csrf = session.value?.csrf;
  try {
    answer = await fetch(url, {
      ...(body !== undefined && {
        method,
        body: JSON.stringify(body),
        headers: { "Content-Type": "application/json", ...(csrf && { "Chancery-CSRF": csrf }), ...(token && { Authorization: `Bearer ${token}` }) },
      }),
      signal: AbortSignal.any(signal ? [signal, ...late] : late),
    });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Failure(0, "The server does not answer.");
  }
  const off = Date.now() - Date.parse(answer.headers.get("Date") ?? "");
  if (Math.abs(off - clockAhead) > 2000) clockAhead = off; // the header has whole seconds
  const id = answer.headers.get("Chancery-Replica") ?? "";
  if (replica.value && id && id !== replica.value) replicaBefore.value = replica.value;
  replica.value = id || replica.value;
  if (answer.status === 401) signedOut.value = true;
  if (answer.ok) return answer;
  const error: Partial<Schemas["Error"]> = await answer.json().catch(() => ({}));
  const message = error.message || answer.statusText || `The server answers with status ${answer.status}.`;
  throw new Failure(answer.status, error.field ? `${error.field}: ${message}` : message, error.hint, error.errors);
}

const sessionPath = "/api/v1/session";

function takeSession(is: Schemas["Session"]) {
  session.value = is;
  if (is.failed || is.signed_in) signInFailure.value = is.failed ?? "";
  signedOut.value = !is.name || !!is.failed;
}

// Asks who uses the page. The session is then valid for longer.
export async function loadSession() {
  await get(sessionPath, []).then(takeSession, () => undefined); // the next request shows the failure, too
}

export async function signIn(token: string) {
  takeSession(await (await request(sessionPath, undefined, {}, "POST", token)).json());
}

export async function signOut() {
  takeSession(await (await request(sessionPath, undefined, {}, "DELETE")).json());
}

export async function get<P extends Path>(path: P, parts: string[], query?: Query, signal?: AbortSignal): Promise<Get[P]> {
  return json<Get[P]>(await request(urlOf(path, parts, query), signal));
}

export async function post<P extends PostPath>(path: P, parts: string[], body: Post[P]["in"], query?: Query): Promise<Post[P]["out"]> {
  return json<Post[P]["out"]>(await request(urlOf(path, parts, query), undefined, body));
}

async function json<T>(answer: Response): Promise<T> {
  try {
    return await answer.json();
  } catch {
    throw new Failure(0, "The answer of the server is incomplete.");
  }
}
