import { accessible, expect, look, quickstart, refused, test } from "./world";

test("the propagation of a commit shows who accepted it and who lacks it", async ({ page, world }) => {
  const hostile = "<img src=x onerror=\"document.title='owned'\">\u202eexe";
  for (const node of ["edge-1", hostile, "y".repeat(1000)]) await world.envoy(node);
  await expect.poll(async () => (await fetch(`${world.url}/ready?node=edge-1`)).status).toBe(200);
  await page.goto(`${world.url}/propagation`);
  await expect(page.getByText("All clients have accepted it.")).toBeVisible();
  world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
  await expect(page.getByRole("img", { name: /3 clients accepted it, half of them after \d+ ms, 99 % after/ })).toBeVisible();
  await accessible(page);
  await look(page, "propagation");

  world.write("listener.yaml", refused(quickstart("listener").replace("port_value: 10000", "port_value: 0")));
  const missing = page.getByRole("table", { name: "Missing clients" });
  await expect(missing.getByRole("row")).toHaveCount(4);
  await expect(missing.getByRole("row", { name: /edge-1 refused LDS .*cannot bind/ })).toBeVisible();
  await expect(page.getByText("no client has accepted it yet")).toBeVisible();
  await expect(page.locator("main img")).toHaveCount(0);
  expect(await page.title()).not.toBe("owned");
  await accessible(page);
  await look(page, "propagation-missing");
  await page.getByRole("table", { name: "Last commits" }).getByRole("link").nth(1).click();
  await expect(page).toHaveURL(/\?revision=\d+$/);
  await expect(page.getByRole("img", { name: /3 clients accepted it/ })).toBeVisible();
  await page.getByRole("link", { name: "all 3" }).click();
  await expect(page).toHaveURL(/\/clients\?q=state%3Arefused\+state%3Astale/);
  await expect(page.getByRole("table", { name: "Clients" }).getByRole("row")).toHaveCount(4);
});
