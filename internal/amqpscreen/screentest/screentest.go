// Package screentest has messages for tests of the screen and of code behind it.
package screentest

import (
	"encoding/hex"
	"strings"
)

// Undecoded returns valid messages that the library cannot decode, by what they hold.
func Undecoded() map[string][]byte {
	all := make(map[string][]byte)
	for name, text := range map[string]string{
		"char":                    "00 53 77 73 00 00 00 41",
		"decimal32":               "00 53 77 74 00 00 00 41",
		"decimal64":               "00 53 77 84 00 00 00 00 00 00 00 41",
		"decimal128":              "00 53 77 94 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 41",
		"char in a list":          "00 53 76 c0 06 01 73 00 00 00 41",
		"char in an annotation":   "00 53 72 c1 09 02 a3 01 78 73 00 00 00 41",
		"char in a property":      "00 53 74 c1 09 02 a1 01 78 73 00 00 00 41",
		"char as a key":           "00 53 77 c1 07 02 73 00 00 00 41 40",
		"char in a description":   "00 53 77 00 a3 01 78 73 00 00 00 41",
		"array of lists":          "00 53 77 e0 02 01 45",
		"array of described":      "00 53 77 e0 07 01 00 a3 01 78 a1 00",
		"array of chars":          "00 53 77 e0 06 01 73 00 00 00 41",
		"array of empty values":   "00 53 77 e0 02 05 43",
		"a performative":          "00 53 77 00 53 10 45",
		"a broken composite":      "00 53 77 00 53 1d 45",
		"address":                 "00 53 73 c0 05 03 40 40 52 07",
		"reply address, a list":   "00 53 73 c0 07 05 40 40 40 40 45",
		"address, of a described": "00 53 73 c0 0a 03 40 40 00 a3 01 78 a1 01 79",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			panic(err)
		}
		all[name] = b
	}
	return all
}
