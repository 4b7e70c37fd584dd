// The positions of a graph. The library is loaded only with the first graph.
import { Graph, layout } from "@dagrejs/dagre";

export const box = { width: 208, height: 46 }; // px; style.css has the same numbers

export interface Point {
  x: number;
  y: number;
}

export interface Layout {
  width: number;
  height: number;
  nodes: Point[]; // centers
  edges: Point[][]; // points of each edge
}

// Places nodes from left to right, in the direction of their edges.
export function place(nodes: number, edges: { from: number; to: number }[]): Layout {
  const g = new Graph({ multigraph: true });
  g.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 56, marginx: 14, marginy: 14 });
  g.setDefaultEdgeLabel(() => ({}));
  for (let i = 0; i < nodes; i++) g.setNode(String(i), { ...box });
  for (const [i, e] of edges.entries()) g.setEdge(String(e.from), String(e.to), {}, String(i));
  layout(g);
  const { width = 0, height = 0 } = g.graph();
  const center = (i: number) => g.node(String(i)) as Point;
  return {
    width,
    height,
    nodes: Array.from({ length: nodes }, (_, i) => center(i)),
    edges: edges.map((e, i) => {
      const { points } = g.edge(String(e.from), String(e.to), String(i)) as { points: Point[] };
      const [from, to] = [center(e.from), center(e.to)];
      if (from.x >= to.x) return points; // of a cycle
      return [{ x: from.x + box.width / 2, y: from.y }, ...points.slice(1, -1), { x: to.x - box.width / 2, y: to.y }];
    }),
  };
}
