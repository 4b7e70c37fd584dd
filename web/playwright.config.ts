import { resolve } from "node:path";
import { defineConfig } from "@playwright/test";

const browser = resolve(import.meta.dirname, "../.cache/browser"); // from e2e/install.sh

export default defineConfig({
  testDir: "test",
  outputDir: "../.cache/test/page",
  workers: 1,
  timeout: 30_000,
  expect: { timeout: 10_000 },
  use: {
    launchOptions: {
      executablePath: `${browser}/chromium`,
      args: ["--no-sandbox"],
      env: { ...process.env, LD_LIBRARY_PATH: `${browser}/lib` } as Record<string, string>,
    },
    screenshot: "only-on-failure",
  },
});
