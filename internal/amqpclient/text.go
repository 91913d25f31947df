package amqpclient

import (
	"strconv"
	"unicode/utf8"
)

// maxText bounds texts in frames that cannot be split.
const maxText = 1024

// TextProblem says why the value of an option cannot go into an open or attach. Empty: it can.
func TextProblem(name, value string) string {
	switch {
	case len(value) > maxText:
		return name + " has " + strconv.Itoa(len(value)) + " bytes; give " + strconv.Itoa(maxText) + " at most"
	case !utf8.ValidString(value):
		return name + " is not valid UTF-8"
	}
	return ""
}
