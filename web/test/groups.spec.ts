import { accessible, expect, look, quickstart, test } from "./world";

const cluster = (name: string) =>
  quickstart("cluster")
    .replace("name: backend", `name: ${name}`)
    .replace("type: EDS", "type: STATIC")
    .replace(/eds_cluster_config:\n.*\n/, "");

test("groups show their rule, their clients, and a rejected load", async ({ page, world }) => {
  world.write("pay/group.yaml", "on_error: alone\nmatch: {metadata: {team: pay}}\n");
  world.write("pay/cluster.yaml", cluster("pay"));
  await world.envoy("pay-1", { team: "pay" });
  await world.envoy("edge-1");
  await page.goto(`${world.url}/groups`);
  const row = page.getByRole("row", { name: /^pay/ });
  await expect(row).toContainText('metadata.team is "pay"');
  await expect(row).toContainText("pay/group.yaml");
  await expect(row).toContainText("ok");
  await accessible(page);
  world.write("pay/cluster.yaml", "<b>: 1\n");
  await expect(row).toContainText("load rejected");
  await expect(page.getByText(/pay\/cluster\.yaml:1:/)).toBeVisible();
  await accessible(page);
  await look(page, "groups");
  await row.getByRole("link", { name: "1", exact: true }).last().click();
  await expect(page).toHaveURL(/\/clients\?q=group%3Apay$/);
});

test("a pasted node shows its groups", async ({ page, world }) => {
  world.write("pay/group.yaml", "match: {metadata: {team: pay}}\n");
  world.write("pay/cluster.yaml", cluster("pay"));
  await page.goto(`${world.url}/groups`);
  await expect(page.getByRole("row", { name: /^pay/ })).toBeVisible();
  const show = async (node: string) => {
    await page.getByRole("textbox", { name: "Node" }).fill(node);
    await page.getByRole("button", { name: "Show its groups" }).click();
  };
  await show("id: <i>x</i>\nmetadata: {team: pay}");
  const groups = page.getByRole("table", { name: "Groups of the node" });
  await expect(groups.getByRole("row", { name: /^pay/ })).toContainText('metadata.team is "pay"');
  await expect(page.getByRole("table", { name: "Resources of the node" }).getByRole("link", { name: "pay" })).toBeVisible();
  await accessible(page);
  await look(page, "preview");
  await show("id: [");
  await expect(page.getByRole("alert")).toContainText("node:1:");
  await show('{"colour": "<img src=x onerror=alert(1)>"}');
  await expect(page.getByRole("alert")).toContainText('unknown field "colour"');
});
