import { accessible, expect, look, test } from "./world";

test.use({
  flags: "--page-link Logs=https://logs.example/?q={node} --page-link Wiki=https://wiki.example/ --page-link Uses=https://code.example/{type}/{name}",
});

test("links lead to other programs with encoded values", async ({ page, world }) => {
  await world.envoy("edge/1&x");
  await page.goto(`${world.url}/clients`);
  await page.getByRole("link", { name: "edge/1&x" }).click();
  await expect(page.getByRole("link", { name: "Logs" })).toHaveAttribute("href", "https://logs.example/?q=edge%2F1%26x");
  await expect(page.getByRole("link", { name: "Wiki" })).toHaveCount(0);
  await accessible(page);
  await look(page, "links");
  await page.goto(world.url);
  await expect(page.getByRole("link", { name: "Wiki" })).toHaveAttribute("rel", "noopener noreferrer");
  await page.goto(`${world.url}/resources/CDS/backend`);
  await expect(page.getByRole("link", { name: "Uses" })).toHaveAttribute("href", "https://code.example/CDS/backend");
  await accessible(page);
});
