// Fails if the built page is larger than its budget, or differs from the committed one. The comparison is of the
// unpacked files, because versions of Node compress differently.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

// Bytes, compressed. The first view needs the files that index.html names; the page loads the others later.
const budget = { first: 100 << 10, all: 200 << 10 };

const git = (...args) => execFileSync("git", args, { maxBuffer: 1 << 30 });
const committed = git("ls-files", "dist").toString().split("\n").filter(Boolean).sort();
const built = readdirSync("dist", { recursive: true, withFileTypes: true })
  .filter((e) => e.isFile())
  .map((e) => join(e.parentPath, e.name))
  .sort();
const index = gunzipSync(readFileSync("dist/index.html.gz")).toString();
const sum = (files) => files.reduce((n, f) => n + readFileSync(f).length, 0);
const first = sum(built.filter((f) => f === "dist/index.html.gz" || index.includes(f.slice("dist".length, -".gz".length))));
const all = sum(built);
console.log(`the first view has ${first} of ${budget.first} bytes, the page ${all} of ${budget.all}`);
const same = String(committed) === String(built) && built.every((f) => gunzipSync(git("show", `:./${f}`)).equals(gunzipSync(readFileSync(f))));
if (!same) console.error("web/dist is not current: commit it after make page");
process.exitCode = first > budget.first || all > budget.all || !same ? 1 : 0;
