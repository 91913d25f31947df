// Names with values, as a person types them: name=value, name=value.

export function parsePairs(text) {
  const all = {};
  for (const pair of text.split(",").filter((p) => p.trim())) {
    const [name, ...value] = pair.split("=");
    all[name.trim()] = value.join("=").trim();
  }
  return all;
}

export const showPairs = (all) => Object.entries(all ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
