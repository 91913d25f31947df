package main

import (
	"embed"
	"strings"
)

//go:embed help/*.txt
var texts embed.FS

// helpText returns the text of a command or a topic.
func helpText(name string) string {
	text, err := texts.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // a name in this program that no file has
	}
	return strings.TrimSpace(string(text))
}
