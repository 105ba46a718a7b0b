/** Finds what `index.html` has. */

export function element<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found as T;
}

/** Sets a text only where it differs: screen readers and layout are left in peace. */
export function say(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}
