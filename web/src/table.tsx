// A table of any length: it holds only the rows near the visible ones.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export const rowHeight = 32; // px; style.css has the same number
const around = 10; // rows above and below the visible ones
const settle = 100; // ms

export interface Window {
  from: number;
  count: number;
}

// The rows that a viewport shows, in steps, so that a small movement needs no other rows.
export function windowOf(top: number, height: number): Window {
  const first = Math.max(0, Math.floor(top / rowHeight) - around);
  const from = first - (first % around);
  const end = Math.ceil((top + height) / rowHeight) + around;
  return { from, count: Math.ceil((end - from) / around) * around };
}

// The window of a table. Each table begins with the first rows. While a reader scrolls fast, the window follows in
// steps of settle ms, because each window is a request.
export function useWindow() {
  const [shown, set] = useState<Window>({ from: 0, count: 60 });
  const next = useRef({ timer: 0, window: shown });
  const onWindow = useCallback((w: Window) => {
    next.current.window = w;
    next.current.timer ||= window.setTimeout(() => {
      next.current.timer = 0;
      const { from, count } = next.current.window;
      set((old) => (old.from === from && old.count === count ? old : next.current.window));
    }, settle);
  }, []);
  useEffect(() => () => clearTimeout(next.current.timer), []);
  return { window: shown, onWindow };
}

// Keeps the last answer, with the index of its first row, until the answer for the next window arrives.
export function useShown<T>(data: T | undefined, from: number) {
  const [shown, set] = useState({ data, from });
  if (data && shown.data !== data) set({ data, from });
  return shown;
}

// The head of a table.
const Head = ({ columns }: { columns: ComponentChildren[] }) => (
  <>
    {columns.map((c, i) => (
      <th key={i} scope="col">
        {c}
      </th>
    ))}
  </>
);

// The title of a column of numbers.
export const numeric = (title: string) => <span class="number">{title}</span>;

// Moves the focus to the next or the previous row of the tables of few rows, in the order of the page: to its first link.
export function focusRow(step: 1 | -1) {
  const rows = [...document.querySelectorAll<HTMLElement>("main table:not(.virtual) > tbody > tr, main .rows > *")];
  const at = rows.findIndex((r) => r.contains(document.activeElement));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  if (!row) return;
  const target = row.matches("a") ? row : (row.querySelector<HTMLElement>("a, button") ?? row);
  if (target === row) row.tabIndex = row.matches("a") ? 0 : -1;
  target.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

// A table of few rows.
export const Table = (p: { label?: string; columns: ComponentChildren[]; children: ComponentChildren }) => (
  <table aria-label={p.label}>
    <thead>
      <tr>
        <Head columns={p.columns} />
      </tr>
    </thead>
    <tbody>{p.children}</tbody>
  </table>
);

interface Props<T> {
  label: string;
  head: ComponentChildren[];
  total: number;
  rows: T[]; // from the first row of the window on
  from: number; // index of the first of the rows
  onWindow(w: Window): void;
  row(item: T): ComponentChildren;
  keyOf(item: T): string;
  open?(item: T): void; // for the key Enter
}

export function VirtualTable<T>(p: Props<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  const selected = useSignal({ at: -1, key: "" }); // rows may move: the key finds the row again
  const position = () => {
    const { at, key } = selected.value;
    const found = key ? p.rows.findIndex((item) => p.keyOf(item) === key) : -1;
    return found < 0 ? at : p.from + found;
  };
  useEffect(() => {
    const measure = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      p.onWindow(windowOf(Math.max(0, -top), innerHeight));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [p.onWindow]);
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if ((e.target as Element).closest("input, textarea, select, dialog") || e.metaKey || e.ctrlKey || e.altKey) return;
      const at = position();
      const item = p.rows[at - p.from];
      if (e.key === "Enter" && item && p.open && !(e.target as Element).closest("a, button")) p.open(item);
      if (e.key !== "j" && e.key !== "k") return;
      const next = Math.min(p.total - 1, Math.max(0, at + (e.key === "j" ? 1 : -1)));
      const row = p.rows[next - p.from];
      selected.value = { at: next, key: row ? p.keyOf(row) : "" };
      const top = (body.current?.getBoundingClientRect().top ?? 0) + next * rowHeight;
      if (top < 100) scrollBy(0, top - 100);
      if (top > innerHeight - 2 * rowHeight) scrollBy(0, top - innerHeight + 2 * rowHeight);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  const at = position();
  const before = Math.min(p.from, p.total);
  const after = Math.max(0, p.total - before - p.rows.length);
  const space = (rows: number) => rows > 0 && <tr style={{ height: `${rows * rowHeight}px` }} />;
  return (
    <table class="virtual" aria-label={p.label} aria-rowcount={p.total + 1}>
      <thead>
        <tr aria-rowindex={1}>
          <Head columns={p.head} />
        </tr>
      </thead>
      <tbody ref={body}>
        {space(before)}
        {p.rows.map((item, i) => (
          <tr key={p.keyOf(item)} aria-rowindex={before + i + 2} aria-selected={before + i === at}>
            {p.row(item)}
          </tr>
        ))}
        {space(after)}
      </tbody>
    </table>
  );
}
