package texts

// longest is the number of bytes of a name that count.
const longest = 64

// Nearest returns the one of names that takes the fewest additions, removals and replacements of
// bytes to make of name, the first of several. It returns an empty text if more than half of the
// bytes differ: such a name leads nobody to what he meant.
func Nearest(name string, names []string) (best string) {
	least := -1
	for _, n := range names {
		if d := edits(name, n); least < 0 || d < least {
			best, least = n, d
		}
	}
	if 2*least > max(min(len(name), longest), len(best)) {
		return ""
	}
	return best
}

// NearestFlag returns the middle of a sentence about an unknown flag: "the nearest is -keep, and ".
// It is empty if no name is near.
func NearestFlag(name string, names []string) string { return clause("-", name, names) }

// NearestName is as NearestFlag, for "the nearest is keep, and ".
func NearestName(name string, names []string) string { return clause("", name, names) }

func clause(dash, name string, names []string) string {
	if best := Nearest(name, names); best != "" {
		return "the nearest is " + dash + best + ", and "
	}
	return ""
}

// edits returns how many bytes must be added, removed or replaced to make one text of another.
func edits(a, b string) int {
	a = a[:min(len(a), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, above+1, diagonal+cost)
			diagonal = above
		}
	}
	return row[len(b)]
}
