// Words for a duration in ms, such as "4 min".
export function duration(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return "0 s";
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

// The English plural of a unit.
export const units = (n: number, one: string) => (n === 1 ? one : `${one}s`);

export const number = (n: number) => n.toLocaleString("en");

// The words for states and kinds of events; others are those of the API.
const words: Record<string, string> = { nacked: "refused", nack: "refused" };
export const wordOf = (s: string) => words[s.toLowerCase()] ?? s.toLowerCase().replace("_", " ");

// The beginning of a name that may be very long.
export const short = (name: string) => (name.length > 200 ? `${name.slice(0, 200)}…` : name);

// Control characters, and characters that a browser does not show or that reorder text. Line breaks and tabs are part of long
// texts.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to find
const invisible = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

// A text with an escape, such as \u202e, for each invisible character.
export const visible = (text: string) => text.replace(invisible, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
