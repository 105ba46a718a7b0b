/** Light or dark: as the system says, unless the viewer chose. */

import type { Theme } from "./scale";

export type Choice = Theme | "system";

const KEY = "millrace.theme";
const ORDER: readonly Choice[] = ["system", "light", "dark"];
const SAID: Record<Choice, string> = { system: "as the system", light: "light", dark: "dark" };

export function next(choice: Choice): Choice {
  return ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length] ?? "system";
}

function stored(): Choice {
  try {
    const said = localStorage.getItem(KEY);
    return said === "light" || said === "dark" ? said : "system";
  } catch {
    return "system"; // storage may be forbidden; then a choice lasts as long as the page
  }
}

function store(choice: Choice): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // see stored()
  }
}

/** Sets the theme of the page, now and whenever it changes, and calls `changed` with it. */
export function follow(button: HTMLElement, changed: (theme: Theme) => void): Theme {
  const system = matchMedia("(prefers-color-scheme: light)");
  let choice = stored();
  const theme = (): Theme => (choice !== "system" ? choice : system.matches ? "light" : "dark");
  const show = (): Theme => {
    document.documentElement.dataset["theme"] = theme();
    button.setAttribute("aria-label", `Colours: ${SAID[choice]}`);
    button.title = `Colours: ${SAID[choice]}`;
    return theme();
  };
  button.addEventListener("click", () => {
    choice = next(choice);
    store(choice);
    changed(show());
  });
  system.addEventListener("change", () => changed(show()));
  return show();
}
