package texts

import "strconv"

// TooLarge says that a message of size bytes, body of them its body, is over limit.
func TooLarge(size, body, limit int) string {
	over := " over the limit of " + strconv.Itoa(limit)
	if rest := size - body; rest > body {
		return "message of " + strconv.Itoa(size) + " bytes, " + strconv.Itoa(rest) + " of them in properties, is" +
			over + "; send fewer or shorter properties"
	}
	return "message of " + strconv.Itoa(size) + " bytes is" + over + "; split it or upload it as a file"
}
