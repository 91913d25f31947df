package texts

import "strings"

// FillIDs returns text with the ids in place of "{device}" and "{module}". If that cannot be,
// problem says why and what to do, as the end of a sentence that begins with the name of text.
func FillIDs(text, device, module string) (filled, problem string) {
	out := make([]byte, 0, len(text)+len(device)+len(module))
	for {
		before, rest, found := strings.Cut(text, "{")
		out = append(out, before...)
		if !found {
			return string(out), ""
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			return "", "has '{' without '}'; use {device} or {module}"
		case name == "device":
			out = append(out, device...)
		case name == "module" && module == "":
			return "", "has {module}, and the credentials have no ModuleID; set it, or leave the placeholder out"
		case name == "module":
			out = append(out, module...)
		default:
			return "", "has the unknown placeholder " + Quote("{"+name+"}") + "; use {device} or {module}"
		}
		text = after
	}
}
