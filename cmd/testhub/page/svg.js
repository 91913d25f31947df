// Elements of pictures.

export function svg(name, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([k, v]) => e.setAttribute(k, v));
  return e;
}
