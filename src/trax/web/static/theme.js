// Runs before anything is painted, so that nobody sees the wrong colours first.
try {
  const theme = localStorage.getItem("trax.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage, no choice: the system's own is followed.
}
