// Forms for a value of a schema of a model.

import {el, fill, labelled} from "./dom.js";

// form returns the controls, and value, which throws an error in a person's words. A control that is
// empty has no value.
export function form(title, schema) {
  return (forms[schema.kind] ?? forms.json)(title, schema);
}

const forms = {
  boolean: (title) => choice(title, [{title: "true", value: true}, {title: "false", value: false}]),
  enum: (title, schema) => choice(title, schema.choices),
  integer: (title, schema) => text(title, schema.type, (v) => number(title, v, /^[+-]?\d+$/, "a whole number")),
  number: (title, schema) => text(title, schema.type, (v) => number(title, v, /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i, "a number")),
  string: (title, schema) => text(title, schema.type, (v) => v),
  object: objectForm,
  array: arrayForm,
  json: jsonForm,
};

function text(title, want, convert) {
  const input = el("input", {autocomplete: "off", spellcheck: "false"});
  return {root: labelled(title, input, want), value: () => (input.value === "" ? undefined : convert(input.value))};
}

function number(title, v, form, want) {
  if (!form.test(v.trim())) {
    throw new Error(`${title}: want ${want}`);
  }
  return Number(v);
}

function choice(title, choices) {
  const select = el("select", {}, el("option", {value: ""}, ""), ...choices.map((c, i) => el("option", {value: i}, c.title)));
  return {root: labelled(title, select), value: () => choices[select.value]?.value};
}

function jsonForm(title) {
  const area = el("textarea", {rows: "3", spellcheck: "false"});
  return {root: labelled(title, area, "JSON"), value: () => {
    try {
      return area.value.trim() ? JSON.parse(area.value) : undefined;
    } catch (e) {
      throw new Error(`${title}: this is no JSON: ${e.message}`);
    }
  }};
}

function objectForm(title, schema) {
  const fields = schema.fields.map((f) => [f.name, form(f.title, f.schema)]);
  return {root: el("fieldset", {}, el("legend", {}, title), ...fields.map(([, f]) => f.root)), value: () => {
    const all = fields.map(([name, f]) => [name, f.value()]).filter(([, v]) => v !== undefined);
    return all.length > 0 ? Object.fromEntries(all) : undefined;
  }};
}

const mostItems = 100;

function arrayForm(title, schema) {
  let items = [];
  const places = el("div", {});
  const more = el("button", {type: "button", onclick: () => {
    items.push(form("Item", schema.element));
    show();
    places.lastElementChild.querySelector("input,select,textarea")?.focus();
  }}, "Add an item");
  const show = () => {
    fill(places, ...items.map((one) => el("div", {class: "row item"}, one.root, el("button", {type: "button", onclick: () => {
      items = items.filter((other) => other !== one);
      show();
      more.focus();
    }}, "Remove the item"))));
    more.disabled = items.length >= mostItems;
  };
  return {root: el("fieldset", {}, el("legend", {}, title), places, more), value: () => {
    const all = items.map((i) => i.value()).filter((v) => v !== undefined);
    return all.length > 0 ? all : undefined;
  }};
}
