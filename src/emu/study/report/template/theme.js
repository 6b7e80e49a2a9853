// Light or dark: as the system says, until the button says otherwise. Canvases are told to draw again.

const theme = {
  listeners: [],
  name: () => document.documentElement.dataset.theme,
  colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
  set(name) {
    document.documentElement.dataset.theme = name;
    theme.listeners.forEach((redraw) => redraw());
  },
};

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = false;
  theme.set(system.matches ? "dark" : "light");
  system.addEventListener("change", () => chosen || theme.set(system.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => {
    chosen = true;
    theme.set(theme.name() === "dark" ? "light" : "dark");
  });
}
