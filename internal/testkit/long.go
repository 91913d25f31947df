package testkit

import "os"

// Long reports whether tests try everything: HUBLINE_LONG=1, as in the check's stage long. Else,
// and with the race detector and under emulation, they try a sample.
func Long() bool { return os.Getenv("HUBLINE_LONG") == "1" }
