// What a reader who cannot see well, or uses no mouse, would stumble over on this page. Gives a list of sentences.
() => {
  const found = [];
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const place = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""} "${(element.textContent || "").trim().slice(0, 40)}"`;

  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) found.push(`the id ${id} is there twice`);
  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title) found.push("the page has no title");
  if (document.querySelectorAll("h1").length !== 1) found.push("the page has not one h1");
  if (!document.querySelector("main")) found.push("the page has no main part");

  const name = (element) =>
    element.getAttribute("aria-label") ||
    [...(element.labels || [])].map((label) => label.textContent).join("") ||
    (document.getElementById(element.getAttribute("aria-labelledby") || "") || {}).textContent ||
    (element.matches("input, select, textarea") ? element.title : element.textContent || element.title);
  for (const control of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0'], [role=img]"))
    if (shown(control) && !(name(control) || "").trim()) found.push(`nothing says what ${place(control)} is`);
  for (const header of document.querySelectorAll("th"))
    if (shown(header) && !header.textContent.trim() && !header.querySelector("input")) found.push(`a column without a name in ${place(header.closest("table"))}`);

  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [red, green, blue], alpha: alpha / 255 };
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const { rgb, alpha } = colour(getComputedStyle(each).backgroundColor);
      if (alpha > 0.95) return rgb;
    }
    return [255, 255, 255];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(element) || element.closest(":disabled, .away, .skip, option, title, noscript")) continue;
    const style = getComputedStyle(element);
    const ink = colour(element instanceof SVGElement ? style.fill : style.color).rgb;
    const ratio = contrast(ink, element instanceof SVGElement ? behind(element.closest("svg").parentElement) : behind(element));
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 600);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`a contrast of ${ratio.toFixed(2)} at ${place(element)}`);
  }
  return [...new Set(found)];
}
