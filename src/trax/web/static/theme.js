// Runs before the first paint, to avoid a flash of the wrong colours.
try {
  const theme = localStorage.getItem("trax.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's colours apply.
}
