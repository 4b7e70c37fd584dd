// Fails if the built page is larger than its budget. The sizes are those of the compressed files.
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";

const budget = 100 << 10; // bytes of the first view, which needs all files
const total = readdirSync("dist", { recursive: true, withFileTypes: true })
  .filter((e) => e.isFile())
  .reduce((n, e) => n + statSync(join(e.parentPath, e.name)).size, 0);
console.log(`the page has ${total} of ${budget} bytes`);
process.exitCode = total > budget ? 1 : 0;
