// Elements. Texts from devices become text nodes only.

// Control characters, and characters that change the direction of what follows, are shown as
// escapes, so that a text cannot pass for another one.
const unprintable = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function shown(text) {
  return String(text).replace(unprintable, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

// el makes an element with attributes, listeners ("onclick") and children. Children that are no
// elements become text.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) {
      e.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== false) {
      e.setAttribute(key, value === true ? "" : value);
    }
  }
  fill(e, ...children);
  return e;
}

// fill replaces the children of an element.
export function fill(e, ...children) {
  e.replaceChildren(...children.filter((c) => c !== null && c !== undefined)
    .map((c) => (c instanceof Node ? c : document.createTextNode(shown(c)))));
}

export const byID = (id) => document.getElementById(id);

// keyed makes the children of a parent those of the list, one each with the key of its item. It
// keeps elements that stay, so that they keep the focus and what is open.
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((e) => [e.dataset.key, e]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let e = old.get(key);
    if (!e) {
      e = make(item);
      e.dataset.key = key;
    }
    old.delete(key);
    if (update) {
      update(e, item);
    }
    if (e === before) {
      before = before.nextElementSibling;
    } else {
      parent.insertBefore(e, before);
    }
  }
  old.forEach((e) => e.remove());
}

// setText changes a text only if it differs, so that a screen reader hears no repetition.
export function setText(e, text) {
  const now = shown(text);
  if (e.textContent !== now) {
    e.textContent = now;
  }
}

let made = 0;

// labelled is a label with its control. want, a description, is under it.
export function labelled(words, control, want) {
  control.id = control.id || `field-${++made}`;
  const label = el("label", {for: control.id}, words);
  if (!want) {
    return el("div", {class: "field"}, label, control);
  }
  control.setAttribute("aria-describedby", `${control.id}-want`);
  return el("div", {class: "field"}, label, control, el("p", {class: "want", id: `${control.id}-want`}, want));
}

export function time(at) {
  const t = new Date(at);
  return el("time", {datetime: at, title: t.toLocaleString()}, t.toLocaleTimeString([], {hour12: false}));
}

// pretty is JSON with indentation; a text that is no JSON stays as it is.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// table is a table with a caption for screen readers. It has the body as property "rows".
export function table(caption, ...heads) {
  const body = el("tbody");
  const root = el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {}, el("caption", {class: "hide-label"}, caption),
      el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {scope: "col"}, h)))), body));
  return {root, body};
}

// cells makes a row.
export function cells(...all) {
  return el("tr", {}, ...all.map((c) => el("td", {}, c)));
}

// confirmed asks a question and returns whether the answer is yes.
export function confirmed(title, text, yes) {
  const dialog = byID("ask");
  setText(byID("ask-title"), title);
  setText(byID("ask-text"), text);
  setText(byID("ask-yes"), yes);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), {once: true});
  });
}
