package main

import (
	"os"

	"github.com/hubline-iot/hubline/device"
)

// say writes a line for each change of the connection; the journal adds the time.
func say(s device.Status) {
	line := s.State.String() + ": " + s.Reason.String()
	if s.Delay > 0 {
		line += ", next attempt in " + s.Delay.String()
	}
	if s.Err != nil {
		line += ": " + s.Err.Error() + " (" + s.Hint() + ")"
	}
	os.Stderr.WriteString(line + "\n")
}
