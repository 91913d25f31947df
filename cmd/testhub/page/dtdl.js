// Models of Plug and Play in DTDL 2 and 3, as far as the page shows them. A schema that is none of these
// is of kind "json".

const mostText = 1 << 20;
const mostDepth = 5;
const mostContents = 300; // of an interface

const list = (v) => (v === undefined ? [] : Array.isArray(v) ? v : [v]);
const isType = (v, name) => list(v["@type"]).includes(name);

// word is a text of the model, which may have languages.
const word = (v, otherwise) => (typeof v === "string" ? v : v?.en ?? Object.values(v ?? {})[0] ?? otherwise);

// parse returns the interfaces of files, by id, and the ids of those that no other one refers to. Of
// interfaces with the same id the first wins.
export function parse(texts) {
  const all = new Map();
  const inner = new Set();
  for (const text of texts) {
    if (text.length > mostText) {
      throw new Error("the file is larger than 1 MiB");
    }
    const interfaces = list(JSON.parse(text));
    if (!interfaces.some(isInterface)) {
      throw new Error("the file has no interface: want an object with @type Interface and @id, or a list of them");
    }
    interfaces.forEach((one) => collect(one, all, inner));
  }
  const roots = [...all.keys()].filter((id) => !inner.has(id));
  return {all, roots: roots.length > 0 ? roots : [...all.keys()]};
}

const isInterface = (v) => v !== null && typeof v === "object" && isType(v, "Interface") && typeof v["@id"] === "string";

// collect adds an interface, and those that are written inside it.
function collect(one, all, inner) {
  if (!isInterface(one) || all.has(one["@id"])) {
    return;
  }
  all.set(one["@id"], one);
  const components = list(one.contents).filter((c) => isType(c, "Component")).map((c) => c.schema);
  for (const other of [...list(one.extends), ...components]) {
    inner.add(typeof other === "string" ? other : other?.["@id"]);
    collect(other, all, inner);
  }
}

// parts returns an interface without a component name, and its components: of each the telemetry, the
// properties and the commands. missing is an interface that no file has.
export function parts(model, id) {
  const contents = contentsOf(model, id, new Set());
  const components = contents.filter((c) => isType(c, "Component"));
  return [{component: "", title: word(model.all.get(id).displayName, id), ...sorted(contents)},
    ...components.map((c) => {
      const schema = typeof c.schema === "string" ? c.schema : c.schema?.["@id"];
      return {component: c.name, title: word(c.displayName, c.name), missing: model.all.has(schema) ? "" : String(schema), ...sorted(contentsOf(model, schema, new Set()))};
    })];
}

// contentsOf lists the contents of an interface and of those that it extends.
function contentsOf(model, id, seen) {
  const one = model.all.get(id);
  if (!one || seen.has(id)) {
    return [];
  }
  seen.add(id);
  const own = list(one.contents).filter((c) => typeof c?.name === "string").map((c) => ({...c, schemas: list(one.schemas)}));
  const more = list(one.extends).flatMap((e) => contentsOf(model, typeof e === "string" ? e : e?.["@id"], seen));
  return [...own, ...more].slice(0, mostContents);
}

function sorted(contents) {
  const of = (type, make) => contents.filter((c) => isType(c, type)).map((c) => ({name: c.name, title: word(c.displayName, c.name),
    about: word(c.description, ""), ...make(c)}));
  const valued = (c) => ({schema: schemaOf(c.schema, c.schemas, 0), unit: unitOf(c.unit), writable: c.writable === true});
  return {
    telemetry: of("Telemetry", valued),
    properties: of("Property", valued),
    commands: of("Command", (c) => ({request: c.request && {title: word(c.request.displayName, c.request.name ?? "Payload"),
      schema: schemaOf(c.request.schema, c.schemas, 0)}})),
  };
}

const kinds = {
  boolean: "boolean", byte: "integer", short: "integer", integer: "integer", long: "integer", unsignedByte: "integer",
  unsignedShort: "integer", unsignedInteger: "integer", unsignedLong: "integer", float: "number", double: "number",
  decimal: "number", string: "string", date: "string", dateTime: "string", time: "string", duration: "string", uuid: "string",
  bytes: "string",
};

function schemaOf(schema, shared, depth) {
  if (typeof schema === "string") {
    const other = shared.find((s) => s?.["@id"] === schema);
    return other && depth < mostDepth ? schemaOf(other, shared, depth + 1) : {kind: kinds[schema] ?? "json", type: schema};
  }
  if (schema === null || typeof schema !== "object" || depth >= mostDepth) {
    return {kind: "json", type: "value"};
  }
  if (isType(schema, "Enum")) {
    return {kind: "enum", type: "choice", choices: list(schema.enumValues).map((v) => ({title: word(v.displayName, v.name),
      value: v.enumValue}))};
  }
  if (isType(schema, "Object")) {
    return {kind: "object", type: "object", fields: list(schema.fields).filter((f) => typeof f?.name === "string").map((f) => ({
      name: f.name, title: word(f.displayName, f.name), schema: schemaOf(f.schema, shared, depth + 1)}))};
  }
  if (isType(schema, "Array")) {
    return {kind: "array", type: "list", element: schemaOf(schema.elementSchema, shared, depth + 1)};
  }
  return {kind: "json", type: list(schema["@type"])[0] ?? "value"};
}

const symbols = {
  degreeCelsius: "°C", degreeFahrenheit: "°F", kelvin: "K", percent: "%", metre: "m", centimetre: "cm", millimetre: "mm",
  kilometre: "km", gram: "g", kilogram: "kg", second: "s", millisecond: "ms", minute: "min", hour: "h", volt: "V", ampere: "A",
  watt: "W", kilowatt: "kW", kilowattHour: "kWh", pascal: "Pa", kilopascal: "kPa", bar: "bar", lux: "lx", hertz: "Hz",
  metrePerSecond: "m/s", kilometrePerHour: "km/h", litre: "l", degreeOfArc: "°", radian: "rad", newton: "N", joule: "J",
  decibel: "dB", revolutionPerMinute: "rpm",
};

// unitOf is the symbol of a unit, or its name.
function unitOf(unit) {
  const name = typeof unit === "string" ? unit.split(":").pop().split(";")[0] : "";
  return Object.hasOwn(symbols, name) ? symbols[name] : name;
}
