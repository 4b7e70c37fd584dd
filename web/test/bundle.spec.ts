import { execFileSync } from "node:child_process";
import { accessible, expect, look, test } from "./world";

test("the page downloads an archive for a bug report", async ({ page, world }) => {
  await world.envoy("edge-1");
  await page.goto(world.url);
  await expect(page.getByText("No problems, 1 of 1")).toBeVisible();
  const waits = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download" }).click();
  const download = await waits;
  expect(download.suggestedFilename()).toMatch(/^chancery-bundle-.*\.tar\.gz$/);
  const list = execFileSync("tar", ["tzf", await download.path()]).toString();
  for (const file of ["status.json", "clients.json", "refusals.json", "groups.json", "events.jsonl", "version.json"]) expect(list).toContain(file);
  await accessible(page);
  await look(page, "overview");
});
