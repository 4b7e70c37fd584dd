import { accessible, expect, look, quickstart, test } from "./world";

const hostile = `<script>document.title='owned'</script>\u202egnp.exe`;

const route = (clusters: string[]) =>
  JSON.stringify({
    "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    name: "local",
    virtual_hosts: [{ name: "all", domains: ["*"], routes: clusters.map((cluster) => ({ match: { prefix: `/${cluster.length}` }, route: { cluster } })) }],
  });

test("the graph of references shows what is missing, and its nodes are links", async ({ page, world }) => {
  await world.envoy("edge-1");
  world.write("route.yaml", route(["backend", "backent", hostile, "y".repeat(1 << 20)]));
  await page.goto(`${world.url}/resources/LDS/http`);
  const graph = page.getByRole("region", { name: "Graph of references" });
  await expect(graph.getByRole("link")).toHaveCount(7);
  await expect(graph.locator(".placed")).toBeVisible();
  await expect(graph.locator("path.bad")).toHaveCount(3);
  await expect(graph.getByRole("link", { name: /CDS missing backent did you mean "backend"/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /^CDS missing <script>/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /RDS .*local.*refers to .*CDS backend; CDS backent, which is missing/ })).toBeVisible();
  await expect(graph.getByRole("link", { name: /LDS 1 of 1 accepted http/ })).toHaveAttribute("aria-current", "true");
  await expect(page.locator("main script")).toHaveCount(0);
  expect(await page.title()).not.toBe("owned");
  await accessible(page);
  await look(page, "graph");

  const cluster = graph.getByRole("link", { name: /CDS 1 of 1 accepted backend/ });
  await cluster.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/resources\/CDS\/backend$/);
  await expect(graph.getByRole("link")).toHaveCount(4); // its endpoints, its route, and the listener of the route
  await expect(graph.getByRole("link", { name: /LDS .*http/ })).toBeVisible();
  await accessible(page);

  world.write("route.yaml", quickstart("route"));
  await page.goBack();
  await expect(graph.getByRole("link")).toHaveCount(4);
  await expect(graph.locator("path.bad")).toHaveCount(0);
});
