package testkit

import "time"

// day is the time that StartClock sets.
var day = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// StartClock moves the bubble's clock from 2000, where each bubble begins, to 2030. A client treats
// a clock before the release of its own code as not set (transport.Credentials.Implausible). Call
// it before anything else in the bubble.
func StartClock() { time.Sleep(time.Until(day)) }
