// Package faketime sets the clock of tests that run in a bubble of testing/synctest.
package faketime

import "time"

// day is the time that Start sets.
var day = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Start moves the bubble's clock from 2000, where each bubble begins, to 2030. A client treats a
// clock before the release of its own code as not set (transport.Credentials.Implausible). Call it
// before anything else in the bubble.
func Start() { time.Sleep(time.Until(day)) }
