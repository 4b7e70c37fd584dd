// Fails if the built page is larger than its budget, or differs from the committed one. The comparison is of the
// unpacked files, because versions of Node compress differently.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const budget = 100 << 10; // bytes, compressed: the first view needs all files

const git = (...args) => execFileSync("git", args, { maxBuffer: 1 << 30 });
const committed = git("ls-files", "dist").toString().split("\n").filter(Boolean).sort();
const built = readdirSync("dist", { recursive: true, withFileTypes: true })
  .filter((e) => e.isFile())
  .map((e) => join(e.parentPath, e.name))
  .sort();
const total = built.reduce((n, f) => n + readFileSync(f).length, 0);
console.log(`the page has ${total} of ${budget} bytes`);
const same = String(committed) === String(built) && built.every((f) => gunzipSync(git("show", `:./${f}`)).equals(gunzipSync(readFileSync(f))));
if (!same) console.error("web/dist is not current: commit it after make page");
process.exitCode = total > budget || !same ? 1 : 0;
