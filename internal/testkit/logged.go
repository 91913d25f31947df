package testkit

import (
	"bytes"
	"log"
)

// Logged returns what f has written to the standard logger.
func Logged(f func()) string {
	var text bytes.Buffer
	before := log.Writer()
	log.SetOutput(&text)
	defer log.SetOutput(before) // f may panic
	f()
	log.SetOutput(before) // which waits for a goroutine that logs
	return text.String()
}
