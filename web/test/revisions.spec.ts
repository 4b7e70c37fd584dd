import { accessible, expect, heading, look, quickstart, test } from "./world";

test("without a store, the revisions have a hint", async ({ page, world }) => {
  await page.goto(`${world.url}/revisions`);
  await expect(page.getByText("This server has no store of revisions")).toBeVisible();
  await accessible(page);
});

test.describe("with a store", () => {
  test.use({ flags: "--store file:./store --store-write" });

  test("revisions show their author, their changes, and the clients that these reach", async ({ page, world }) => {
    await page.goto(`${world.url}/revisions`);
    await expect(page.getByText("The store has no revision yet.")).toBeVisible();
    const apply = (message: string) => world.command("apply", "config", "--store", "file:./store", "--author", "ana", "-m", message);
    await apply("first");
    await world.envoy("edge-1");
    await expect(page.getByRole("row", { name: /r1 .* first .* served/ })).toBeVisible();
    world.write("cluster.yaml", quickstart("cluster").replace("connect_timeout: 1s", "connect_timeout: 7s"));
    const hostile = "<img src=x onerror=\"document.title='owned'\">\u202eexe";
    await apply(hostile);
    await expect(page.getByRole("row", { name: /r2 .* ana .*img .* served/ })).toBeVisible();
    await accessible(page);
    await look(page, "revisions");
    await page.getByRole("link", { name: "r2", exact: true }).click();
    await expect(page).toHaveURL(/\/revisions\/r2$/);
    await expect(heading(page)).toContainText("<img src=x");
    await expect(page.getByRole("row", { name: /changed CDS/ })).toContainText("cluster.yaml");
    await expect(page.getByText("1 of 1")).toBeVisible();
    expect(await page.title()).not.toBe("owned");
    await accessible(page);
    await look(page, "revision");
    await world.command("freeze", "default", "--at", "r1", "--store", "file:./store", "-m", "wait");
    await expect(page.getByText("Group default is frozen at r1, so 1 of these changes is not served to all its clients: “wait”")).toBeVisible();
  });

  test("an unknown revision is an error", async ({ page, world }) => {
    await page.goto(`${world.url}/revisions/r9`);
    await expect(page.getByRole("alert")).toContainText("no revision");
  });
});
